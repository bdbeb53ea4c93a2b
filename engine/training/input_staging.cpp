#include "engine/training/input_staging.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace dpt {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kMetricsAt = kLine;
constexpr std::size_t kUpdateAt = 2 * kLine;
static_assert(sizeof(StepScalars) <= kLine && sizeof(StepMetrics) <= kLine);
static_assert(sizeof(UpdateStep) % kLine == 0);

/// The block's layout for a batch of `samples` and an update of `groups`: scalars, metrics, update
/// steps, ids, slots (all 8-byte aligned) one after the other, whatever room the block has. So a
/// step uploads no more than it uses, and equal batches find equal addresses; what an update reads
/// is at the same address for every batch.
struct Layout {
  Layout(std::size_t samples, std::size_t groups)
      : ids(kUpdateAt + groups * sizeof(UpdateStep)),
        slots(ids + samples * sizeof(std::int64_t)),
        bytes(slots + samples * sizeof(std::int32_t)) {}
  std::size_t ids, slots, bytes;
};

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
                                const DataSource& source, std::span<const UpdateStep> update) {
  Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
  const std::size_t samples = batch.slots.size();
  const Layout at(samples, update.size());
  if (block_.bytes() < at.bytes) {
    // The copies of steps in flight still go to the old one.
    backend_.synchronize();
    // Rounded up, so that a few samples more do not move everything.
    const std::size_t room = Layout((samples + 63) / 64 * 64, update.size()).bytes;
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
  staged.batch.ids = block_.ptr() + at.ids;
  staged.batch.slots = block_.ptr() + at.slots;
  if (samples > 0) {
    std::memcpy(host + at.ids, batch.ids.data(), batch.ids.size_bytes());
    auto* slots = reinterpret_cast<std::int32_t*>(host + at.slots);
    std::copy(batch.slots.begin(), batch.slots.end(), slots);
    const Resident& data = resident(source);
    if (data.pixels.ptr()) {
      staged.batch.raw = data.pixels.ptr();
      staged.batch.labels = data.labels.ptr();
      staged.batch.targets = data.targets.ptr();
    } else {
      stage_samples(slot, batch, source, staged);
      std::iota(slots, slots + samples, 0);
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
    // A CPU borrows the host's memory. On a GPU it takes no more than half of what is left, so
    // that other batch sizes and other programs have room.
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
  const std::size_t samples = batch.slots.size();
  const std::size_t sample_bytes =
      static_cast<std::size_t>(source.shape().elements()) * size_of(source.type());
  const std::size_t pixel_bytes = samples * sample_bytes;
  const std::size_t label_bytes = samples * sizeof(std::int32_t);
  const auto target_floats = static_cast<std::size_t>(source.targets().floats());
  const std::size_t row_bytes = target_floats * sizeof(float), target_bytes = samples * row_bytes;
  std::byte* pixels = grow(slot.pixels, slot.pixel_bytes, pixel_bytes, "a batch of samples");
  std::byte* labels = grow(slot.labels, slot.label_bytes, label_bytes, "a batch of labels");
  for (std::size_t k = 0; k < samples; ++k) {
    const auto from = static_cast<std::size_t>(batch.slots[k]);
    std::memcpy(pixels + k * sample_bytes, batch.pixels.data() + from * sample_bytes, sample_bytes);
    std::memcpy(labels + k * sizeof(std::int32_t), &batch.labels[from], sizeof(std::int32_t));
  }
  std::byte* targets = nullptr;
  if (target_bytes > 0) {
    targets = grow(slot.targets, slot.target_bytes, target_bytes, "a batch of targets");
    for (std::size_t k = 0; k < samples; ++k) {
      const auto from = static_cast<std::size_t>(batch.slots[k]);
      std::memcpy(targets + k * row_bytes, &batch.targets[from * target_floats], row_bytes);
    }
  }

  staged.buffer = next_buffer_;
  next_buffer_ = 1 - next_buffer_;
  Buffer& buffer = buffers_[static_cast<std::size_t>(staged.buffer)];
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
  const Buffer& buffer = buffers_[static_cast<std::size_t>(staged.buffer)];
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
