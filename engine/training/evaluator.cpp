#include "engine/training/evaluator.h"

namespace dpt {

std::optional<EvalResult> evaluate_split_unless(const StopQuestion& wants_stop, Replica& replica,
                                                const Job& job, const Split& split,
                                                const std::string& name) {
  Loader::Options options = loader_options(job);
  options.shuffle = false;
  Loader loader(split, options);

  EvalResult result;
  result.split = name;
  result.n = split.size();
  result.samples = replica.evaluate(*split.source, split.indices, loader, wants_stop);
  if (result.samples.interrupted) return std::nullopt;
  double loss = 0;
  std::int64_t correct = 0;
  for (std::size_t i = 0; i < result.samples.loss.size(); ++i) {
    loss += static_cast<double>(result.samples.loss[i]);
    correct += result.samples.prediction[i] == result.samples.label[i] ? 1 : 0;
  }
  if (result.n > 0) {
    result.loss = loss / static_cast<double>(result.n);
    result.accuracy = static_cast<double>(correct) / static_cast<double>(result.n);
  }
  return result;
}

EvalResult evaluate_split(Replica& replica, const Job& job, const Split& split,
                          const std::string& name) {
  return *evaluate_split_unless({}, replica, job, split, name);
}

const Split& split_by_name(const Splits& splits, const std::string& name) {
  const Split* split = name == "train"  ? &splits.train
                       : name == "val"  ? &splits.val
                       : name == "test" ? &splits.test
                                        : nullptr;
  if (!split) {
    fail(ErrorKind::usage, "unknown split '{}': expected train, val or test", name);
  }
  if (split->size() == 0) {
    fail(ErrorKind::usage, "the {} split is empty: {}", name,
         name == "val" ? "data.val_split is 0; set it to the number of samples to hold out"
                       : "the data set has no such files");
  }
  return *split;
}

}  // namespace dpt
