// Ranges of samples that `dpt predict` evaluates together.
#include "app/evaluate/prediction_ranges.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "engine/collectives/shard_tree.h"
#include "kernels/base/divide.h"

using dpt::Range;

namespace {

/// Appends the ends of the micro-batches of an evaluation of `range` to `ends`.
void add_ends(const Range& range, std::int64_t eval_batch, std::vector<std::int64_t>& ends) {
  const std::int64_t count = dpt::ceil_div(range.size(), eval_batch);
  for (std::int64_t i = 0; i < count; ++i) {
    ends.push_back(range.begin + dpt::even_part(range.size(), count, i).end);
  }
}

}  // namespace

TEST_CASE("predict: parts that are written early have the micro-batches of the whole") {
  for (const std::int64_t samples : {1, 7, 100, 257, 1000, 8191, 8192, 8193, 20000}) {
    for (const std::int64_t eval_batch : {1, 2, 3, 10, 37, 64, 256, 1000, 8192}) {
      for (const int ranks : {1, 2, 5}) {
        CAPTURE(samples);
        CAPTURE(eval_batch);
        CAPTURE(ranks);
        std::vector<std::int64_t> whole, parts;
        for (std::int64_t begin = 0; begin < samples; begin += 8192) {
          add_ends({begin, std::min<std::int64_t>(samples, begin + 8192)}, eval_batch, whole);
        }
        std::int64_t end = 0;
        for (const Range& range : dpt::prediction_ranges(samples, eval_batch, ranks)) {
          CHECK(range.begin == end);
          CHECK(range.end > range.begin);
          end = range.end;
          add_ends(range, eval_batch, parts);
        }
        CHECK(end == samples);
        CHECK(whole == parts);
      }
    }
  }
}

TEST_CASE("predict: the first lines are written after a micro-batch of each rank") {
  CHECK(dpt::prediction_ranges(20000, 64, 1).front().end == 64);
  CHECK(dpt::prediction_ranges(20000, 64, 2).front().end == 128);
  for (const Range& range : dpt::prediction_ranges(20000, 64, 1)) CHECK(range.size() <= 1024);
}
