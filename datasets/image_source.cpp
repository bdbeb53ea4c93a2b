#include "datasets/image_source.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>

#include "datasets/resident_source.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/stage_clock.h"
#include "kernels/image/decode.h"
#include "kernels/image/decode_options.h"
#include "kernels/image/resize.h"

namespace dpt {

static_assert(kMaxImageFileBytes == static_cast<std::uint64_t>(kMaxImageBytes));

void check_image_channels(const std::string& name, const DataRequirements& requirements) {
  if (requirements.input.c == 1 || requirements.input.c == 3) return;
  fail(ErrorKind::data,
       "{}: images are read as 1 channel (grey) or 3 (RGB), but model.input has {} channels", name,
       requirements.input.c);
}

void check_image_count(const std::string& name, std::size_t images) {
  constexpr auto kMax = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  if (images <= kMax) return;
  fail(ErrorKind::data, "{}: expected at most {} images, found {}", name, kMax, images);
}

ImageSource::ImageSource(const std::string& name, Samples samples,
                         const DataRequirements& requirements, std::int64_t cache_bytes,
                         std::string fingerprint)
    : samples_(std::move(samples)),
      shape_(requirements.input),
      salvage_(requirements.salvage),
      applies_orientation_(requirements.applies_orientation),
      sample_bytes_(static_cast<std::size_t>(shape_.elements())),
      fingerprint_(std::move(fingerprint)) {
  if (size() <= cache_bytes / shape_.elements()) {
    // The system provides pages only as samples are written to them.
    cache_ = allocate_pixels(samples_.labels.size() * sample_bytes_, name);
    states_ = std::make_unique<std::atomic<State>[]>(samples_.labels.size());
  }
}

void ImageSource::read_targets(std::int64_t index, std::span<float> row) const {
  const auto from = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) * row.size());
  std::copy_n(samples_.rows.begin() + from, row.size(), row.begin());
}

std::vector<std::int64_t> ImageSource::samples_to_try() const {
  constexpr std::size_t kTries = 512;
  const std::size_t each = std::max<std::size_t>(kTries / samples_.classes.size(), 2);
  std::vector<std::size_t> counts(samples_.classes.size());
  for (const std::int32_t label : samples_.labels) ++counts[label];
  // Choose, among the n samples of a class, those at positions i * (n - 1) / (m - 1) for i below m.
  std::vector<std::size_t> seen(counts.size()), taken(counts.size());
  std::vector<std::int64_t> chosen;
  for (std::int64_t index = 0; index < size(); ++index) {
    const auto c = static_cast<std::size_t>(label(index));
    const std::size_t n = counts[c], m = std::min(each, n);
    const std::size_t next = m == 1 ? 0 : taken[c] * (n - 1) / (m - 1);
    if (seen[c]++ != next || taken[c] == m) continue;
    ++taken[c];
    chosen.push_back(index);
  }
  return chosen;
}

Image ImageSource::read_part(std::int64_t index, const ChoosePart& choose,
                             std::int32_t& label) const {
  label = this->label(index);
  const std::vector<std::byte> file = read_file(index);
  const StageTimer timer(DataStage::decode);
  DecodeOptions options;
  options.salvage = salvage_;
  options.applies_orientation = applies_orientation_;
  return decode_part(file, describe(index), shape_.c, choose, options);
}

FileFacts ImageSource::file_facts(std::int64_t index) const {
  return facts_of_file(read_file(index), describe(index), applies_orientation_);
}

void ImageSource::read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const {
  assert(0 <= index && index < size() && pixels.size() == sample_bytes_);
  const auto i = static_cast<std::size_t>(index);
  label = samples_.labels[i];
  std::byte* kept = cache_ ? cache_.get() + i * sample_bytes_ : nullptr;
  if (kept && states_[i].load(std::memory_order_acquire) == State::kept) {
    std::memcpy(pixels.data(), kept, sample_bytes_);
    return;
  }
  std::int32_t same = 0;
  const Image image = read_part(
      index,
      [&](std::int64_t height, std::int64_t width) {
        return whole_image(height, width, shape_.h, shape_.w);
      },
      same);
  std::memcpy(pixels.data(), image.pixels.data(), sample_bytes_);
  // If several threads have decoded the same image, one stores it, and the others do not wait.
  State expected = State::empty;
  if (kept && states_[i].compare_exchange_strong(expected, State::being_written)) {
    std::memcpy(kept, pixels.data(), sample_bytes_);
    states_[i].store(State::kept, std::memory_order_release);
  }
}

}  // namespace dpt
