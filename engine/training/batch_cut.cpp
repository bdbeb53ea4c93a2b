#include "engine/training/batch_cut.h"

#include <algorithm>

namespace dpt {
namespace {

/// Builds the list while it walks the tree. Buffers are handed out like a stack: a node's sum lies
/// in the lowest buffer of its leaves.
class CutBuilder {
 public:
  CutBuilder(const std::vector<Range>& leaves, std::int64_t max_piece, BatchCut& cut)
      : leaves_(leaves), max_piece_(max_piece), cut_(cut) {}

  /// Appends the actions that leave the node's sum in `buffer`; buffers above it are free.
  void node(TreeNode n, int buffer) {
    cut_.buffers = std::max(cut_.buffers, buffer + 1);
    if (n.level == 0) {
      leaf(n.first, buffer);
      return;
    }
    node({n.first, n.level - 1}, buffer);
    const TreeNode right{n.first + (std::int64_t{1} << (n.level - 1)), n.level - 1};
    if (right.first >= cut_.leaves) return;
    node(right, buffer + 1);
    cut_.actions.push_back({.kind = CutAction::Kind::add,
                            .buffer = buffer,
                            .other = buffer + 1,
                            .samples = {},
                            .write = GradWrite::add});
  }

 private:
  void leaf(std::int64_t index, int buffer) {
    const Range& samples = leaves_[static_cast<std::size_t>(index)];
    if (samples.size() == 0) {
      cut_.actions.push_back({.kind = CutAction::Kind::zero,
                              .buffer = buffer,
                              .other = 0,
                              .samples = samples,
                              .write = GradWrite::overwrite});
      return;
    }
    const std::int64_t pieces = (samples.size() + max_piece_ - 1) / max_piece_;
    for (std::int64_t i = 0; i < pieces; ++i) {
      const Range part = even_part(samples.size(), pieces, i);
      cut_.actions.push_back({.kind = CutAction::Kind::train,
                              .buffer = buffer,
                              .other = 0,
                              .samples = {samples.begin + part.begin, samples.begin + part.end},
                              .write = i == 0 ? GradWrite::overwrite : GradWrite::add});
    }
  }

  const std::vector<Range>& leaves_;  ///< the samples of each
  std::int64_t max_piece_;
  BatchCut& cut_;
};

}  // namespace

BatchCut cut_batch(std::int64_t samples, const Shares& shares, int rank, std::int64_t shards,
                   std::int64_t max_piece) {
  // Shares decide the leaves' sizes in fast mode and their owners in exact mode: there a leaf never
  // depends on the ranks, so neither do the bits.
  const bool exact = shards > 0;
  const std::vector<Range> leaves =
      exact ? share_parts(samples, Shares(static_cast<std::size_t>(shards), 1))
            : share_parts(samples, shares);
  BatchCut cut;
  cut.leaves = static_cast<std::int64_t>(leaves.size());
  const Range mine = exact ? share_parts(shards, shares)[static_cast<std::size_t>(rank)]
                           : Range{rank, rank + std::int64_t{1}};
  if (mine.size() > 0) {
    cut.samples = {leaves[static_cast<std::size_t>(mine.begin)].begin,
                   leaves[static_cast<std::size_t>(mine.end - 1)].end};
  }
  CutBuilder builder(leaves, max_piece, cut);
  int buffer = 0;
  for (const TreeNode& node : maximal_nodes(cut.leaves, mine)) {
    builder.node(node, buffer);
    cut.parts.push_back({node, buffer});
    ++buffer;
  }
  return cut;
}

std::vector<std::int64_t> piece_sizes(const BatchCut& cut) {
  std::vector<std::int64_t> sizes;
  for (const CutAction& action : cut.actions) {
    if (action.kind == CutAction::Kind::train) sizes.push_back(action.samples.size());
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace dpt
