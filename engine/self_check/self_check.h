// The self check. Before the first step on a device, it compares each operation of the plan with
// the reference (operation_check.h), unless the operation was checked before on this machine.
// Replaces kernels that are wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/graph/plan.h"
#include "engine/self_check/operation_check.h"
#include "kernels/backend.h"

namespace dpt {

struct Job;

/// An operation and its operation_text.
struct NamedOperation {
  std::string text;
  OpDesc desc;
};
/// Adds the operations of a training pass that `all` lacks.
void add_operations(const Plan& plan, std::int64_t batch, std::uint64_t seed,
                    std::vector<NamedOperation>& all);

/// Returns the text of the error for wrong kernels of a device.
std::string wrong_kernels_text(const std::vector<OperationCheck>& wrong, bool on_cpu);

/// A kernel that was wrong on a device. No replica uses it any more.
struct ReplacedKernel {
  std::string kernel, device;
  std::string operation, problem;  ///< see OperationCheck
};

/// Result of checking a rank's device.
struct SelfCheckResult {
  std::int64_t operations = 0;  ///< distinct operations of the plan
  std::int64_t checked = 0;     ///< checked now by this rank
  double seconds = 0;
  std::string cache_problem;             ///< reason why the cache could not be written, or empty
  std::vector<ReplacedKernel> replaced;  ///< kernels replaced on any rank
};

/// Checks the operations of a job on the rank's device, as `train.self_check` requires. The
/// replicas of a process on the CPU share the work. In fast mode, if a kernel is wrong on one rank,
/// the backends of all ranks avoid it, and its replacement is checked, too. Throws
/// ErrorKind::device, naming operation, implementation and values, if a kernel is wrong in exact
/// mode or cannot be replaced. `note` receives one line for the user if the check takes longer than
/// a second. Collective.
SelfCheckResult check_kernels(const Job& job, Backend& backend, Communicator& communicator,
                              const std::function<void(const std::string&)>& note);

}  // namespace dpt
