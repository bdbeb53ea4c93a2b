#include "engine/replica/lockstep.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "engine/layers/activation_shape.h"
#include "kernels/common/batch_norm_math.h"

namespace dpt {

Lockstep::Lockstep(Backend& backend, Communicator& communicator, const Plan& plan)
    : backend_(backend), communicator_(communicator), plan_(plan) {
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const Node& node = plan.nodes[i];
    if (!node.coupling) continue;
    const ActivationShape& shape = plan.values[node.output].shape;
    coupled_.push_back(
        {static_cast<int>(i), shape.channels(), shape.positions(), node.coupling->sync});
    couples_shards_ = couples_shards_ || node.coupling->sync;
  }
}

bool Lockstep::train(std::span<const Piece> pieces, std::span<const std::int64_t> shard_sizes,
                     const std::function<void(int node)>& after_node,
                     const std::function<bool()>* gives_up) {
  const int count = static_cast<int>(coupled_.size());
  const auto batch =
      static_cast<double>(std::accumulate(shard_sizes.begin(), shard_sizes.end(), std::int64_t{0}));
  bool continues = true;
  for (int phase = 0; phase <= 2 * count; ++phase) {
    for (const Piece& piece : pieces) {
      const bool is_first = phase == 0 && &piece == &pieces.front();
      if (continues && gives_up && !is_first) continues = !(*gives_up)();
      if (!continues) break;
      const auto samples = static_cast<double>(shard_sizes[piece.shard]);
      const Executor::Merged merged = [&](int node) {
        const auto coupled = std::find_if(coupled_.begin(), coupled_.end(),
                                          [&](const Coupled& each) { return each.node == node; });
        const double over = coupled->sync ? batch : samples;
        return MergedCount{over * static_cast<double>(coupled->positions), samples};
      };
      piece.executor->train_phase(
          phase, piece.buffers, piece.batch, piece.write, merged,
          &piece == &pieces.back() ? after_node : std::function<void(int)>());
    }
    if (phase == 2 * count) break;
    const bool moments = phase < count;
    const Coupled& coupled = coupled_[moments ? phase : 2 * count - 1 - phase];
    const Node& node = plan_.nodes[coupled.node];
    if (!moments && !plan_.values[node.output].needs_gradient) continue;
    if (coupled.sync) {
      merge_over_batch(coupled, moments, phase, pieces, shard_sizes);
    } else {
      merge_over_shard(coupled, moments, phase, pieces);
    }
  }
  return continues;
}

void Lockstep::merge(bool moments, std::span<const DevPtr> parts, std::span<const double> counts,
                     std::span<const DevPtr> outs, std::int64_t channels) {
  leaves_.clear();
  const auto count = static_cast<std::int64_t>(parts.size());
  for (std::int64_t i = 0; i < count; ++i) leaves_.push_back({i, 0});
  const std::vector<TreeAdd> additions = tree_additions(count, leaves_);
  if (!moments) return backend_.tree_sum(parts, additions, outs, 2 * channels);
  merges_.clear();
  std::vector<double> have(counts.begin(), counts.end());
  for (const TreeAdd& add : additions) {
    double& left = have[add.left];
    const double right = have[add.right];
    merges_.push_back(moment_merge(add.left, add.right, left, right));
    left += right;
  }
  backend_.merge_moments(parts, merges_, outs, channels);
}

void Lockstep::merge_over_shard(const Coupled& coupled, bool moments, int phase,
                                std::span<const Piece> pieces) {
  // The pieces may be of several shards if the network also has layers that couple shards.
  for (std::size_t begin = 0; begin < pieces.size();) {
    parts_.clear();
    counts_.clear();
    std::size_t end = begin;
    for (; end < pieces.size() && pieces[end].shard == pieces[begin].shard; ++end) {
      parts_.push_back(pieces[end].executor->statistics(phase, pieces[end].buffers));
      counts_.push_back(static_cast<double>(pieces[end].executor->batch() * coupled.positions));
    }
    if (parts_.size() > 1) merge(moments, parts_, counts_, parts_, coupled.channels);
    begin = end;
  }
}

void Lockstep::merge_over_batch(const Coupled& coupled, bool moments, int phase,
                                std::span<const Piece> pieces,
                                std::span<const std::int64_t> shard_sizes) {
  const auto shards = static_cast<std::int64_t>(shard_sizes.size());
  const std::size_t slot_bytes = static_cast<std::size_t>(2 * coupled.channels) * sizeof(float);
  const std::size_t bytes = slot_bytes * shard_sizes.size();
  if (slots_.bytes() < bytes) {
    backend_.synchronize();
    slots_ = backend_.allocate(bytes, "statistics of shards");
    all_slots_ = backend_.allocate(bytes, "statistics of shards");
  }
  // Every shard has a slot. Its rank fills the slot and the others leave it at zero, so the sum
  // over ranks contains each shard's statistics bit for bit.
  backend_.zero(slots_.ptr(), bytes);
  outs_.clear();
  for (std::size_t begin = 0; begin < pieces.size();) {
    parts_.clear();
    counts_.clear();
    std::size_t end = begin;
    for (; end < pieces.size() && pieces[end].shard == pieces[begin].shard; ++end) {
      parts_.push_back(pieces[end].executor->statistics(phase, pieces[end].buffers));
      counts_.push_back(static_cast<double>(pieces[end].executor->batch() * coupled.positions));
      outs_.push_back(parts_.back());
    }
    const DevPtr slot = slots_.ptr() + static_cast<std::size_t>(pieces[begin].shard) * slot_bytes;
    merge(moments, parts_, counts_, std::span<const DevPtr>(&slot, 1), coupled.channels);
    begin = end;
  }
  const PartialSum mine{{communicator_.rank(), 0}, slots_.ptr()};
  communicator_.all_reduce(communicator_.size(), std::span<const PartialSum>(&mine, 1),
                           all_slots_.ptr(), shards * 2 * coupled.channels);
  slots_of_shards_.clear();
  counts_.clear();
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    slots_of_shards_.push_back(all_slots_.ptr() + static_cast<std::size_t>(shard) * slot_bytes);
    counts_.push_back(static_cast<double>(shard_sizes[shard] * coupled.positions));
  }
  if (!outs_.empty()) merge(moments, slots_of_shards_, counts_, outs_, coupled.channels);
}

}  // namespace dpt
