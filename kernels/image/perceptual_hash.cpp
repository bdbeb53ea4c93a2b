#include "kernels/image/perceptual_hash.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>
#include <numeric>

#include "kernels/base/worker_threads.h"

namespace dpt {
namespace {

constexpr std::size_t kGrid = 16, kFrequencies = 8;
using GreyGrid = std::array<std::array<float, kGrid>, kGrid>;

/// Returns the range [begin, end) of a cell along an axis of `side` pixels. Cells may share pixels.
std::pair<std::int64_t, std::int64_t> pixels_of_cell(std::size_t cell, std::int64_t side) {
  const auto c = static_cast<std::int64_t>(cell), n = static_cast<std::int64_t>(kGrid);
  const std::int64_t begin = c * side / n;
  return {begin, std::max((c + 1) * side / n, begin + 1)};
}

/// Returns the brightness of a pixel. If there are three channels, they are red, green and blue
/// (weights of ITU-R 601). For other numbers of channels, all weights are equal.
template <class T>
float brightness(const T* pixel, std::int64_t channels) {
  if (channels == 1) return static_cast<float>(pixel[0]);
  if (channels == 3) {
    return 0.299F * static_cast<float>(pixel[0]) + 0.587F * static_cast<float>(pixel[1]) +
           0.114F * static_cast<float>(pixel[2]);
  }
  float sum = 0;
  for (std::int64_t c = 0; c < channels; ++c) sum += static_cast<float>(pixel[c]);
  return sum;
}

template <class T>
GreyGrid grey_grid(const T* pixels, SampleShape shape) {
  GreyGrid grid{};
  for (std::size_t gy = 0; gy < kGrid; ++gy) {
    const auto rows = pixels_of_cell(gy, shape.h);
    for (std::size_t gx = 0; gx < kGrid; ++gx) {
      const auto columns = pixels_of_cell(gx, shape.w);
      float sum = 0;
      for (std::int64_t y = rows.first; y < rows.second; ++y) {
        for (std::int64_t x = columns.first; x < columns.second; ++x) {
          sum += brightness(pixels + (y * shape.w + x) * shape.c, shape.c);
        }
      }
      grid[gy][gx] =
          sum / static_cast<float>((rows.second - rows.first) * (columns.second - columns.first));
    }
  }
  return grid;
}

using CosineTable = std::array<std::array<float, kGrid>, kFrequencies>;

const CosineTable& cosines() {
  static const CosineTable table = [] {
    CosineTable made{};
    for (std::size_t u = 0; u < kFrequencies; ++u) {
      for (std::size_t x = 0; x < kGrid; ++x) {
        const double angle = static_cast<double>((2 * x + 1) * u) * std::numbers::pi / (2 * kGrid);
        made[u][x] = static_cast<float>(std::cos(angle));
      }
    }
    return made;
  }();
  return table;
}

std::uint64_t hash_of(const GreyGrid& grid) {
  const CosineTable& cosine = cosines();
  std::array<std::array<float, kFrequencies>, kGrid> rows{};
  for (std::size_t y = 0; y < kGrid; ++y) {
    for (std::size_t u = 0; u < kFrequencies; ++u) {
      float sum = 0;
      for (std::size_t x = 0; x < kGrid; ++x) sum += grid[y][x] * cosine[u][x];
      rows[y][u] = sum;
    }
  }
  std::array<float, kFrequencies * kFrequencies> low{};
  for (std::size_t v = 0; v < kFrequencies; ++v) {
    for (std::size_t y = 0; y < kGrid; ++y) {
      for (std::size_t u = 0; u < kFrequencies; ++u) {
        low[v * kFrequencies + u] += rows[y][u] * cosine[v][y];
      }
    }
  }
  // The first value is the mean brightness, which is ignored.
  auto sorted = low;
  constexpr std::size_t kMiddle = 1 + (low.size() - 1) / 2;
  std::nth_element(sorted.begin() + 1, sorted.begin() + kMiddle, sorted.end());
  std::uint64_t hash = 0;
  // Images of one kind share low frequencies, but not high ones. Let neighbouring bits stand for
  // frequencies that are far apart, so that each part of the hash distinguishes images.
  constexpr std::size_t kStride = 19;
  for (std::size_t bit = 0; bit < low.size(); ++bit) {
    const std::size_t i = bit * kStride % low.size();
    if (i > 0 && low[i] > sorted[kMiddle]) hash |= std::uint64_t{1} << bit;
  }
  return hash;
}

/// Search for pairs of hashes that agree in one part.
class PartSearch {
 public:
  PartSearch(std::span<const std::uint64_t> hashes, int distance, std::size_t most_equal,
             const std::atomic<bool>& stop, std::atomic<std::size_t>& left)
      : hashes_(hashes), distance_(distance), most_equal_(most_equal), stop_(stop), left_(left) {}

