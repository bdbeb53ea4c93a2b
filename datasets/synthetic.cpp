// Synthetic images that can be learned: each class has a coarse random pattern, and a sample is the
// pattern of its class mixed with noise. Every byte is a pure function of (sample index, position),
// in integers, so it is the same on every machine.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"
#include "datasets/resident_source.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"

namespace dpt {
namespace {

constexpr std::uint64_t kSeed = 0;
/// Number of cells along each side of a pattern, which is stretched over the image.
constexpr std::int64_t kCells = 8;
/// First random streams of the test set and of the patterns, apart from those of training samples.
constexpr std::uint64_t kTestStream = std::uint64_t{1} << 40;
constexpr std::uint64_t kPatternStream = std::uint64_t{1} << 41;
/// Maximum size of a part whose samples are generated once and kept in memory.
constexpr std::int64_t kResidentBytes = std::int64_t{256} << 20;

struct SyntheticOptions {
  std::int64_t size = 1024;
  std::int64_t test_size = 256;
  std::int64_t classes = 0;
  double difficulty = 0.5;
};

class SyntheticSource final : public DataSource {
 public:
  SyntheticSource(const SyntheticOptions& options, std::int64_t size, std::uint64_t stream,
                  SampleShape shape)
      : size_(size),
        stream_(stream),
        shape_(shape),
        classes_(numbered_classes(options.classes)),
        noise_fraction_(std::lround(options.difficulty * 256)) {
    patterns_.resize(static_cast<std::size_t>(options.classes * kCells * kCells * shape.c));
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      patterns_[i] = static_cast<std::uint8_t>(
          philox::block(kSeed, philox::Use::synthesis, kPatternStream, i).v[0] >> 24);
    }
  }

  std::int64_t size() const override { return size_; }
  SampleShape shape() const override { return shape_; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }

  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    assert(0 <= index && index < size_);
    const auto classes = static_cast<std::int64_t>(classes_.size());
    label = static_cast<std::int32_t>(index % classes);
    const std::uint8_t* pattern = patterns_.data() + label * kCells * kCells * shape_.c;
    std::array<std::uint8_t, 16> noise;
    std::size_t at = 0;
    for (std::int64_t y = 0; y < shape_.h; ++y) {
      const std::int64_t row = y * kCells / shape_.h * kCells;
      for (std::int64_t x = 0; x < shape_.w; ++x) {
        const std::uint8_t* cell = pattern + (row + x * kCells / shape_.w) * shape_.c;
        for (std::int64_t c = 0; c < shape_.c; ++c, ++at) {
          if (at % noise.size() == 0) noise = noise_block(index, at / noise.size());
          const long mixed =
              cell[c] * (256 - noise_fraction_) + noise[at % noise.size()] * noise_fraction_;
          pixels[at] = static_cast<std::byte>(mixed / 256);
        }
      }
    }
  }

  std::string describe(std::int64_t index) const override {
    return fmt::format("synthetic {} sample {}", stream_ == 0 ? "training" : "test", index);
  }

  std::string fingerprint() const override {
    Fingerprint hash;
    hash.add(fmt::format("synthetic v1 {} {} {} {} {} {} {}", size_, stream_, shape_.h, shape_.w,
                         shape_.c, classes_.size(), noise_fraction_));
    return hash.text();
  }

 private:
  std::array<std::uint8_t, 16> noise_block(std::int64_t index, std::uint64_t number) const {
    const philox::Block bits = philox::block(kSeed, philox::Use::synthesis,
                                             stream_ + static_cast<std::uint64_t>(index), number);
    std::array<std::uint8_t, 16> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::uint8_t>(bits.v[i / 4] >> (8 * (i % 4)));
    }
    return bytes;
  }

  std::int64_t size_;
  std::uint64_t stream_;
  SampleShape shape_;
  std::vector<std::string> classes_;
  long noise_fraction_;  ///< in units of 1/256
  std::vector<std::uint8_t> patterns_;
};

std::shared_ptr<const DataSource> make(const SyntheticOptions& options, std::int64_t size,
                                       std::uint64_t stream, SampleShape shape) {
  if (size == 0) return nullptr;
  auto source = std::make_shared<SyntheticSource>(options, size, stream, shape);
  if (size > kResidentBytes / shape.elements()) return source;
  const auto sample_bytes = static_cast<std::size_t>(shape.elements());
  ResidentSource::Data data;
  data.shape = shape;
  data.classes = source->classes();
  data.files = {{stream == 0 ? "synthetic training data" : "synthetic test data", size}};
  data.labels.resize(static_cast<std::size_t>(size));
  data.pixels = allocate_pixels(data.labels.size() * sample_bytes, "synthetic data");
  for (std::size_t i = 0; i < data.labels.size(); ++i) {
    source->read(static_cast<std::int64_t>(i), {data.pixels.get() + i * sample_bytes, sample_bytes},
                 data.labels[i]);
  }
  return std::make_shared<ResidentSource>(std::move(data));
}

SyntheticOptions with_classes(SyntheticOptions options, const DataRequirements& requirements) {
  if (options.classes == 0) options.classes = requirements.classes;
  if (options.classes == 0) options.classes = 10;
  return options;
}

DataSets open_synthetic(const Variant& variant, const DataRequirements& requirements) {
  const SyntheticOptions options = with_classes(variant.as<SyntheticOptions>(), requirements);
  check_classes(variant.where.text() + ": synthetic", static_cast<std::size_t>(options.classes),
                requirements);
  return {make(options, options.size, 0, requirements.input),
          make(options, options.test_size, kTestStream, requirements.input)};
}

std::shared_ptr<const DataSource> open_synthetic_unlabelled(const Variant& variant, DataPart part,
                                                            const DataRequirements& requirements,
                                                            UnreadableSamples& /*unreadable*/) {
  const SyntheticOptions options = with_classes(variant.as<SyntheticOptions>(), requirements);
  return part == DataPart::train
             ? make(options, options.size, 0, requirements.input)
             : make(options, options.test_size, kTestStream, requirements.input);
}

}  // namespace

DatasetKind synthetic_dataset() {
  static const ObjectTable table = object_table<SyntheticOptions>(
      "synthetic",
      "Synthetic images of the model's input shape that a model can learn; for tests and "
      "benchmarks.",
      {field("size", &SyntheticOptions::size, "Number of training samples.").range(1, 2147483647),
       field("test_size", &SyntheticOptions::test_size, "Number of test samples; 0: no test set.")
           .range(0, 2147483647),
       field("classes", &SyntheticOptions::classes,
             "Number of classes; 0: as many as the last layer has outputs.")
           .range(0, 65536),
       field("difficulty", &SyntheticOptions::difficulty,
             "Fraction of noise, from 0 (patterns without noise) to 1 (only noise, which cannot be "
             "learnt).")
           .range(0, 1)});
  DatasetKind kind = {&table, open_synthetic, open_synthetic_unlabelled};
  kind.outputs = [](const Variant& variant) {
    const std::int64_t classes = variant.as<SyntheticOptions>().classes;
    return classes > 0 ? std::optional(classes) : std::nullopt;
  };
  return kind;
}

}  // namespace dpt
