// Runs with a non-finite step, caused by a sample with a NaN or an infinity, or by too large a
// learning rate.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "tests/engine/training/run.h"

namespace dpt::testing {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A source of floats in which one sample has one bad value.
class Poisoned : public Unresident {
 public:
  Poisoned(std::shared_ptr<const DataSource> source, std::int64_t sample, float value)
      : Unresident(source), source_(std::move(source)), sample_(sample), value_(value) {}
  DType type() const override { return DType::f32; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    std::vector<std::byte> raw(pixels.size() / sizeof(float));
    source_->read(index, raw, label);
    std::vector<float> values(raw.size());
    for (std::size_t i = 0; i < raw.size(); ++i) {
      values[i] = static_cast<float>(std::to_integer<int>(raw[i])) / 255.0F;
    }
    if (index == sample_) values[values.size() / 2] = value_;
    std::copy_n(std::as_bytes(std::span(values)).begin(), pixels.size(), pixels.begin());
  }

 private:
  std::shared_ptr<const DataSource> source_;
  std::int64_t sample_;
  float value_;
};

/// An optimizer whose steps multiply the weights by about -100, so that they overflow within ten
/// steps.
inline constexpr const char* kExploding = "{type: SGD, lr: 100, momentum: 0.5, weight_decay: 1}";

/// Returns a job in which the sample at `position` in the order of the first epoch has the bad
/// value.
inline Job poisoned_job(const std::string& config, std::vector<std::string> overrides,
                        std::int64_t position, float value, std::int64_t* sample = nullptr) {
  Job job = small_job(config, std::move(overrides));
  const auto order = epoch_order(job.data.splits.train.size(), 7, 0, job.spec.data.shuffle);
  const std::int64_t id = job.data.splits.train.indices[order[position]];
  const auto source = std::make_shared<Poisoned>(job.data.splits.train.source, id, value);
  job.data.splits.train.source = source;
  job.data.splits.val.source = source;
  job.data.splits.test = {};
  job.data.train_input.raw_type = job.data.eval_input.raw_type = DType::f32;
  // The value stays in the image despite augmentation.
  job.data.train_input.crop_padding = 0;
  if (sample) *sample = id;
  return job;
}

inline StartingPoint checkpoint_of(const Job& job, const TempDir& folder, std::int64_t step) {
  return start_from_checkpoint(job, folder.file("checkpoints/" + checkpoint_name(step)));
}

/// Returns the error with which the run ends; empty if it succeeds.
inline std::string diverged(const Job& job, const TempDir& folder,
                            const StartingPoint* start = nullptr) {
  try {
    train_small(job, folder.path(), start);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::diverged);
    return error.what();
  }
  return {};
}

inline void all_checkpoints_are_finite(const Job& job, const TempDir& folder) {
  for (const std::string& path : list_checkpoints(folder.file("checkpoints"))) {
    CAPTURE(path);
    const StartingPoint point = start_from_checkpoint(job, path);
    const auto finite = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    };
    CHECK(finite(point.params));
    for (const auto& [name, values] : point.optimizer) CHECK(finite(values));
  }
}

}  // namespace dpt::testing
