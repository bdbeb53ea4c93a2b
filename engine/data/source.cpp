#include "engine/data/source.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "kernels/image/resize.h"

namespace dpt {

std::int32_t DataSource::label(std::int64_t index) const {
  if (const auto samples = resident()) return samples->labels[index];
  std::vector<std::byte> pixels(static_cast<std::size_t>(shape().elements()) * size_of(type()));
  std::int32_t label = 0;
  read(index, pixels, label);
  return label;
}

const std::vector<std::string>& DataSource::features() const {
  static const std::vector<std::string> none;
  return none;
}

void DataSource::read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                               std::int32_t& label) const {
  read(sample.index, pixels, label);
}

Image DataSource::read_part(std::int64_t index, const ChoosePart& choose,
                            std::int32_t& label) const {
  assert(type() == DType::u8);
  Image image{shape().h, shape().w, shape().c, {}};
  image.pixels.resize(static_cast<std::size_t>(shape().elements()));
  read(index, std::as_writable_bytes(std::span(image.pixels)), label);
  return part_of(image, choose(image.height, image.width));
}

void DataSource::read_targets(std::int64_t index, std::span<float> row) const {
  const auto samples = resident();
  assert(samples && samples->targets.size() == static_cast<std::size_t>(size()) * row.size());
  const auto from = samples->targets.subspan(static_cast<std::size_t>(index) * row.size());
  std::copy_n(from.begin(), row.size(), row.begin());
}

}  // namespace dpt
