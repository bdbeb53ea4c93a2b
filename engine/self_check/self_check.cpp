#include "engine/self_check/self_check.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "engine/collectives/gather_texts.h"
#include "engine/graph/operations.h"
#include "engine/job/job.h"
#include "engine/replica/work_partition.h"
#include "engine/self_check/check_cache.h"
#include "engine/self_check/operation_check.h"
#include "engine/self_check/operation_text.h"
#include "engine/self_check/step_check.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/json_text.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/text.h"
#include "kernels/base/user_cache.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Returns everything that decides which kernels run for an operation, and what they compute: this
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
    // One GPU may be defective even if others of its kind are not.
    const CudaInfo& cuda = cuda_info();
    return text + fmt::format(", GPU {}, driver {}, {}",
                              cuda.devices.at(static_cast<std::size_t>(device.index)).uuid,
                              cuda.driver, cuda_arithmetic());
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

/// Returns the ranks that are checked together with `rank`. For a CPU, these are all ranks of this
/// process on equal devices, because they have the same kernels; for a GPU, only `rank` itself.
std::vector<int> group_of(const Placement& placement, int rank) {
  const auto device_of = [&](std::int64_t each) -> const DeviceName& {
    return placement.devices[static_cast<std::size_t>(each)];
  };
  if (device_of(rank).kind != DeviceName::Kind::cpu) return {rank};
  std::vector<int> group;
  for (auto each = placement.own_ranks.begin; each < placement.own_ranks.end; ++each) {
    if (device_of(each) == device_of(rank)) group.push_back(static_cast<int>(each));
  }
  return group;
}

/// Returns a rank's share of the operations that its group checks.
std::vector<NamedOperation> share_of(std::vector<NamedOperation> operations,
                                     const std::vector<int>& group, int rank) {
  const auto own = std::find(group.begin(), group.end(), rank) - group.begin();
  std::vector<NamedOperation> share;
  for (auto k = static_cast<std::size_t>(own); k < operations.size(); k += group.size()) {
    share.push_back(std::move(operations[k]));
  }
  return share;
}

/// Returns the number of cores that may help a rank with its check: its share of those that no
/// replica uses, up to a limit for the memory that the checks take. A GPU is not checked faster.
std::size_t idle_cores(const Placement& placement, int rank) {
  constexpr int kMost = 7;
  if (placement.devices[static_cast<std::size_t>(rank)].kind != DeviceName::Kind::cpu) return 0;
  int used = 0;
  for (const DeviceName& each : placement.devices) used += std::max(1, each.threads);
  const int idle = cpu_info().logical_allowed - used;
  return static_cast<std::size_t>(std::clamp(idle / used, 0, kMost));
}

/// Check of the operations of a job on the device of a rank.
class RankCheck {
 public:
  /// `note` receives a line for the user if the check takes long.
  RankCheck(const Job& job, Backend& backend, int rank,
            const std::function<void(const std::string&)>& note)
      : job_(job),
        backend_(backend),
        device_(job.placement.devices[static_cast<std::size_t>(rank)]),
        options_(job.placement.backend_options),
        when_(job.spec.train.self_check),
        cache_(user_cache_path("checked-kernels.json")),
        note_(note) {
    std::vector<NamedOperation> all;
    const std::vector<int> group = group_of(job.placement, rank);
    std::set<std::int64_t> batches;
    for (const int each : group) batches.insert(usual_batch(job, each));
    for (const std::int64_t batch : batches) {
      add_operations(job.model.plan, batch, job.data.train_input.seed, all);
    }
    count_ = static_cast<std::int64_t>(all.size());
    operations_ = share_of(std::move(all), group, rank);
    helpers_ = idle_cores(job.placement, rank);
  }

  const DeviceName& device() const { return device_; }

