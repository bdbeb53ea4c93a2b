// Evaluation: every sample exactly once, on any number of devices, with the same result.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/split.h"
#include "engine/replica/replica.h"

namespace dpt {

struct EvalResult {
  std::string split;            ///< "train", "val", "test"
  std::int64_t n = 0;           ///< samples that were evaluated
  std::int64_t unreadable = 0;  ///< samples that were left out (data.on_bad_sample: skip)
  double loss = 0;              ///< mean, by the weights of the samples (Loss)
  std::optional<double>
      accuracy;         ///< accuracy of the samples that count; absent if targets have none
  NamedValues metrics;  ///< the others, in the order of JobModel::metrics
  /// Name and values of each metric that has values by class.
  std::vector<std::pair<std::string, NamedValues>> by_class;
  /// Name of each metric that left out classes, and the number of classes it left out.
  std::vector<std::pair<std::string, std::int64_t>> left_out;
  SampleResults samples;  ///< in the order of the split
};

/// Returns Measured::hot for the samples at these positions of the split: TargetShape::values
/// numbers for each sample.
std::vector<std::uint8_t> hot_targets(const Split& split,
                                      const std::vector<std::size_t>& positions);

/// Returns Measured::outputs: the rows of `outputs` at these positions.
std::vector<float> rows_of(const std::vector<float>& outputs,
                           const std::vector<std::size_t>& positions, std::size_t width);

/// Evaluates the replica's current weights. Every rank calls it and gets the whole result. Adds up
/// the samples in double, in data set order, so the sums do not depend on the devices.
EvalResult evaluate_split(Replica& replica, const Job& job, const Split& split,
                          const std::string& name, const EvaluationProgress& progress = {});

/// Does the same, but returns nothing, on all ranks, if `wants_stop` returns true on any rank.
std::optional<EvalResult> evaluate_split_unless(const StopQuestion& wants_stop, Replica& replica,
                                                const Job& job, const Split& split,
                                                const std::string& name,
                                                const EvaluationProgress& progress = {});

/// Evaluates the split with these weights on all ranks of the job, each on its device. Every
/// process gets the same result.
EvalResult evaluate_on_ranks(const Job& job, const Split& split, const std::string& name,
                             const std::vector<float>& params,
                             const EvaluationProgress& progress = {});

/// Returns the split of a job by name, as evaluations see it. Throws ErrorKind::usage if the name
/// is unknown, ErrorKind::data if the split is empty.
const Split& split_by_name(const Job& job, const std::string& name);

}  // namespace dpt
