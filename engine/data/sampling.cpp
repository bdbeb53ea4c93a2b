#include "engine/data/sampling.h"

#include <cassert>
#include <numeric>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Returns a uniform integer in [0, n) from 64 random bits, for n below 2^32: the high word of bits
/// * n. The bias is below n / 2^64, which is negligible even for millions of samples.
std::int64_t below(std::uint32_t high, std::uint32_t low, std::int64_t n) {
  const auto range = static_cast<std::uint64_t>(n);
  return static_cast<std::int64_t>((high * range + ((low * range) >> 32)) >> 32);
}

/// Returns how many of the first `draws` draws belong to class `c` if `classes` classes take turns.
std::int64_t turns_of(std::int64_t c, std::int64_t draws, std::int64_t classes) {
  return draws > c ? ceil_div(draws - c, classes) : 0;
}

}  // namespace

std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, philox::Use use,
                                      std::uint64_t counter) {
  assert(n < (std::int64_t{1} << 32));
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  philox::Block bits{};
  for (std::int64_t i = n - 1; i > 0; --i) {
    // One block serves two draws; the loop reaches the odd one of a pair first.
    if (i % 2 == 1 || i == n - 1) {
      bits = philox::block(seed, use, counter, static_cast<std::uint64_t>(i / 2));
    }
    const std::size_t word = i % 2 == 1 ? 0 : 2;
    const std::int64_t j = below(bits.v[word], bits.v[word + 1], i + 1);
    std::swap(order[i], order[j]);
  }
  return order;
}

std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle) {
  if (shuffle) {
    return permutation(n, seed, philox::Use::shuffle, static_cast<std::uint64_t>(epoch));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

void check_sampler(Sampler sampler, const DataSource& source) {
  if (sampler == Sampler::uniform || source.targets().kind == TargetKind::class_index) return;
  fail(ErrorKind::usage,
       "data.sampler: balanced needs class labels, which this data set does not have: write "
       "uniform");
}

Sampling::Sampling(const Split& split, const SamplingOptions& options)
    : split_(split), options_(options) {
  const DataSource& source = *split.source;
  check_sampler(options.sampler, source);
  if (options.sampler == Sampler::uniform) return;
  std::vector<std::vector<std::int64_t>> classes(source.classes().size());
  for (const std::int64_t index : split.indices) {
    classes[source.label(index)].push_back(index);
  }
  for (std::vector<std::int64_t>& members : classes) {
    if (!members.empty()) classes_.push_back(std::move(members));
  }
}

EpochOrder Sampling::epoch(std::int64_t epoch) const {
  return options_.sampler == Sampler::balanced ? balanced(epoch) : uniform(epoch);
}

EpochOrder Sampling::uniform(std::int64_t epoch) const {
  EpochOrder order{epoch_order(split_.size(), options_.seed, epoch, options_.shuffle), {}};
  for (std::int64_t& index : order.indices) index = split_.indices[index];
  return order;
}

/// Draws the samples of an epoch. The draws of all epochs are one sequence in which classes take
/// turns. The members of a class take turns too, in a new order after each round.
EpochOrder Sampling::balanced(std::int64_t epoch) const {
  const std::int64_t n = split_.size();
  const auto classes = static_cast<std::int64_t>(classes_.size());
  std::vector<std::vector<std::int64_t>> drawn(classes_.size());
  for (std::int64_t c = 0; c < classes; ++c) {
    const std::vector<std::int64_t>& members = classes_[c];
    const auto count = static_cast<std::int64_t>(members.size());
    std::vector<std::int64_t>& mine = drawn[c];
    std::int64_t pass = -1;
    std::vector<std::int64_t> order;
    const std::int64_t end = turns_of(c, (epoch + 1) * n, classes);
    for (std::int64_t draw = turns_of(c, epoch * n, classes); draw < end; ++draw) {
      if (options_.shuffle && draw / count != pass) {
        pass = draw / count;
        constexpr int kPassBits = 40;
        order = permutation(
            count, options_.seed, philox::Use::balance,
            (static_cast<std::uint64_t>(c) << kPassBits) | static_cast<std::uint64_t>(pass));
      }
      const std::int64_t at = draw % count;
      mine.push_back(members[options_.shuffle ? order[at] : at]);
    }
  }
  const std::vector<std::int64_t> places = epoch_order(n, options_.seed, epoch, options_.shuffle);
  EpochOrder made;
  made.indices.resize(static_cast<std::size_t>(n));
  made.keys.resize(static_cast<std::size_t>(n));
  std::vector<std::int64_t> times(static_cast<std::size_t>(split_.source->size()), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t draw = epoch * n + i, c = draw % classes;
    const std::int64_t turn = draw / classes - turns_of(c, epoch * n, classes);
    const std::int64_t index = drawn[c][turn];
    const auto place = static_cast<std::size_t>(places[i]);
    made.indices[place] = index;
    made.keys[place] = index + times[index]++ * split_.source->size();
  }
  return made;
}

}  // namespace dpt
