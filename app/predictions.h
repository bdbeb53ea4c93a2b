// Tables of predictions, as dpt eval --predictions and dpt predict write them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/training/evaluator.h"

namespace dpt {

/// A CSV field, quoted where it must be (RFC 4180).
std::string csv_field(const std::string& text);

/// What the outputs of a model with that loss are called: "probability", or "output" where they are
/// none.
const char* name_of_outputs(const std::string& loss);

/// The name of a class or an output.
std::string name_of(const std::vector<std::string>& names, std::size_t index);

/// A CSV file of the samples of a split, in their order: of samples with labels the label and the
/// prediction with its output, or with `all_outputs` also those of all classes; of others each
/// output and its target. A sample that was left out has its label only.
std::string predictions_table(const Job& job, const Split& split, const SampleResults& samples,
                              bool all_outputs);

/// The `most` classes with the largest outputs, `prediction` first; of equal ones the first.
std::vector<std::size_t> largest_outputs(std::span<const float> outputs, std::size_t prediction,
                                         std::size_t most);

}  // namespace dpt
