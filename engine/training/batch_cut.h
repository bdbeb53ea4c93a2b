// How one rank works through its part of a batch: which samples go into which gradient buffer, and
// which buffers are added, as a straight-line list. Fast mode, exact mode, gradient accumulation,
// ragged batches and idle ranks are all just different lists. See docs/exactness.md.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/training/shares.h"
#include "kernels/backend.h"

namespace dpt {

/// One entry of the list.
struct CutAction {
  enum class Kind : std::uint8_t {
    train,  ///< forward and backward of `samples` into `buffer`
    zero,   ///< an empty shard: `buffer` = 0
    add     ///< `buffer` += `other`
  };
  Kind kind = Kind::train;
  int buffer = 0;
  int other = 0;
  Range samples;  ///< positions in the batch, never empty for `train`
  GradWrite write = GradWrite::overwrite;
};

struct BatchCut {
  Range samples;  ///< the rank's own, in the batch; may be empty
  std::int64_t leaves = 1;
  std::vector<CutAction> actions;
  struct Part {
    TreeNode node;
    int buffer;
  };
  std::vector<Part> parts;  ///< what the rank brings to the all_reduce
  int buffers = 0;          ///< gradient buffers used, counted from 0
};

/// The list of `rank` for a batch of `samples`; `shares` has one weight per rank. `shards` as in
/// the config: 0 = fast mode, one leaf a rank, of its share of the samples; N = exact mode, N even
/// leaves, of which a rank has its share, ranks <= N. No `train` action has more than `max_piece`
/// samples; how a leaf is cut into pieces depends on its own size alone.
BatchCut cut_batch(std::int64_t samples, const Shares& shares, int rank, std::int64_t shards,
                   std::int64_t max_piece);

/// All piece sizes that the cuts of a batch contain, ascending, without repetition.
std::vector<std::int64_t> piece_sizes(const BatchCut& cut);

}  // namespace dpt
