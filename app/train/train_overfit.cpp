#include "app/train/train_overfit.h"

#include <fmt/ranges.h>

#include "app/train/train_options.h"
#include "app/train/train_start.h"
#include "engine/job/starting_point.h"
#include "engine/processes/stop.h"
#include "engine/run/progress.h"
#include "engine/training/overfit.h"
#include "kernels/base/text.h"

namespace dpt {

int run_overfit(const TrainOptions& options, const Job& whole, StartPhase& phase) {
  constexpr std::int64_t kSteps = 1000;
  const Job job = overfit_job(whole, options.overfit);
  Progress progress(!whole.placement.writes());
  TrainOptions fresh = options;
  fresh.resume = "never";
  TrainStart start;
  start.point = share_start(job, [&] { return load_start(fresh, job, "", progress).point; });
  progress.info(fmt::format(
      "trying to overfit {}, {}, on {} ({}); nothing is saved",
      options.overfit == 1 ? "1 batch" : fmt::format("{} batches", options.overfit),
      counted(job.data.splits.train.size(), "sample"), counted(job.placement.ranks(), "replica"),
      fmt::join(job.placement.device_names(), ", ")));
  phase.begin_changes();
  std::int64_t next_line = 1;
  const OverfitResult result = overfit(
      job, start.point, options.max_steps > 0 ? options.max_steps : kSteps, requested_stop,
      [&](const OverfitResult& round) {
        if (job.data.bad_samples) {
          for (const std::string& problem : job.data.bad_samples->take_new()) {
            progress.warn(fmt::format("left out: {}", problem));
          }
        }
        if (round.steps < next_line) return;
        next_line = 2 * round.steps;
        const std::string accuracy =
            round.accuracy ? fmt::format(", accuracy {:.4f}", *round.accuracy) : "";
        progress.info(fmt::format("step {}: loss {:.6g}{}", round.steps, round.loss, accuracy));
      });
  if (result.stop != StopReason::none) {
    progress.info(fmt::format("stopped at step {} ({})", result.steps, name_of(result.stop)));
    return exit_code_of(result.stop);
  }
  const std::string text = fmt::format(
      "the loss of the same {} was {:.6g} in the first step and is {:.6g} after {}{}{}",
      counted(job.data.splits.train.size(), "sample"), result.first_loss, result.loss,
      counted(result.steps, "step"),
      result.accuracy ? fmt::format(" (accuracy {:.4f})", *result.accuracy) : "",
      result.least > 0 ? fmt::format("; the lowest possible loss is {:.6g}", result.least) : "");
  if (!result.has_fallen()) {
    fail(ErrorKind::requirement, "--overfit {}: {}; expected at most {:.6g}. {}", options.overfit,
         text, result.target, overfit_advice(job, result));
  }
  progress.info(fmt::format("the model can learn: {}", text));
  return 0;
}

}  // namespace dpt
