#include "engine/replica/input_staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/data/mixing.h"

namespace dpt {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kMetricsAt = kLine;
constexpr std::size_t kUpdateAt = kMetricsAt + sizeof(StepMetrics);
static_assert(sizeof(StepScalars) <= kLine && sizeof(StepMetrics) % kLine == 0);
static_assert(sizeof(UpdateStep) % kLine == 0);

/// Layout of the block that a step uploads for `samples` samples and `groups` parameter groups. The
/// order is: scalars, metrics, update steps, ids, slots, erased boxes. A mixed batch also has its
/// mixture, target slots, labels and targets. Offsets depend on the batch, not on the size of the
/// block, so a step uploads no more than it uses, and equal batches have equal addresses. The
/// inputs of the update have the same address for every batch.
struct Layout {
  /// `mixed` describes the targets of mixed samples; null if samples are not mixed. In a mixed
  /// batch, the partner of the first sample comes before it, and needs no target.
  Layout(std::size_t samples, std::size_t groups, bool erases, const TargetShape* mixed)
      : ids(kUpdateAt + groups * sizeof(UpdateStep)) {
    const std::size_t all = samples + (mixed ? 1 : 0), mixtures = mixed ? samples : 0;
    slots = ids + all * sizeof(std::int64_t);
    boxes = slots + all * sizeof(std::int32_t);
    mix = boxes + (erases ? all * sizeof(InputBox) : 0);
    target_slots = mix + (mixed ? sizeof(InputMix) : 0);
    labels = target_slots + mixtures * sizeof(std::int32_t);
    rows = labels + mixtures * sizeof(std::int32_t);
    const auto floats = static_cast<std::size_t>(mixed ? mixed->values : 0);
    bytes = rows + mixtures * floats * sizeof(float);
  }
  std::size_t ids, slots, boxes, mix, target_slots, labels, rows, bytes;
};

/// Returns the targets of the sample in a slot.
SampleTargets targets_in(const HostBatch& batch, const TargetShape& shape, std::int32_t slot) {
  const auto at = static_cast<std::size_t>(slot);
  const auto floats = static_cast<std::size_t>(shape.floats());
  return {batch.labels[at], floats > 0 ? batch.targets.data() + at * floats : nullptr};
}

/// Writes the mixture of the batch and its mixed targets to the host's side of the block.
void write_mixture(const HostBatch& batch, const TargetShape& of_data, const TargetShape& mixed,
                   const Layout& at, std::byte* host) {
  std::memcpy(host + at.mix, &batch.mix->input, sizeof(InputMix));
  auto* target_slots = reinterpret_cast<std::int32_t*>(host + at.target_slots);
  auto* labels = reinterpret_cast<std::int32_t*>(host + at.labels);
  auto* rows = reinterpret_cast<float*>(host + at.rows);
  SampleTargets before = targets_in(batch, of_data, batch.partner_slot);
  for (std::size_t k = 0; k < batch.slots.size(); ++k) {
    const SampleTargets own = targets_in(batch, of_data, batch.slots[k]);
    target_slots[k] = static_cast<std::int32_t>(k);
    labels[k] = mix_targets(mixed, *batch.mix, own, before,
                            rows + k * static_cast<std::size_t>(mixed.values));
    before = own;
  }
}

}  // namespace

InputStaging::InputStaging(Backend& backend) : backend_(backend) {
  for (Buffer& buffer : buffers_) {
    buffer.filled = backend.make_event();
    buffer.free = backend.make_event();
  }
}

void InputStaging::grow(DeviceMemory& memory, std::size_t bytes, const char* what) {
  if (memory.bytes() >= bytes) return;
  memory = DeviceMemory();
  memory = backend_.allocate(bytes, what);
  ++moves_;
}

std::byte* InputStaging::grow(HostMemory& memory, std::size_t& have, std::size_t bytes,
                              const char* what) {
  if (have < bytes) {
    memory = backend_.allocate_host(bytes, what);
    have = bytes;
  }
  return memory.get();
}

