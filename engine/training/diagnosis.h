// Finds where a step stopped being finite: in which layer, and for which samples. Its samples are
// run again one by one, layer by layer, from the weights that the step had.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/training/stepper.h"

namespace dpt {

struct Diagnosis {
  /// Place of the first non-finite value.
  enum class Place : std::uint8_t {
    unknown,     ///< no single sample shows it: it arises in the sum over the batch
    input,       ///< sample after the input kernel
    output,      ///< output of a layer, forward
    loss,        ///< loss of a sample, although its logits are finite
    gradient,    ///< gradient of a parameter, backward
    statistics,  ///< a running statistic, after the update that was refused
    weights,     ///< weights after the update; the samples cannot be rerun with the old ones
    no_sample,   ///< mean over no sample: none of them counts in the loss
    not_found    ///< the search failed
  };
  Place place = Place::unknown;
  std::string layer;                  ///< layer of the place, if it has one
  std::string parameter;              ///< set for `gradient`, `statistics` and `weights`
  std::vector<std::int64_t> samples;  ///< indices in the data set: those that show it alone
  std::vector<std::int64_t> batch;    ///< and all of the step
  std::string failure;                ///< reason for `not_found`

  /// Sentences for a person.
  std::string text(const DataSource& source) const;
};

/// The name of a place in the log: "output".
const char* name_of(Diagnosis::Place place);

/// `params` and `optimizer` are the replica's current ones, which a refused step has not changed.
/// Any rank may call it alone: it allocates its own memory. Never throws an Error: a failed
/// diagnosis must not hide the divergence.
Diagnosis diagnose(Backend& backend, const Job& job, const BadStep& bad,
                   std::span<const float> params,
                   std::span<const std::pair<std::string, std::vector<float>>> optimizer);

}  // namespace dpt
