#include "datasets/smoke_samples.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "datasets/fingerprint.h"
#include "datasets/image_source.h"
#include "datasets/requirements.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/philox.h"
#include "kernels/image/encode_png.h"

namespace dpt {
namespace {

/// First random streams of samples and targets, apart from those of `dataset: synthetic`.
constexpr std::uint64_t kSampleStream = std::uint64_t{1} << 50;
constexpr std::uint64_t kTargetStream = std::uint64_t{1} << 51;
constexpr std::uint64_t kTestOffset = std::uint64_t{1} << 40;

/// Returns a random byte for a sample and a position.
std::uint8_t random_byte(std::uint64_t stream, std::uint64_t sample, std::uint64_t position) {
  const philox::Block bits =
      philox::block(0, philox::Use::synthesis, stream + sample, position / 4);
  return static_cast<std::uint8_t>(bits.v[position % 4] >> 24);
}

/// Returns the labels and target rows of `count` samples.
ImageSource::Samples targets_of(const SmokeSamples& asked, std::int64_t count,
                                std::uint64_t offset) {
  ImageSource::Samples samples;
  samples.targets = asked.targets;
  samples.classes = numbered_classes(asked.classes);
  const auto n = static_cast<std::size_t>(count);
  const auto values = static_cast<std::size_t>(asked.targets.values);
  const auto stride = static_cast<std::size_t>(asked.targets.floats());
  samples.labels.resize(n);
  samples.rows.resize(n * stride);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t label = i % static_cast<std::size_t>(asked.classes);
    if (has_labels(asked.targets.kind)) samples.labels[i] = static_cast<std::int32_t>(label);
    float* row = samples.rows.data() + i * stride;
    for (std::size_t k = 0; k < values; ++k) {
      const std::uint8_t byte = random_byte(kTargetStream, offset + i, k);
      if (asked.targets.kind == TargetKind::soft_labels) {
        const auto others = static_cast<float>(std::max<std::size_t>(values - 1, 1));
        row[k] = k == label ? 0.75F : 0.25F / others;
      } else if (asked.targets.kind == TargetKind::multi_hot) {
        row[k] = byte < 64 ? 1.0F : 0.0F;
      } else {
        row[k] = static_cast<float>(byte) / 127.5F - 1;
      }
    }
    if (asked.targets.weighted) row[values] = 0.5F + static_cast<float>(i % 3);
  }
  return samples;
}

/// Samples of one size, in memory.
class SmokeSource final : public DataSource {
 public:
  SmokeSource(const SmokeSamples& asked, std::int64_t count, std::uint64_t offset)
      : shape_(asked.shape), type_(asked.type), samples_(targets_of(asked, count, offset)) {
    const auto elements = static_cast<std::size_t>(shape_.elements());
    pixels_.resize(static_cast<std::size_t>(count) * elements * size_of(type_));
    for (std::size_t i = 0; i < pixels_.size() / size_of(type_); ++i) {
      const std::uint8_t byte = random_byte(kSampleStream, offset + i / elements, i % elements);
      if (type_ == DType::u8) {
        pixels_[i] = std::byte{byte};
      } else {
        const float value = static_cast<float>(byte) / 127.5F - 1;
        std::memcpy(pixels_.data() + i * sizeof value, &value, sizeof value);
      }
    }
    Fingerprint hash;
    hash.add(pixels_.data(), pixels_.size());
    hash.add(samples_.labels.data(), samples_.labels.size() * sizeof(std::int32_t));
    hash.add(samples_.rows.data(), samples_.rows.size() * sizeof(float));
    fingerprint_ = hash.text();
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.labels.size()); }
  SampleShape shape() const override { return shape_; }
  DType type() const override { return type_; }
  const std::vector<std::string>& classes() const override { return samples_.classes; }
  TargetShape targets() const override { return samples_.targets; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    const auto i = static_cast<std::size_t>(index);
    std::memcpy(pixels.data(), pixels_.data() + i * pixels.size(), pixels.size());
    label = samples_.labels[i];
  }
  std::optional<ResidentSamples> resident() const override {
    return ResidentSamples{pixels_, samples_.labels, samples_.rows};
  }
  std::string describe(std::int64_t index) const override {
    return fmt::format("synthetic sample {}", index);
  }
  std::string fingerprint() const override { return fingerprint_; }

 private:
  SampleShape shape_;
  DType type_;
  ImageSource::Samples samples_;
  std::vector<std::byte> pixels_;
  std::string fingerprint_;
};

/// PNG files, generated when they are read.
class SmokeImages final : public ImageSource {
 public:
  SmokeImages(const SmokeSamples& asked, std::int64_t count, std::uint64_t offset,
              const DataRequirements& requirements)
      : ImageSource(
            "synthetic images", targets_of(asked, count, offset), requirements, 0,
            fmt::format("made-up {} {} {}x{}", offset, count, asked.image.h, asked.image.w)),
        least_(asked.image),
        offset_(offset) {}

  std::string describe(std::int64_t index) const override {
    return fmt::format("synthetic image {}", index);
  }

 private:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    Image image;
    image.height = least_.h + least_.h * (index % 3) / 8;
    image.width = least_.w + least_.w * (index % 2) / 4;
    image.channels = shape().c;
    image.pixels.resize(static_cast<std::size_t>(image.height * image.width * image.channels));
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      // Runs of 16 equal bytes are fast to generate and to compress.
      image.pixels[i] =
          random_byte(kSampleStream, offset_ + static_cast<std::uint64_t>(index), i / 16);
    }
    return encode_png(image);
  }

  Size2 least_;
  std::uint64_t offset_;
};

std::shared_ptr<const DataSource> make_up(const SmokeSamples& asked, std::int64_t count,
                                          std::uint64_t offset, bool salvage) {
  if (!asked.images) return std::make_shared<SmokeSource>(asked, count, offset);
  const DataRequirements requirements{asked.shape, asked.classes, salvage};
  check_image_channels("synthetic images", requirements);
  return std::make_shared<SmokeImages>(asked, count, offset, requirements);
}

}  // namespace

DataSets make_up_samples(const SmokeSamples& asked, bool salvage) {
  return {make_up(asked, asked.train, 0, salvage),
          make_up(asked, asked.test, kTestOffset, salvage)};
}

}  // namespace dpt