  void run(int part) {
    const int parts = distance_ + 1, begin = part * 64 / parts, end = (part + 1) * 64 / parts;
    // Rotate the part into the highest bits. Sorting then makes hashes with equal parts neighbours,
    // ordered by the other bits.
    const auto turned = [&](std::uint32_t i) { return std::rotr(hashes_[i], end); };
    const int others = 64 - (end - begin);
    std::vector<std::uint32_t> order(hashes_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return turned(a) != turned(b) ? turned(a) < turned(b) : a < b;
    });
    const auto key = [&](std::size_t at) { return others == 64 ? 0 : turned(order[at]) >> others; };
    for (std::size_t first = 0; first < order.size() && !stop_;) {
      std::size_t last = first + 1;
      while (last < order.size() && key(last) == key(first)) ++last;
      compare(std::span(order).subspan(first, last - first));
      first = last;
    }
  }

  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  bool complete = true;

 private:
  void compare(std::span<const std::uint32_t> equal) {
    std::size_t reach = equal.size();
    if (equal.size() > most_equal_) {
      reach = most_equal_ / 2;
      complete = false;
    }
    for (std::size_t i = 0; i + 1 < equal.size() && !stop_; ++i) {
      const std::uint64_t hash = hashes_[equal[i]];
      const std::size_t end = std::min(equal.size(), i + 1 + reach);
      for (std::size_t j = i + 1; j < end; ++j) {
        if (std::popcount(hash ^ hashes_[equal[j]]) > distance_) continue;
        std::size_t left = left_.load(std::memory_order_relaxed);
        while (left > 0 && !left_.compare_exchange_weak(left, left - 1)) {
        }
        if (left == 0) {
          complete = false;
          return;
        }
        pairs.push_back(std::minmax(equal[i], equal[j]));
      }
    }
  }

  std::span<const std::uint64_t> hashes_;
  int distance_;
  std::size_t most_equal_;
  const std::atomic<bool>& stop_;
  std::atomic<std::size_t>& left_;
};

}  // namespace

bool has_perceptual_hash(SampleShape shape) {
  constexpr std::int64_t kMin = 8;
  return shape.h >= kMin && shape.w >= kMin;
}

std::uint64_t perceptual_hash(std::span<const std::uint8_t> pixels, SampleShape shape) {
  return hash_of(grey_grid(pixels.data(), shape));
}

std::uint64_t perceptual_hash(std::span<const float> pixels, SampleShape shape) {
  return hash_of(grey_grid(pixels.data(), shape));
}

SimilarHashes find_similar_hashes(std::span<const std::uint64_t> hashes, int distance, int workers,
                                  const std::function<bool()>& wants_stop, std::size_t most_equal,
                                  std::size_t most_pairs) {
  SimilarHashes result;
  std::mutex mutex;
  std::atomic<int> next{0};
  std::atomic<std::size_t> left{most_pairs};
  const auto search = [&](const std::atomic<bool>& stop) {
    for (int part = next++; part <= distance && !stop; part = next++) {
      PartSearch found(hashes, distance, most_equal, stop, left);
      found.run(part);
      const std::lock_guard lock(mutex);
      result.pairs.insert(result.pairs.end(), found.pairs.begin(), found.pairs.end());
      result.complete = result.complete && found.complete;
    }
  };
  result.interrupted =
      !run_workers(std::min(workers, distance + 1), "similarity", search, wants_stop);
  std::sort(result.pairs.begin(), result.pairs.end());
  result.pairs.erase(std::unique(result.pairs.begin(), result.pairs.end()), result.pairs.end());
  return result;
}

}  // namespace dpt
