// The self check: before the first step on a device, compares each operation of the plan with the
// reference (operation_check.h), unless it was checked before on this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/graph/plan.h"
#include "engine/self_check/check_cache.h"
#include "engine/self_check/operation_check.h"
#include "kernels/base/device_name.h"

namespace dpt {

struct Job;

/// An operation and its operation_text.
struct NamedOperation {
  std::string text;
  OpDesc desc;
};
/// Adds those operations of a training pass that `all` lacks.
void add_operations(const Plan& plan, std::int64_t batch, std::uint64_t seed,
                    std::vector<NamedOperation>& all);

/// Result of checking a device.
struct SelfCheckResult {
  std::int64_t operations = 0;  ///< distinct operations of the plan
  std::int64_t checked = 0;     ///< checked now; the others were checked before
  double seconds = 0;
  std::vector<OperationCheck> wrong;  ///< those with a problem
  std::string cache_problem;          ///< reason if the cache could not be written; else empty
};

/// Checks operations on the device of `backend`, which was made with `options`. `before_each` is
/// called before each and may throw to end the check. Throws ErrorKind::device for a device
/// failure.
SelfCheckResult check_operations(Backend& backend, const DeviceName& device,
                                 std::span<const NamedOperation> operations,
                                 const BackendOptions& options, SelfCheck when,
                                 const CheckCache& cache,
                                 const std::function<void()>& before_each = {});

/// Checks the operations of a job on a rank's device, as `train.self_check` says. Replicas on the
/// CPU have the same kernels, so only the first of each kind in this process checks them. Throws
/// ErrorKind::device, naming operation, implementation and values, if a kernel is wrong.
SelfCheckResult check_kernels(const Job& job, Backend& backend, int rank);

}  // namespace dpt