  /// Checks the operations, and returns those with a problem. If `uses_cache`, skips operations
  /// that the cache lists, and adds to it those that pass. This is only for a backend that uses the
  /// kernels it prefers. Throws if a stop is requested or the device fails.
  std::vector<OperationCheck> run(SelfCheckResult& result, bool uses_cache) {
    const std::string machine = uses_cache ? machine_of(device_, options_) : std::string();
    std::set<std::string> known, passed;
    if (uses_cache && when_ == SelfCheck::automatic) known = cache_.checked(machine);
    std::vector<OperationCheck> wrong;
    const auto keep = [&] {
      const std::string problem = passed.empty() ? "" : cache_.add(machine, passed);
      beat("checking kernels");  // The cache set another text, but other ranks may still be
                                 // checking.
      return problem;
    };
    result.operations = count_;
    std::vector<Unknown> unknown;
    for (const auto& [text, desc] : operations_) {
      check_stop();
      beat("checking kernels");
      std::string key = uses_cache ? key_of(text, desc) : text;
      if (!known.contains(key)) unknown.emplace_back(std::move(key), &desc);
    }
    std::vector<std::optional<OperationCheck>> checks(unknown.size());
    const auto keep_passed = [&] {
      for (std::size_t k = 0; k < unknown.size(); ++k) {
        if (checks[k] && checks[k]->problem.empty()) passed.insert(unknown[k].first);
      }
      return keep();
    };
    try {
      check_all(unknown, checks);
      for (std::size_t k = 0; k < unknown.size(); ++k) {
        if (!checks[k]->problem.empty())
          wrong.push_back(checked_again(*checks[k], *unknown[k].second));
      }
      if (uses_cache && backend_.info().queues) {
        for (OperationCheck& each : check_step_kernels(job_, backend_)) {
          wrong.push_back(std::move(each));
        }
      }
    } catch (...) {
      if (uses_cache) keep_passed();
      throw;
    }
    result.checked = static_cast<std::int64_t>(unknown.size());
    if (uses_cache) result.cache_problem = keep_passed();
    return wrong;
  }

  /// Lets all later checks use other kernels than these.
  void avoid(const std::set<std::string>& kernels) {
    backend_.avoid(kernels);
    avoided_ = kernels;
  }

 private:
  /// Name in the cache and description of an operation.
  using Unknown = std::pair<std::string, const OpDesc*>;

  /// Checks the operations, on this thread and on one for each helper. If a check throws, the
  /// others end, and the checks that are missing stay empty.
  void check_all(const std::vector<Unknown>& operations,
                 std::vector<std::optional<OperationCheck>>& checks) {
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&](Backend& backend) {
      try {
        for (std::size_t k = next++; k < operations.size(); k = next++) {
          check_stop();
          beat("checking kernels");
          if (&backend == &backend_) note_long_check(operations.size());
          checks[k] = check_operation(backend, *operations[k].second, options_.exact);
        }
      } catch (...) {
        next = operations.size();
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    };
    const auto help = [&] {
      std::unique_ptr<Backend> backend;
      try {
        backend = make_backend(device_, options_);
      } catch (const Error&) {
        return;  // Memory or threads are short. The other threads do the work.
      }
      backend->avoid(avoided_);
      work(*backend);
    };
    std::vector<std::thread> threads;
    try {
      while (threads.size() < helpers_ && threads.size() + 1 < operations.size()) {
        threads.push_back(start_thread("self check", help));
      }
    } catch (const Error&) {
      // Threads are short: those that have started suffice.
    }
    work(backend_);
    for (std::thread& each : threads) each.join();
    if (failure) std::rethrow_exception(failure);
  }

  /// Repeats a check that found a problem, and adds to the problem what the second check finds.
  OperationCheck checked_again(OperationCheck check, const OpDesc& desc) {
    const std::string again = check_operation(backend_, desc, options_.exact).problem;
    check.problem += again.empty()            ? " (not in a second check)"
                     : again == check.problem ? " (the same in a second check)"
                                              : fmt::format(" (a second check finds: {})", again);
    // A device that is wrong only now and then would be wrong with other kernels, too.
    if (again.empty()) check.replaceable_kernel.clear();
    return check;
  }

  /// Informs the user, once, if the check has taken more than a second.
  void note_long_check(std::size_t count) {
    if (has_noted_ || std::chrono::steady_clock::now() - begun_ < std::chrono::seconds(1)) return;
    has_noted_ = true;
    note_(fmt::format("checking the kernels of {} on {}: this takes some seconds{}",
                      counted(count, "operation"), device_.text(),
                      when_ == SelfCheck::automatic ? "; later runs skip those that pass" : ""));
  }

