#include "engine/collectives/tree_sum.h"

#include <algorithm>

#include "kernels/error.h"

namespace dpt {
namespace {

// Bytes that one block of all parts takes together: they stay in the second-level cache from the
// first addition to the last copy.
constexpr std::int64_t kBlockBytes = 256 * 1024;
constexpr std::int64_t kSmallestBlock = 1024;

}  // namespace

void TreeSum::start(std::int64_t leaves) {
  same_ = leaves == leaves_;
  leaves_ = leaves;
  data_.clear();
}

void TreeSum::add(std::span<const PartialSum> parts) {
  for (const PartialSum& part : parts) {
    const std::size_t i = data_.size();
    if (!same_ || i >= nodes_.size() || !(nodes_[i] == part.node)) {
      same_ = false;
      nodes_.resize(i);
      nodes_.push_back(part.node);
    }
    data_.push_back(part.data);
  }
}

std::string TreeSum::ready() {
  if (same_ && data_.size() == nodes_.size()) return {};
  nodes_.resize(data_.size());
  std::string wrong = check_cover();
  if (wrong.empty()) {
    additions_ = tree_additions(leaves_, nodes_);
  } else {
    leaves_ = -1;  // so that the next list is not taken for this one
  }
  return wrong;
}

std::string TreeSum::check_cover() const {
  if (leaves_ < 1) return fmt::format("expected at least one leaf, found {}", leaves_);
  std::int64_t covered = 0;
  for (const TreeNode& node : nodes_) {
    const bool aligned =
        node.level >= 0 && node.level < 62 && node.first % (std::int64_t{1} << node.level) == 0;
    if (!aligned || node.first != covered || covered >= leaves_) {
      return fmt::format(
          "expected parts that cover leaves 0 to {} once, in rank order; found the node of leaf "
          "{}, "
          "level {} after {} leaves",
          leaves_ - 1, node.first, node.level, covered);
    }
    covered = std::min(leaves_, covered + (std::int64_t{1} << node.level));
  }
  if (covered == leaves_) return {};
  return fmt::format("expected parts that cover leaves 0 to {} once; they end after {} leaves",
                     leaves_ - 1, covered);
}

void TreeSum::run(Backend& backend, Range range, std::span<const DevPtr> outs) const {
  const std::int64_t fitting =
      kBlockBytes / static_cast<std::int64_t>(sizeof(float) * data_.size());
  const std::int64_t block = std::max(kSmallestBlock, fitting / kSmallestBlock * kSmallestBlock);
  for (std::int64_t begin = range.begin; begin < range.end; begin += block) {
    const std::int64_t n = std::min(block, range.end - begin);
    const std::size_t at = static_cast<std::size_t>(begin) * sizeof(float);
    for (const TreeAdd& add : additions_) {
      const DevPtr left = data_[static_cast<std::size_t>(add.left)] + at;
      backend.add(left, left, data_[static_cast<std::size_t>(add.right)] + at, n);
    }
    for (const DevPtr& out : outs) {
      if (out == data_[0]) continue;
      backend.copy(out + at, data_[0] + at, static_cast<std::size_t>(n) * sizeof(float));
    }
  }
}

}  // namespace dpt