StagedBatch InputStaging::stage(int slot_index, const StepScalars& scalars,
                                const StepMetrics& metrics, const HostBatch& batch,
                                const DataSource& source, std::span<const UpdateStep> update,
                                const InputDraws* draws) {
  Slot& slot = slots_[slot_index];
  const std::size_t samples = batch.slots.size();
  // The partner of the first sample comes before it.
  const std::size_t lead = batch.mix && samples > 0 ? 1 : 0;
  const TargetShape* mixed = batch.mix ? &draws->mixed_targets() : nullptr;
  const bool erases = draws && draws->erases();
  const Layout at(samples, update.size(), erases, mixed);
  if (block_.bytes() < at.bytes) {
    // Queued copies of earlier steps still write to the old block.
    backend_.synchronize();
    // Round up, so that a slightly larger batch does not move the block again.
    const std::size_t room = Layout((samples + 63) / 64 * 64, update.size(), erases, mixed).bytes;
    grow(block_, room, "batch indices");
    for (Slot& each : slots_) each.block = backend_.allocate_host(room, "batch indices");
  }
  std::byte* host = slot.block.get();
  std::memset(host, 0, kUpdateAt);
  std::memcpy(host, &scalars, sizeof(scalars));
  std::memcpy(host + kMetricsAt, &metrics, sizeof(metrics));
  std::copy(update.begin(), update.end(), reinterpret_cast<UpdateStep*>(host + kUpdateAt));

  StagedBatch staged;
  staged.metrics = block_.ptr() + kMetricsAt;
  staged.update = block_.ptr() + kUpdateAt;
  staged.batch.scalars = block_.ptr();
  staged.batch.ids = block_.ptr() + at.ids + lead * sizeof(std::int64_t);
  staged.batch.slots = block_.ptr() + at.slots + lead * sizeof(std::int32_t);
  if (samples > 0) {
    auto* ids = reinterpret_cast<std::int64_t*>(host + at.ids);
    auto* slots = reinterpret_cast<std::int32_t*>(host + at.slots);
    if (lead > 0) {
      ids[0] = batch.partner_id;
      slots[0] = batch.partner_slot;
    }
    std::copy(batch.ids.begin(), batch.ids.end(), ids + lead);
    std::copy(batch.slots.begin(), batch.slots.end(), slots + lead);
    if (erases) {
      auto* boxes = reinterpret_cast<InputBox*>(host + at.boxes);
      for (std::size_t k = 0; k < samples + lead; ++k) {
        boxes[k] = draws->erased(scalars.epoch, ids[k]);
      }
      staged.batch.boxes = block_.ptr() + at.boxes + lead * sizeof(InputBox);
    }
    const Resident& data = resident(source);
    if (data.pixels.ptr()) {
      staged.batch.raw = data.pixels.ptr();
      staged.batch.labels = data.labels.ptr();
      staged.batch.targets = data.targets.ptr();
    } else {
      stage_samples(slot, batch, source, staged);
      std::iota(slots + lead, slots + lead + samples, 0);
      if (lead > 0) slots[0] = static_cast<std::int32_t>(samples);
    }
    if (mixed) {
      write_mixture(batch, source.targets(), *mixed, at, host);
      staged.batch.mix = block_.ptr() + at.mix;
      staged.batch.target_slots = block_.ptr() + at.target_slots;
      staged.batch.labels = block_.ptr() + at.labels;
      staged.batch.targets = block_.ptr() + at.rows;
    }
  }
  backend_.upload(block_.ptr(), host, at.bytes);
  return staged;
}

const InputStaging::Resident& InputStaging::resident(const DataSource& source) {
  const auto known = std::find_if(resident_.begin(), resident_.end(),
                                  [&](const Resident& each) { return each.source == &source; });
  if (known != resident_.end()) return *known;
  Resident data{&source, {}, {}, {}};
  if (const auto samples = source.resident()) {
    const std::size_t bytes = samples->pixels.size_bytes() + samples->targets.size_bytes();
    // A CPU reads the host's memory in place. On a GPU, the data set takes no more than half of the
    // free memory, which leaves room for other batch sizes and other programs.
    if (!backend_.info().queues || bytes <= backend_.free_bytes() / 2) {
      data.pixels = backend_.make_resident(samples->pixels, "the data set");
      data.labels = backend_.make_resident(std::as_bytes(samples->labels), "the labels");
      if (!samples->targets.empty()) {
        data.targets = backend_.make_resident(std::as_bytes(samples->targets), "the targets");
      }
    }
  }
  resident_.push_back(std::move(data));
  return resident_.back();
}

