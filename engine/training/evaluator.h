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
  /// For each metric that has parts for classes: its name, and these.
  std::vector<std::pair<std::string, NamedValues>> by_class;
  /// Name and number of classes for each metric that left out classes.
  std::vector<std::pair<std::string, std::int64_t>> left_out;
  SampleResults samples;  ///< in the order of the split
};

/// Returns Measured::hot for the samples at these positions of the split, `values` each.
std::vector<std::uint8_t> hot_targets(const Split& split,
                                      const std::vector<std::size_t>& positions);

/// Returns Measured::outputs: the rows of `outputs` at these positions.
std::vector<float> rows_of(const std::vector<float>& outputs,
                           const std::vector<std::size_t>& positions, std::size_t width);

/// Evaluates the replica's present weights; every rank calls it and gets the whole result. The sums
/// are taken in double over samples in data set order, so they do not depend on the devices.
EvalResult evaluate_split(Replica& replica, const Job& job, const Split& split,
                          const std::string& name, const EvaluationProgress& progress = {});

/// The same, unless `wants_stop` says on any rank that it is to end before: then nothing, on all.
std::optional<EvalResult> evaluate_split_unless(const StopQuestion& wants_stop, Replica& replica,
                                                const Job& job, const Split& split,
                                                const std::string& name,
                                                const EvaluationProgress& progress = {});

/// The split with these weights, by all ranks of the job, each on its device; the same on each of
/// its processes.
EvalResult evaluate_on_ranks(const Job& job, const Split& split, const std::string& name,
                             const std::vector<float>& params,
                             const EvaluationProgress& progress = {});

/// The split of a job by name, as evaluations see it. Throws ErrorKind::usage when it is
/// unknown, ErrorKind::data when it is empty.
const Split& split_by_name(const Job& job, const std::string& name);

}  // namespace dpt
