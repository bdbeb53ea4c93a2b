#include "datasets/resident_source.h"

#include <cassert>
#include <cstring>
#include <new>

#include "datasets/fingerprint.h"
#include "kernels/base/error.h"

namespace dpt {

std::unique_ptr<std::byte[]> allocate_pixels(std::size_t bytes, const std::string& name) {
  try {
    return std::make_unique_for_overwrite<std::byte[]>(bytes);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::data, "{}: not enough memory for its {} bytes of pixels", name, bytes);
  }
}

ResidentSource::ResidentSource(Data data)
    : data_(std::move(data)), sample_bytes_(static_cast<std::size_t>(data_.shape.elements())) {
  Fingerprint hash;
  hash.add(&data_.shape, sizeof data_.shape);
  hash.add(data_.pixels.get(), bytes());
  hash.add(data_.labels.data(), data_.labels.size() * sizeof(std::int32_t));
  fingerprint_ = hash.text();
}

void ResidentSource::read(std::int64_t index, std::span<std::byte> pixels,
                          std::int32_t& label) const {
  assert(0 <= index && index < size() && pixels.size() == sample_bytes_);
  const auto i = static_cast<std::size_t>(index);
  std::memcpy(pixels.data(), data_.pixels.get() + i * sample_bytes_, sample_bytes_);
  label = data_.labels[i];
}

std::optional<ResidentSamples> ResidentSource::resident() const {
  return ResidentSamples{{data_.pixels.get(), bytes()}, data_.labels};
}

std::string ResidentSource::describe(std::int64_t index) const {
  for (const auto& [name, count] : data_.files) {
    if (index < count) return fmt::format("{}, sample {}", name, index);
    index -= count;
  }
  return fmt::format("sample {}", index);
}

}  // namespace dpt
