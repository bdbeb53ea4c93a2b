#include "app/evaluate/prediction_ranges.h"

#include <algorithm>

#include "engine/collectives/shard_tree.h"
#include "kernels/base/divide.h"

namespace dpt {
namespace {

/// Number of samples whose outputs are in memory at once.
constexpr std::int64_t kChunk = 8192;
constexpr std::int64_t kMaxRange = 1024;

/// Returns true if micro-batches first..end - 1 of a chunk remain the same when their samples are
/// evaluated separately.
bool keeps_micro_batches(std::int64_t chunk, std::int64_t count, std::int64_t eval_batch,
                         std::int64_t first, std::int64_t end) {
  const std::int64_t begin = even_part(chunk, count, first).begin;
  const std::int64_t samples = even_part(chunk, count, end - 1).end - begin;
  if (ceil_div(samples, eval_batch) != end - first) return false;
  for (std::int64_t i = first; i < end; ++i) {
    const std::int64_t own_end = even_part(samples, end - first, i - first).end;
    if (begin + own_end != even_part(chunk, count, i).end) return false;
  }
  return true;
}

}  // namespace

std::vector<Range> prediction_ranges(std::int64_t samples, std::int64_t eval_batch, int ranks) {
  std::vector<Range> ranges;
  std::int64_t wanted = ranks;  // micro-batches
  const std::int64_t most = std::max<std::int64_t>(ranks, kMaxRange / eval_batch);
  for (std::int64_t begin = 0; begin < samples; begin += kChunk) {
    const std::int64_t chunk = std::min(kChunk, samples - begin);
    const std::int64_t count = ceil_div(chunk, eval_batch);
    for (std::int64_t first = 0; first < count;) {
      std::int64_t end = std::min(count, first + wanted);
      while (end < count && !(keeps_micro_batches(chunk, count, eval_batch, first, end) &&
                              keeps_micro_batches(chunk, count, eval_batch, end, count))) {
        ++end;
      }
      ranges.push_back({begin + even_part(chunk, count, first).begin,
                        begin + even_part(chunk, count, end - 1).end});
      first = end;
      wanted = std::min(2 * wanted, most);
    }
  }
  return ranges;
}

}  // namespace dpt
