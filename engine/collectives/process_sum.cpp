#include "engine/collectives/process_sum.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

// Floats in a cache line: ranks and processes own whole lines.
constexpr std::int64_t kOwnedLine = 16;
// Maximum size of a sum that is sent whole in one exchange. During the latency of one exchange, a
// network could transfer about ten thousand bytes.
constexpr std::int64_t kFewBytes = 32 << 10;

Range part_in_lines(std::int64_t count, std::int64_t parts, std::int64_t i) {
  const Range lines = even_part(ceil_div(count, kOwnedLine), parts, i);
  return {std::min(lines.begin * kOwnedLine, count), std::min(lines.end * kOwnedLine, count)};
}

DevPtr pointer_to(float* at) {
  return DevPtr{reinterpret_cast<std::uintptr_t>(at)};
}

std::span<const std::byte> bytes_at(const float* at, std::int64_t count) {
  return std::as_bytes(std::span<const float>(at, static_cast<std::size_t>(count)));
}

std::span<std::byte> room_at(float* at, std::int64_t count) {
  return std::as_writable_bytes(std::span<float>(at, static_cast<std::size_t>(count)));
}

float* need(std::vector<float>& buffer, std::int64_t count) {
  if (static_cast<std::int64_t>(buffer.size()) < count) {
    buffer.resize(static_cast<std::size_t>(count));
  }
  return buffer.data();
}

}  // namespace

ProcessSum::Plan& ProcessSum::plan_for(std::int64_t shards, const SumTerms& terms,
                                       std::span<const PartialSum> parts) {
  const auto same_nodes = [&](const Plan& plan) {
    return std::equal(plan.part_nodes.begin(), plan.part_nodes.end(), parts.begin(), parts.end(),
                      [](const TreeNode& a, const PartialSum& b) { return a == b.node; });
  };
  for (Plan& plan : plans_) {
    if (plan.shards == shards && plan.any_order == terms.any_order && same_nodes(plan) &&
        std::equal(plan.shards_of_ranks.begin(), plan.shards_of_ranks.end(),
                   terms.shards_of_ranks.begin(), terms.shards_of_ranks.end())) {
      return plan;
    }
  }
  // A run needs plans for whole batches, for the smaller one at an epoch's end, and for statistics.
  // More appear only when the work is partitioned anew.
  constexpr std::size_t kMaxPlans = 8;
  if (plans_.size() == kMaxPlans) plans_.erase(plans_.begin());
  Plan& plan = plans_.emplace_back();
  plan.shards = shards;
  plan.any_order = terms.any_order;
  plan.shards_of_ranks.assign(terms.shards_of_ranks.begin(), terms.shards_of_ranks.end());
  for (const PartialSum& part : parts) plan.part_nodes.push_back(part.node);
  try {
    plan.nodes = process_nodes(shards, terms.shards_of_ranks, ranks_of_, links_.rank(),
                               plan.part_nodes, terms.any_order);
  } catch (...) {
    plans_.pop_back();
    throw;
  }
  for (const auto& nodes : plan.nodes.of_processes) {
    plan.most_nodes = std::max(plan.most_nodes, static_cast<std::int64_t>(nodes.size()));
  }
  return plan;
}

void ProcessSum::begin(std::int64_t shards, const SumTerms& terms,
                       std::span<const PartialSum> parts, std::int64_t count, float* out) {
  plan_ = &plan_for(shards, terms, parts);
  count_ = count;
  parts_.clear();
  for (const PartialSum& part : parts) parts_.push_back(part.data);
  // If two processes have one node each, one exchange moves as many bytes as two exchanges would.
  const bool at_once =
      (links_.size() == 2 && plan_->most_nodes == 1) ||
      count * plan_->most_nodes * static_cast<std::int64_t>(sizeof(float)) <= kFewBytes;
  slices_ = at_once ? 1 : links_.size();
  const std::int64_t nodes = nodes_of(links_.rank());
  // If this process has one rank with one node, the node is sent from the memory of that rank's
  // part.
  stage_ = out && nodes == 1 ? reinterpret_cast<float*>(parts_[0].address)
                             : need(stage_memory_, nodes * count);
  result_ = out ? out : need(sum_memory_, count);
}

