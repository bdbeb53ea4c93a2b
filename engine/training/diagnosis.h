// Finds where a step became non-finite: in which layer, and for which samples. Runs the step's
// samples again one by one, layer by layer, from the weights before the step.
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
    no_sample,   ///< the loss is a mean over no sample: none of them counts in it
    not_found    ///< the search failed
  };
  Place place = Place::unknown;
  std::string layer;                  ///< layer of the place, if it has one
  std::string parameter;              ///< set for `gradient`, `statistics` and `weights`
  std::vector<std::int64_t> samples;  ///< data set indices of samples that fail when run alone
  std::vector<std::int64_t> batch;    ///< indices of all samples of the step
  std::string failure;                ///< reason for `not_found`

  /// Returns the diagnosis as sentences for the user.
  std::string text(const DataSource& source) const;
};

/// Returns the name of a place in the log, such as "output".
const char* name_of(Diagnosis::Place place);

/// Diagnoses a bad step. `params` and `optimizer` are the current ones of the replica; a refused
/// step has not changed them. Any rank may call it alone, because it allocates separate memory.
/// Never throws an Error: a failed diagnosis must not hide the divergence.
Diagnosis diagnose(Backend& backend, const Job& job, const BadStep& bad,
                   std::span<const float> params,
                   std::span<const std::pair<std::string, std::vector<float>>> optimizer);

}  // namespace dpt
