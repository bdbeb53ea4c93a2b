#include "engine/job/resume_checks.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Maximum numbers of compared steps. Comparing all steps of a long run would take too long.
constexpr std::int64_t kNextSteps = 4096, kSpreadSteps = 4096;

/// Returns the first compared step from `begin` on at which two schedules differ, or `end`.
/// Compares the next kNextSteps steps, and evenly spread ones of the rest. That suffices, because
/// schedules that diverge after a warm-up stay different.
std::int64_t first_difference(const LrSchedule& a, const LrSchedule& b, std::int64_t begin,
                              std::int64_t end) {
  const std::int64_t next = std::min(end, begin + kNextSteps);
  for (std::int64_t at = begin; at < next; ++at) {
    if (a(at) != b(at)) return at;
  }
  const std::int64_t stride = std::max<std::int64_t>(1, (end - next) / kSpreadSteps);
  for (std::int64_t at = next; at < end; at += stride) {
    if (a(at) != b(at)) return at;
  }
  return end;
}

/// Returns the kinds of devices that decide a replica's bits: "cuda", or "cpu" with its number of
/// threads.
std::set<std::string> kinds_of(const std::vector<std::string>& devices) {
  std::set<std::string> kinds;
  for (const std::string& name : devices) kinds.insert(name.starts_with("cuda") ? "cuda" : name);
  return kinds;
}

/// Parts of a made_by text that decide the bits of CPU replicas or of GPUs; empty if absent. Such a
/// text is "oneDNN 3.4.0, CUDA 12.4; avx512_core (AMD); 2 x cuda:0; H100 (9.0, ...), cuDNN 9.19.0".
/// Older texts lack the processor's vendor and the part after the devices.
struct Makers {
  std::string cpu_library, cuda, instruction_set, processor_maker, gpu;

  explicit Makers(const std::string& made_by) {
    const std::size_t comma = made_by.find(", "), first = made_by.find("; ");
    const std::size_t second = first == std::string::npos ? first : made_by.find("; ", first + 2);
    if (comma > first || second == std::string::npos) return;
    cpu_library = made_by.substr(0, comma);
    cuda = made_by.substr(comma + 2, first - comma - 2);
    instruction_set = made_by.substr(first + 2, second - first - 2);
    if (const std::size_t third = made_by.find("; ", second + 2); third != std::string::npos) {
      gpu = made_by.substr(third + 2);
    }
    if (const std::size_t open = instruction_set.find(" ("); open != std::string::npos) {
      processor_maker = instruction_set.substr(open);
      instruction_set.resize(open);
    }
  }
  std::string on_gpu(bool with_gpu) const {
    return with_gpu ? fmt::format("{} on {}", cuda, gpu) : cuda;
  }
  std::string on_cpu(bool with_maker) const {
    return fmt::format("{} on {}{}", cpu_library, instruction_set,
                       with_maker ? processor_maker : std::string());
  }
};

}  // namespace

void check_fits(const std::string& path, const RunState& state, const Job& job) {
  const std::int64_t samples = job.data.splits.train.size();
  const std::int64_t batch = job.spec.data.batch_size;
  const auto refuse = [&](const char* key, const std::string& expected, std::int64_t found) {
    fail(ErrorKind::data, "{}: metadata 'dpt.{}': expected {}, found {}", path, key, expected,
         found);
  };
  if (state.position < 0 || state.position > samples) {
    refuse("position", fmt::format("0 to {}, the number of training samples", samples),
           state.position);
  }
  if (state.position % batch != 0 && state.position != samples) {
    refuse("position", fmt::format("a multiple of data.batch_size ({}), or {}", batch, samples),
           state.position);
  }
  // The number of steps is only an upper bound, because steps without an update may be left out.
  const std::int64_t most =
      state.epoch * job.data.steps_per_epoch + ceil_div(state.position, batch);
  if (state.step < 0 || state.step > most) {
    refuse(
        "step",
        fmt::format("0 to {} ({} of {}, and {} of the next)", most, counted(state.epoch, "epoch"),
                    counted(job.data.steps_per_epoch, "step"), counted(state.position, "sample")),
        state.step);
  }
}