Range ProcessSum::slice(std::int64_t q) const {
  return part_in_lines(count_, slices_, q);
}

float* ProcessSum::staged(std::int64_t q, std::int64_t k) {
  const Range elements = slice(q);
  return stage_ + nodes_of(links_.rank()) * elements.begin + k * elements.size();
}

void ProcessSum::add_own(Backend& adder, int index, int count) {
  const std::vector<OwnNode>& own = plan_->nodes.own;
  std::vector<DevPtr> parts;
  for (std::int64_t q = 0; q < slices_; ++q) {
    const Range elements = slice(q), mine = part_in_lines(elements.size(), count, index);
    if (mine.size() == 0) continue;
    for (std::size_t k = 0; k < own.size(); ++k) {
      parts.clear();
      const auto offset = static_cast<std::size_t>(elements.begin + mine.begin) * sizeof(float);
      for (std::int64_t i = own[k].parts.begin; i < own[k].parts.end; ++i) {
        parts.push_back(parts_[i] + offset);
      }
      const DevPtr to = pointer_to(staged(q, static_cast<std::int64_t>(k)) + mine.begin);
      if (own[k].additions.empty() && to == parts[0]) continue;
      adder.tree_sum(parts, own[k].additions, {&to, 1}, mine.size());
    }
  }
}

void ProcessSum::exchange(Backend& adder) {
  const Range mine = own_slice();
  send_.assign(static_cast<std::size_t>(links_.size()), {});
  receive_.assign(static_cast<std::size_t>(links_.size()), {});
  std::int64_t arriving = 0;
  for (int p = 0; p < links_.size(); ++p) {
    if (p != links_.rank()) arriving += nodes_of(p) * mine.size();
  }
  need(received_, arriving);
  arriving = 0;
  for (int p = 0; p < links_.size(); ++p) {
    if (p == links_.rank()) continue;
    const std::int64_t to = slices_ == 1 ? 0 : p;
    send_[p] = bytes_at(staged(to, 0), nodes_of(links_.rank()) * slice(to).size());
    receive_[p] = room_at(received_.data() + arriving, nodes_of(p) * mine.size());
    arriving += nodes_of(p) * mine.size();
  }
  links_.exchange(send_, receive_, "all_reduce");
  add_slice(adder);
  if (slices_ == 1) return;
  for (int p = 0; p < links_.size(); ++p) {
    const Range theirs = slice(p);
    send_[p] = bytes_at(result_ + mine.begin, mine.size());
    receive_[p] = room_at(result_ + theirs.begin, theirs.size());
  }
  links_.exchange(send_, receive_, "all_reduce");
}

void ProcessSum::add_slice(Backend& adder) {
  const Range mine = own_slice();
  float* arrived = received_.data();
  TreeSum& sum = plan_->sum;
  sum.start(plan_->nodes.shards);
  for (int p = 0; p < links_.size(); ++p) {
    std::int64_t k = 0;
    for (const TreeNode& node : plan_->nodes.of_processes[p]) {
      float* at = p == links_.rank() ? staged(slices_ == 1 ? 0 : p, k++) : arrived;
      if (p != links_.rank()) arrived += mine.size();
      const PartialSum part{node, pointer_to(at)};
      sum.add({&part, 1});
    }
  }
  const std::string wrong = sum.ready();
  if (!wrong.empty()) fail(ErrorKind::peer, "process {}: all_reduce: {}", links_.rank(), wrong);
  const DevPtr to = pointer_to(result_ + mine.begin);
  sum.run(adder, {0, mine.size()}, {&to, 1});
}

}  // namespace dpt
