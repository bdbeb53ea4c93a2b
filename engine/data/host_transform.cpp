#include "engine/data/host_transform.h"

#include <cassert>

namespace dpt {

DrawStream::DrawStream(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int place,
                       philox::Use use)
    : seed_(seed),
      epoch_and_place_((static_cast<std::uint64_t>(epoch) & 0xFFFFFFFFU) |
                       (static_cast<std::uint64_t>(place) & 0xFFFFU) << 32),
      sample_(static_cast<std::uint64_t>(sample)),
      use_(use) {}

std::uint32_t DrawStream::next() {
  const std::uint64_t word = used_++ % 4;
  if (word == 0) {
    // 16 bits suffice for the block's number: no transform draws 2^18 words for a sample.
    block_ = philox::block(seed_, use_, epoch_and_place_ | (used_ / 4 & 0xFFFFU) << 48, sample_);
  }
  return block_.v[word];
}

double DrawStream::uniform(double low, double high) {
  return low + (high - low) * (static_cast<double>(next()) / 4294967296.0);
}

std::int64_t DrawStream::below(std::int64_t n) {
  assert(0 < n && n <= (std::int64_t{1} << 32));
  return static_cast<std::int64_t>(
      (static_cast<std::uint64_t>(next()) * static_cast<std::uint64_t>(n)) >> 32);
}

std::optional<ImagePart> HostTransform::choose(Size2, DrawStream&) const {
  return std::nullopt;
}

std::optional<PixelBox> HostTransform::keeps(Size2, DrawStream&) const {
  return std::nullopt;
}

}  // namespace dpt