std::string continue_schedule(Job& job, const TrainSpec& before, const RunState& state) {
  const std::int64_t now = job.spec.train.epochs, then = before.train.epochs;
  const auto schedule_of = [&](const TrainSpec& spec, const ScheduleSegments& segments) {
    return make_lr_schedule(spec, job.update.optimizer.lr, job.data.steps_per_epoch, segments);
  };
  ScheduleSegments segments = state.schedule_segments;
  const auto& choice = job.spec.train.on_more_epochs;
  const bool chosen = now > then && choice;
  if (now > then && !choice) {
    const LrSchedule old = schedule_of(before, segments), fitted = schedule_of(job.spec, segments);
    const std::int64_t at = first_difference(old, fitted, state.step, job.update.total_steps);
    if (at < job.update.total_steps) {
      fail(ErrorKind::usage,
           "train.epochs was {} and is {}, and the schedule {} spans all of the run's epochs: with "
           "{} epochs, the learning rate of step {} is {:.6g}, where the run so far would have "
           "used {:.6g}. Choose one: train.on_more_epochs=stretch (the schedule is fitted to all "
           "epochs), hold (the learning rate of its last step, {:.6g}, is kept) or restart (after "
           "epoch {} it begins again and spans the new epochs)",
           then, now, job.spec.lr_schedule.type, now, at + 1, fitted(at), old(at),
           old(then * job.data.steps_per_epoch - 1), then);
    }
  }
  if (chosen) {
    if (segments.empty()) segments = {0, 0};
    if (*choice == MoreEpochs::stretch) {
      segments.back() = 0;
    } else if (segments.back() == 0) {
      segments.back() = then - segments[segments.size() - 2];
    }
    if (*choice == MoreEpochs::restart) segments.insert(segments.end(), {then, 0});
    if (segments == ScheduleSegments{0, 0}) segments.clear();
  }
  job.update.schedule = schedule_of(job.spec, segments);
  job.update.schedule_segments = segments;
  if (!chosen || state.step >= job.update.total_steps) return {};
  return fmt::format(
      "train.epochs was {} and is now {} (train.on_more_epochs: {}): the learning rate of step {} "
      "is {:.6g}, that of step {} is {:.6g}",
      then, now, name_of(*choice), state.step + 1, job.update.schedule(state.step),
      job.update.total_steps, job.update.schedule(job.update.total_steps - 1));
}

std::string learning_rate_change(const Job& job, const TrainSpec& before, const RunState& state) {
  if (job.spec.train.epochs > before.train.epochs) return {};
  const std::int64_t step = state.step;
  const LrSchedule old = make_lr_schedule(before, job.update.optimizer.lr, job.data.steps_per_epoch,
                                          state.schedule_segments);
  const std::int64_t old_total = before.train.epochs * job.data.steps_per_epoch;
  // If the run was complete, compare the last learning rate of its schedule.
  const std::int64_t last = std::max(std::min(old_total, job.update.total_steps), step + 1);
  const std::int64_t at = first_difference(old, job.update.schedule, step, last);
  if (at >= last || step >= job.update.total_steps) return {};
  return fmt::format(
      "the learning rate of step {} is {:.6g}, where the run so far would have used {:.6g}: "
      "train.epochs was {} and is now {}, and the schedule {} spans all of the run's steps. A run "
      "that is to follow one curve needs its final train.epochs from the start",
      at + 1, job.update.schedule(at), old(at), before.train.epochs, job.spec.train.epochs,
      job.spec.lr_schedule.type);
}

void check_kinds_of_gpus(const Job& job) {
  if (job.spec.train.shards == 0) return;
  const DeviceName* first = nullptr;
  for (const DeviceName& device : job.placement.own_devices()) {
    if (device.kind != DeviceName::Kind::cuda) continue;
    if (!first) first = &device;
    if (kind_of(device) == kind_of(*first)) continue;
    fail(ErrorKind::usage,
         "devices: exact mode (train.shards: {}) needs GPUs of one kind, because different kinds "
         "compute different bits: found {}: {}; and {}: {}. Choose GPUs of one kind with "
         "--devices, or fast mode with train.shards=auto",
         job.spec.train.shards, first->text(), kind_of(*first), device.text(), kind_of(device));
  }
}

std::string inexact_devices(const Job& job, const std::vector<std::string>& before) {
  if (job.spec.train.shards == 0) return {};
  const std::set<std::string> now = kinds_of(job.placement.device_names()), then = kinds_of(before);
  if (now.size() > 1) {
    return fmt::format(
        "exact mode: replicas of {} compute different bits, so the weights depend on the number of "
        "replicas and on device_weights. Give all the same number of threads for equal bits",
        fmt::join(now, " and "));
  }
  if (before.empty() || now == then) return {};
  return fmt::format(
      "exact mode: the run was trained on {} and continues on {}, which computes different bits",
      fmt::join(then, " and "), fmt::join(now, " and "));
}

std::string inexact_makers(const Job& job, const std::string& before, const std::string& now) {
  const Makers old(before), present(now);
  if (job.spec.train.shards == 0 || old.cpu_library.empty()) return {};
  const bool is_cuda = job.placement.devices.front().kind == DeviceName::Kind::cuda;
  const bool with_maker = !old.processor_maker.empty();
  const bool with_gpu = !old.gpu.empty();
  const std::string was = is_cuda ? old.on_gpu(with_gpu) : old.on_cpu(with_maker);
  const std::string is = is_cuda ? present.on_gpu(with_gpu) : present.on_cpu(with_maker);
  if (was == is) return {};
  return fmt::format(
      "exact mode: the run was trained with {} and continues with {}, which may compute different "
      "bits",
      was, is);
}

}  // namespace dpt
