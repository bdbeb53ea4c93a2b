#include "app/help/exit_codes.h"

namespace dpt {

const std::vector<ExitCode>& exit_codes() {
  static const std::vector<ExitCode> all = {
      {"0", "done", "done"},
      {"1", "unexpected failure", "unexpected failure"},
      {"2", "usage or config", "wrong usage or config"},
      {"3", "data or checkpoint",
       "data or checkpoint missing, corrupt or incompatible; results that cannot be written to "
       "standard output"},
      {"4", "device, memory or wrong kernels",
       "device missing, out of memory, kernels that compute wrong results on the device "
       "(`train.self_check`), or too few open files allowed for the connections between "
       "processes"},
      {"5", "training diverged",
       "training diverged: the loss, the gradient or the weights are not finite "
       "(`train.on_divergence` in the config selects another reaction)"},
      {"6", "another replica failed or stalled, or a GPU hangs",
       "another replica or process, or a GPU, was lost or made no progress for "
       "`train.stall_timeout`; if another process failed and could report why, all processes exit "
       "with its code"},
      {"7", "a condition of --require is not met",
       "a condition given with `--require` is not met, or `--overfit` did not reach its loss"},
      {"75",
       "stopped on request (SIGUSR1, SIGUSR2, SIGXCPU, --max-time); run the same command again to "
       "resume",
       "stopped on request (SIGUSR1, SIGUSR2, SIGXCPU, `--max-time`), checkpoint saved: run the "
       "same command again to resume"},
      {"129, 130, 143", "ended by SIGHUP, SIGINT, SIGTERM (checkpoint saved)",
       "ended by SIGHUP, SIGINT or SIGTERM; a checkpoint is saved first, even in the middle of an "
       "evaluation"},
      {"137", "a process of --nproc was killed",
       "signal 9 ended a process of `--nproc`, most often because memory ran out (another signal "
       "N: 128 + N): run the same command again to resume"},
  };
  return all;
}

}  // namespace dpt
