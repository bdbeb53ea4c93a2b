// Which samples belong to training and validation, and in which order an epoch sees them. Both are
// Fisher-Yates shuffles whose draws come from Philox counters, so they have no state to save.
#include <algorithm>
#include <cassert>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/data/loader.h"
#include "kernels/common/philox.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// Uniform integer in [0, n) from 64 random bits, for n below 2^32: the high word of bits * n. The
/// bias is below n / 2^64, so that even a million samples are shuffled without a trace of it.
std::int64_t below(std::uint32_t high, std::uint32_t low, std::int64_t n) {
  const auto range = static_cast<std::uint64_t>(n);
  return static_cast<std::int64_t>((high * range + ((low * range) >> 32)) >> 32);
}

/// A permutation of 0..n-1, pure function of the arguments.
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, philox::Use use,
                                      std::int64_t epoch) {
  assert(n < (std::int64_t{1} << 32));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  philox::Block bits{};
  for (std::int64_t i = n - 1; i > 0; --i) {
    // One block serves two draws: the odd one of a pair is reached first.
    if (i % 2 == 1 || i == n - 1) {
      bits = philox::block(seed, use, static_cast<std::uint64_t>(epoch),
                           static_cast<std::uint64_t>(i / 2));
    }
    const std::size_t word = i % 2 == 1 ? 0 : 2;
    const std::int64_t j = below(bits.v[word], bits.v[word + 1], i + 1);
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  }
  return order;
}

}  // namespace

std::int32_t DataSource::label(std::int64_t index) const {
  if (const auto samples = resident()) return samples->labels[static_cast<std::size_t>(index)];
  std::vector<std::byte> pixels(static_cast<std::size_t>(shape().elements()) * size_of(type()));
  std::int32_t label = 0;
  read(index, pixels, label);
  return label;
}

void DataSource::read_in_epoch(std::int64_t, std::int64_t index, std::span<std::byte> pixels,
                               std::int32_t& label) const {
  read(index, pixels, label);
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

std::vector<std::int64_t> class_counts(const Split& split, std::int64_t classes) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes), 0);
  for (const std::int64_t index : split.indices) {
    ++counts[static_cast<std::size_t>(split.source->label(index))];
  }
  return counts;
}

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle) {
  if (shuffle) return permutation(n, seed, philox::Use::shuffle, epoch);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Splits make_splits(const DataSets& sets, std::int64_t val_split, std::uint64_t seed) {
  const std::int64_t n = sets.train->size();
  if (val_split < 0 || val_split >= n) {
    fail(ErrorKind::usage,
         "data.val_split: {} of the {} training samples would be held out, which leaves nothing to "
         "train on: choose a number from 0 to {}",
         val_split, n, n - 1);
  }
  const auto all = [](const std::shared_ptr<const DataSource>& source) {
    Split split{source, {}};
    if (source) split.indices = epoch_order(source->size(), 0, 0, false);
    return split;
  };
  Splits splits;
  splits.test = all(sets.test);
  splits.val.source = sets.train;
  if (val_split == 0) {
    splits.train = all(sets.train);
    return splits;
  }
  std::vector<std::int64_t> order = permutation(n, seed, philox::Use::split, 0);
  const auto cut = order.begin() + val_split;
  std::sort(order.begin(), cut);
  std::sort(cut, order.end());
  splits.val.indices.assign(order.begin(), cut);
  splits.train = {sets.train, {cut, order.end()}};
  return splits;
}

}  // namespace dpt
