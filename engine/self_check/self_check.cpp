#include "engine/self_check/self_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <set>

#include <fmt/format.h>

#include "engine/graph/operations.h"
#include "engine/job/job.h"
#include "engine/replica/work_partition.h"
#include "engine/self_check/operation_text.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/user_cache.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Returns everything that decides which kernels run for an operation and what they compute: this
/// build of the program, the device, its libraries and its driver.
std::string machine_of(const DeviceName& device, const BackendOptions& options) {
  struct stat program {};
  const bool found = stat("/proc/self/exe", &program) == 0;
  const std::string build =
      found ? fmt::format("{} bytes of {}", program.st_size, program.st_mtime) : std::string();
  std::string text = fmt::format("dpt {} ({}), {}, {}, {}", DPT_VERSION, build, backends_built_in(),
                                 kind_of(device),
                                 options.exact                ? "exact"
                                 : options.plan_cache.empty() ? "fast"
                                                              : "fast, timed");
  if (device.kind == DeviceName::Kind::cuda) {
    return text + fmt::format(", driver {}, {}", cuda_info().driver, cuda_arithmetic());
  }
  const CpuInfo cpu = cpu_info();
  return text + fmt::format(", {}, {}", cpu.model, cpu.instruction_set);
}

/// Returns the number of samples that a rank processes at once in most steps.
std::int64_t usual_batch(const Job& job, int rank) {
  const Placement& placement = job.placement;
  const std::vector<std::int64_t> sizes = micro_batch_sizes(partition_batch(
      job.spec.data.batch_size, placement.device_weights, rank, job.spec.train.shards,
      {placement.max_micro_batches[static_cast<std::size_t>(rank)], job.spec.train.accumulate}));
  return sizes.empty() ? 1 : sizes.back();
}

/// Returns true if an earlier replica of this process has the same kernels.
bool is_repeated(const Placement& placement, int rank) {
  const DeviceName& device = placement.devices[static_cast<std::size_t>(rank)];
  const auto first = placement.devices.begin() + placement.own_ranks.begin;
  const auto own = placement.devices.begin() + rank;
  return device.kind == DeviceName::Kind::cpu && std::find(first, own, device) != own;
}

/// Returns the text of the error about wrong kernels.
std::string wrong_kernels_text(const std::vector<OperationCheck>& wrong) {
  constexpr std::size_t kMaxLines = 8;
  std::string text = "the self check found kernels that compute wrong values here:\n";
  for (std::size_t i = 0; i < std::min(wrong.size(), kMaxLines); ++i) {
    text += fmt::format("  {} ({}): {}\n", wrong[i].operation, wrong[i].implementation,
                        wrong[i].problem);
  }
  if (wrong.size() > kMaxLines) text += fmt::format("  and {} more\n", wrong.size() - kMaxLines);
  return text +
         "nothing was trained. If a second check gives the same values, this is probably a bug in "
         "dpt or in a library: please report these lines. If not, the device is probably defective "
         "or unstable: test it with `dpt devices --check --seconds 600`. `train.self_check: never` "
         "trains anyway";
}

}  // namespace

void add_operations(const Plan& plan, std::int64_t batch, std::uint64_t seed,
                    std::vector<NamedOperation>& all) {
  for (const Node& node : plan.nodes) {
    if (node.is_view) continue;
    OpDesc desc = operation_of(plan, node, {batch, true, seed});
    std::string text = operation_text(desc);
    const bool is_known = std::any_of(
        all.begin(), all.end(), [&](const NamedOperation& each) { return each.text == text; });
    if (!is_known) all.push_back({std::move(text), std::move(desc)});
  }
}

SelfCheckResult check_operations(Backend& backend, const DeviceName& device,
                                 std::span<const NamedOperation> operations,
                                 const BackendOptions& options, SelfCheck when,
                                 const CheckCache& cache,
                                 const std::function<void()>& before_each) {
  SelfCheckResult result;
  if (when == SelfCheck::never) return result;
  const auto begun = std::chrono::steady_clock::now();
  const std::string machine = machine_of(device, options);
  std::set<std::string> known, checked;
  if (when == SelfCheck::automatic) known = cache.checked(machine);
  try {
    for (const auto& [text, desc] : operations) {
      ++result.operations;
      if (known.contains(text)) continue;
      if (before_each) before_each();
      OperationCheck check = check_operation(backend, desc, options.exact);
      ++result.checked;
      if (check.problem.empty()) {
        checked.insert(text);
        continue;
      }
      const bool same = check_operation(backend, desc, options.exact).bits == check.bits;
      check.problem += same ? " (the same in a second check)" : " (not in a second check)";
      result.wrong.push_back(std::move(check));
    }
  } catch (...) {
    // A stop, or a failure of the device: keep what is known.
    if (!checked.empty()) cache.add(machine, checked);
    throw;
  }
  if (!checked.empty()) result.cache_problem = cache.add(machine, checked);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return result;
}

SelfCheckResult check_kernels(const Job& job, Backend& backend, int rank) {
  if (job.spec.train.self_check == SelfCheck::never || is_repeated(job.placement, rank)) return {};
  std::vector<NamedOperation> operations;
  add_operations(job.model.plan, usual_batch(job, rank), job.data.train_input.seed, operations);
  SelfCheckResult result =
      check_operations(backend, job.placement.devices[static_cast<std::size_t>(rank)], operations,
                       job.placement.backend_options, job.spec.train.self_check,
                       CheckCache(user_cache_path("checked-kernels.json")), [] {
                         check_stop();
                         beat("checking kernels");
                       });
  if (!result.wrong.empty()) throw Error(ErrorKind::device, wrong_kernels_text(result.wrong));
  return result;
}

}  // namespace dpt