  /// Returns the name of an operation in the cache. On a GPU, it contains the implementation,
  /// because timing, free memory and the cache of plans may choose other kernels in another run.
  std::string key_of(const std::string& text, const OpDesc& desc) const {
    if (!backend_.info().queues) return text;
    return fmt::format("{} ({})", text, backend_.make(desc)->implementation());
  }

  const Job& job_;
  Backend& backend_;
  std::size_t helpers_;            ///< threads that help, each with a backend of its own
  std::set<std::string> avoided_;  ///< kernels that the backends avoid
  DeviceName device_;
  const BackendOptions& options_;
  SelfCheck when_;
  CheckCache cache_;
  const std::function<void(const std::string&)>& note_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool has_noted_ = false;
  std::int64_t count_ = 0;                  ///< operations of the plan
  std::vector<NamedOperation> operations_;  ///< operations that this rank checks
};

/// Returns the wrong kernels of all ranks. Collective.
std::vector<ReplacedKernel> gather_wrong(Communicator& communicator, const std::string& device,
                                         const std::vector<OperationCheck>& wrong) {
  nlohmann::json mine = nlohmann::json::array();
  for (const OperationCheck& each : wrong) {
    mine.push_back({each.replaceable_kernel, device, each.operation, each.problem});
  }
  std::vector<ReplacedKernel> all;
  for (const std::string& text :
       gather_texts(communicator, mine.empty() ? std::string() : json_text(mine))) {
    if (text.empty()) continue;
    for (const nlohmann::json& each : nlohmann::json::parse(text)) {
      all.push_back({each.at(0), each.at(1), each.at(2), each.at(3)});
    }
  }
  return all;
}

}  // namespace

std::string wrong_kernels_text(const std::vector<OperationCheck>& wrong, bool on_cpu) {
  constexpr std::size_t kMaxLines = 8;
  std::string text = "the self check found kernels that compute wrong values here:\n";
  for (std::size_t i = 0; i < std::min(wrong.size(), kMaxLines); ++i) {
    text += fmt::format("  {} ({}): {}\n", wrong[i].operation, wrong[i].implementation,
                        wrong[i].problem);
  }
  if (wrong.size() > kMaxLines) text += fmt::format("  and {} more\n", wrong.size() - kMaxLines);
  text += "nothing was trained. ";
  const bool only_bf16 = std::all_of(wrong.begin(), wrong.end(), [](const OperationCheck& each) {
    return each.operation.ends_with(std::string(", ") + name_of(DType::bf16));
  });
  if (on_cpu && only_bf16) {
    text += "`train.precision=fp32` trains without these kernels, which compute in bf16. ";
  }
  return text +
         "If a second check gives the same values, this is probably a bug in dpt or in a library: "
         "please report these lines. If not, the device is probably defective or unstable: test it "
         "with `dpt devices --check --seconds 600`. `train.self_check=never` trains with these "
         "kernels, and so perhaps with wrong values";
}

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

SelfCheckResult check_kernels(const Job& job, Backend& backend, Communicator& communicator,
                              const std::function<void(const std::string&)>& note) {
  SelfCheckResult result;
  if (job.spec.train.self_check == SelfCheck::never) return result;
  const auto begun = std::chrono::steady_clock::now();
  const bool exact = job.placement.backend_options.exact;
  RankCheck check(job, backend, communicator.rank(), note);
  std::set<std::string> avoided;
  for (;;) {
    const std::vector<OperationCheck> wrong = check.run(result, avoided.empty());
    const bool is_final = std::any_of(wrong.begin(), wrong.end(), [&](const auto& each) {
      return exact || each.replaceable_kernel.empty() || avoided.contains(each.replaceable_kernel);
    });
    if (is_final) {
      const bool on_cpu = check.device().kind == DeviceName::Kind::cpu;
      throw Error(ErrorKind::device, wrong_kernels_text(wrong, on_cpu));
    }
    if (exact) break;
    const std::vector<ReplacedKernel> found =
        gather_wrong(communicator, check.device().text(), wrong);
    if (found.empty()) break;
    for (const ReplacedKernel& each : found) avoided.insert(each.kernel);
    result.replaced.insert(result.replaced.end(), found.begin(), found.end());
    check.avoid(avoided);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return result;
}

}  // namespace dpt