void InputStaging::stage_samples(Slot& slot, const HostBatch& batch, const DataSource& source,
                                 StagedBatch& staged) {
  // The pixels and targets of the partner of the first sample come last.
  const std::size_t samples = batch.slots.size() + (batch.mix ? 1 : 0);
  const auto slot_of = [&](std::size_t k) {
    return static_cast<std::size_t>(k < batch.slots.size() ? batch.slots[k] : batch.partner_slot);
  };
  const std::size_t sample_bytes =
      static_cast<std::size_t>(source.shape().elements()) * size_of(source.type());
  const std::size_t pixel_bytes = samples * sample_bytes;
  const std::size_t label_bytes = samples * sizeof(std::int32_t);
  const auto target_floats = static_cast<std::size_t>(source.targets().floats());
  const std::size_t row_bytes = target_floats * sizeof(float), target_bytes = samples * row_bytes;
  std::byte* pixels = grow(slot.pixels, slot.pixel_bytes, pixel_bytes, "a batch of samples");
  std::byte* labels = grow(slot.labels, slot.label_bytes, label_bytes, "a batch of labels");
  for (std::size_t k = 0; k < samples; ++k) {
    const std::size_t from = slot_of(k);
    std::memcpy(pixels + k * sample_bytes, batch.pixels.data() + from * sample_bytes, sample_bytes);
    std::memcpy(labels + k * sizeof(std::int32_t), &batch.labels[from], sizeof(std::int32_t));
  }
  std::byte* targets = nullptr;
  if (target_bytes > 0) {
    targets = grow(slot.targets, slot.target_bytes, target_bytes, "a batch of targets");
    for (std::size_t k = 0; k < samples; ++k) {
      const std::size_t from = slot_of(k);
      std::memcpy(targets + k * row_bytes, &batch.targets[from * target_floats], row_bytes);
    }
  }

  staged.buffer = next_buffer_;
  next_buffer_ = 1 - next_buffer_;
  Buffer& buffer = buffers_[staged.buffer];
  if (buffer.pixels.bytes() < pixel_bytes || buffer.labels.bytes() < label_bytes ||
      buffer.targets.bytes() < target_bytes) {
    backend_.synchronize();
    grow(buffer.pixels, pixel_bytes, "a batch of samples");
    grow(buffer.labels, label_bytes, "a batch of labels");
    if (target_bytes > 0) grow(buffer.targets, target_bytes, "a batch of targets");
  }
  backend_.upload_overlapped(buffer.pixels.ptr(), pixels, pixel_bytes, *buffer.free,
                             *buffer.filled);
  backend_.upload_overlapped(buffer.labels.ptr(), labels, label_bytes, *buffer.free,
                             *buffer.filled);
  if (target_bytes > 0) {
    backend_.upload_overlapped(buffer.targets.ptr(), targets, target_bytes, *buffer.free,
                               *buffer.filled);
  }
  backend_.wait_for(*buffer.filled);
  staged.batch.raw = buffer.pixels.ptr();
  staged.batch.labels = buffer.labels.ptr();
  if (target_bytes > 0) staged.batch.targets = buffer.targets.ptr();
}

void InputStaging::release(const StagedBatch& staged) {
  const Buffer& buffer = buffers_[staged.buffer];
  if (staged.batch.raw && staged.batch.raw == buffer.pixels.ptr()) backend_.record(*buffer.free);
}

std::size_t InputStaging::memory_bytes() const {
  std::size_t bytes = block_.bytes();
  for (const Buffer& buffer : buffers_) {
    bytes += buffer.pixels.bytes() + buffer.labels.bytes() + buffer.targets.bytes();
  }
  for (const Resident& data : resident_) {
    bytes += data.pixels.bytes() + data.labels.bytes() + data.targets.bytes();
  }
  return bytes;
}

std::string InputStaging::placement() const {
  if (resident_.empty()) return "";
  return resident_.front().pixels.ptr() ? "resident" : "staged";
}

}  // namespace dpt
