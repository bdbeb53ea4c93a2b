#include "engine/collectives/tree_sum.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace dpt {
void TreeSum::start(std::int64_t shards) {
  same_ = shards == shards_;
  shards_ = shards;
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
  std::string wrong = problem_of_cover(shards_, {0, shards_}, nodes_);
  if (wrong.empty()) {
    additions_ = tree_additions(shards_, nodes_);
  } else {
    shards_ = -1;  // the next list must not be taken for this one
  }
  return wrong;
}

void TreeSum::run(Backend& backend, Range range, std::span<const DevPtr> outs) {
  const bool nothing_to_do =
      additions_.empty() &&
      std::all_of(outs.begin(), outs.end(), [&](DevPtr out) { return out == data_[0]; });
  if (range.size() <= 0 || nothing_to_do) return;
  const std::size_t at = static_cast<std::size_t>(range.begin) * sizeof(float);
  parts_at_.assign(data_.begin(), data_.end());
  outs_at_.assign(outs.begin(), outs.end());
  for (DevPtr& part : parts_at_) part = part + at;
  for (DevPtr& out : outs_at_) out = out + at;
  backend.tree_sum(parts_at_, additions_, outs_at_, range.size());
}

}  // namespace dpt
