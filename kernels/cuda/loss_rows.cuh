// Code that all losses on a GPU share: teams of threads that process one row of outputs each, and
// the sums over rows. Only the source files of losses include this.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/common/bf16.h"
#include "kernels/common/sample_sums.h"
#include "kernels/common/softmax.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/is_last_block.h"

namespace dpt::loss_rows {

constexpr unsigned kFullMask = 0xffffffffU;
constexpr std::int64_t kMaxBlocks = 512;

/// Partial sums that a block stores for the last block.
struct BlockSums {
  double loss, weight;
  double of[kMaxMetricSums];
  unsigned labelled;
};

template <class T>
struct Call {
  const T* logits;  ///< (batch, classes)
  T* gradient;      ///< (batch, classes) or null
  const std::int32_t* labels;
  const std::int32_t* slots;
  const float* targets;  ///< rows of TargetShape::floats(), or null
  const float* scale;    ///< factor of the gradients; null: 1
  StepMetrics* metrics;
  float* sample_loss;        ///< or null
  float* sample_sums;        ///< (batch, sums.count) or null
  std::int32_t* prediction;  ///< or null
  float* outputs;            ///< (batch, classes) or null
  std::int32_t batch, classes;
  TargetShape shape;  ///< shape of the targets
  SumList sums;
  bool weighted;  ///< true if some sample may have a weight other than 1
  bool add;       ///< true: adds to the metrics
  BlockSums* partials;
  unsigned* counter;
};

/// One row, as its team sees it. If the team has no row, but must take part in the shuffles of its
/// warp, the row has no elements.
template <class T>
struct Row {
  const T* logits;
  T* gradient;  ///< or null; may be the memory of the logits
  std::int32_t classes, label;
  const float* targets;  ///< target of each output; null: only the label
  float* outputs;        ///< or null
  float scale;
  bool label_exists;  ///< true if the label is a valid class
};

/// The loss of a row.
struct RowLoss {
  float loss = 0;
  float weight = 1;
  bool counts = true;
  RowErrors errors;  ///< computed if SumList::errors is set
};

/// Largest logit so far, and its index.
struct Largest {
  float value;
  std::int32_t index;

  /// Keeps the larger of the two logits, or the one with the lower index if they are equal. NaN is
  /// never larger, as on the CPU.
  __device__ void join(float other, std::int32_t other_index) {
    const bool wins = other > value || (other == value && other_index < index);
    value = wins ? other : value;
    index = wins ? other_index : index;
  }
};

/// Team of `kThreads` threads for one row: a part of a warp, or a whole block of several warps.
/// Every result is the same in all threads of the team. All threads of a warp (or of the block, if
/// it is the team) must make the same calls.
template <int kThreads>
struct Team {
  static constexpr int kSize = kThreads, kWarps = kThreads / 32;

  __device__ static int lane() { return static_cast<int>(threadIdx.x % kThreads); }

  /// Call it once for each row, before sum(): only the barriers of sum() keep the next row's call
  /// from writing to `of_warps` while this one still reads it.
  __device__ static Largest largest(Largest mine) {
    for (int step = (kThreads < 32 ? kThreads : 32) / 2; step > 0; step /= 2) {
      const float value = __shfl_xor_sync(kFullMask, mine.value, step);
      const std::int32_t index = __shfl_xor_sync(kFullMask, mine.index, step);
      mine.join(value, index);
    }
    if constexpr (kWarps > 1) {
      __shared__ Largest of_warps[kWarps];
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
      __syncthreads();
      for (const Largest& other : of_warps) mine.join(other.value, other.index);
    }
    return mine;
  }

  __device__ static double sum(double mine) {
    if constexpr (kThreads == kSoftmaxLanes) {
      double total = 0;
      for (int from = 0; from < kThreads; ++from) {
        total += __shfl_sync(kFullMask, mine, from, kThreads);
      }
      return total;
    } else {
      for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(kFullMask, mine, step);
    }
    if constexpr (kWarps > 1) {
      __shared__ double of_warps[kWarps];
      __syncthreads();
      if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
      __syncthreads();
      mine = 0;
      for (const double part : of_warps) mine += part;
    }
    return mine;
  }

  /// Completes the reads that precede a call of sum() in all threads before any of them continues.
  __device__ static void order() {
    // Shuffles order no memory. The sum of several warps has barriers.
    if constexpr (kWarps <= 1) __syncwarp();
  }
};

/// Processes one row with a team.
template <class T, class Rows, int kThreads>
__device__ inline void run_row(const Call<T>& call, const Rows& rows, std::int32_t index,
                               float scale, BlockSums& sums) {
  using Mine = Team<kThreads>;
  const bool exists = index < call.batch;
  const std::int32_t classes = exists ? call.classes : 0, lane = Mine::lane();
  const std::int64_t at = static_cast<std::int64_t>(index) * classes;
  const T* logits = call.logits + at;
  const bool labelled = has_labels(call.shape.kind);
  const std::int32_t slot = exists ? call.slots[index] : 0;
  const std::int32_t label = !labelled ? -1 : exists ? call.labels[slot] : 0;
  const bool label_exists = label >= 0 && label < classes;
  const float* target =
      call.targets && exists ? call.targets + slot * call.shape.floats() : nullptr;
  const float own_weight = call.shape.weighted && exists ? target[call.shape.values] : 1.0F;

  Largest largest = {exists ? to_float(logits[0]) : 0.0F, 0};
  for (std::int32_t c = lane; c < classes; c += kThreads) {
    const float value = to_float(logits[c]);
    if (value > largest.value) largest = {value, c};
  }
  largest = Mine::largest(largest);
  RowFacts facts;
  if (call.sums.ranks) {
    const float at_label =
        label_exists ? to_float(logits[label]) : std::numeric_limits<float>::quiet_NaN();
    int above = 0;
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      above += c != label && is_above(to_float(logits[c]), c, at_label, label) ? 1 : 0;
    }
    facts.rank = static_cast<std::int32_t>(Mine::sum(static_cast<double>(above)));
  }
  T* gradient = call.gradient ? call.gradient + at : nullptr;
  // A sample that does not count has no gradient, whatever its outputs are.
  const Row<T> row = {logits,
                      own_weight == 0 ? nullptr : gradient,
                      classes,
                      label,
                      call.shape.values > 0 ? target : nullptr,
                      call.outputs ? call.outputs + at : nullptr,
                      scale * own_weight,
                      label_exists};
  RowLoss result = rows.template run<Mine>(row, largest, call.sums.errors);
  if (call.shape.weighted) {
    Mine::order();  // The gradient may be in the memory of the logits.
    for (std::int32_t c = lane; gradient && own_weight == 0 && c < classes; c += kThreads) {
      store(gradient[c], 0.0F);
    }
    result.counts = result.counts && own_weight != 0;
    result.loss = result.counts ? result.loss * own_weight : 0.0F;
    result.weight = result.counts ? result.weight * own_weight : 0.0F;
  }
  if (!exists || lane != 0) return;
  facts.is_right = largest.index == label;
  facts.errors = result.errors;
  sums.loss += static_cast<double>(result.loss);
  sums.weight += static_cast<double>(result.weight);
  sums.labelled += result.counts ? 1U : 0U;
  for (int i = 0; i < kMaxMetricSums; ++i) {
    if (i >= call.sums.count) break;
    const float value = result.counts ? sample_sum(call.sums.of[i], facts) : 0.0F;
    sums.of[i] += static_cast<double>(value);
    if (call.sample_sums) {
      call.sample_sums[static_cast<std::int64_t>(index) * call.sums.count + i] = value;
    }
  }
  if (call.sample_loss) call.sample_loss[index] = result.loss;
  if (call.prediction) call.prediction[index] = largest.index;
}

/// Adds the sums over the block's threads in a fixed order, valid in thread 0. Sums of weights are
/// computed only if the loss has weights. Between two calls, the block needs a barrier.
template <int kBlock, class T>
__device__ inline BlockSums block_sums(BlockSums mine, const Call<T>& call) {
  __shared__ BlockSums of_warps[kBlock / 32];
  for (unsigned step = 16; step > 0; step /= 2) {
    mine.loss += __shfl_down_sync(kFullMask, mine.loss, step);
    for (int i = 0; i < kMaxMetricSums; ++i) {
      if (i >= call.sums.count) break;
      mine.of[i] += __shfl_down_sync(kFullMask, mine.of[i], step);
    }
    if (!call.weighted) continue;
    mine.weight += __shfl_down_sync(kFullMask, mine.weight, step);
    mine.labelled += __shfl_down_sync(kFullMask, mine.labelled, step);
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  BlockSums total = {};
  if (threadIdx.x == 0) {
    for (const BlockSums& warp : of_warps) {
      total.loss += warp.loss;
      total.weight += warp.weight;
      total.labelled += warp.labelled;
      for (int i = 0; i < kMaxMetricSums; ++i) total.of[i] += warp.of[i];
    }
  }
  return total;
}

template <class T, class Rows, int kTeam, int kBlock>
__global__ void __launch_bounds__(kBlock) loss_kernel(Call<T> call, Rows rows) {
  constexpr int kTeams = kBlock / kTeam;
  const float scale = call.scale ? *call.scale : 1.0F;
  BlockSums sums = {};
  for (std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kTeams; first < call.batch;
       first += static_cast<std::int32_t>(gridDim.x) * kTeams) {
    run_row<T, Rows, kTeam>(call, rows, first + static_cast<std::int32_t>(threadIdx.x) / kTeam,
                            scale, sums);
  }
  sums = block_sums<kBlock>(sums, call);
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) call.partials[blockIdx.x] = sums;
    if (!is_last_block(call.counter, gridDim.x)) return;
    sums = {};
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kBlock) {
      sums.loss += __ldcg(&call.partials[b].loss);
      sums.weight += __ldcg(&call.partials[b].weight);
      sums.labelled += __ldcg(&call.partials[b].labelled);
      for (int i = 0; i < kMaxMetricSums; ++i) {
        if (i >= call.sums.count) break;
        sums.of[i] += __ldcg(&call.partials[b].of[i]);
      }
    }
    sums = block_sums<kBlock>(sums, call);
  }
  if (threadIdx.x == 0) {
    if (!call.weighted) {
      sums.labelled = static_cast<unsigned>(call.batch);
      sums.weight = static_cast<double>(call.batch);
    }
    const StepMetrics before = call.add ? *call.metrics : StepMetrics{};
    const auto plus = [](float value, double more) {
      return static_cast<float>(static_cast<double>(value) + more);
    };
    StepMetrics& metrics = *call.metrics;
    metrics.loss_sum = plus(before.loss_sum, sums.loss);
    metrics.weight = plus(before.weight, sums.weight);
    metrics.count = before.count;
    metrics.count.add_count(call.batch);
    metrics.labelled = before.labelled;
    metrics.labelled.add_count(sums.labelled);
    for (int i = 0; i < kMaxMetricSums; ++i) {
      if (i >= call.sums.count) break;
      metrics.sums[i] = before.sums[i];
      add_to_sum(metrics.sums[i], call.sums.of[i], sums.of[i]);
    }
  }
}

/// Launches the kernel of a loss. The number of blocks, and with it the order of the sums, depends
/// only on the batch. A team processes up to `kRows` rows before more blocks are used, because
/// handing over a block's sums has a cost.
template <class T, class Rows, int kTeam, int kBlock, int kRows>
void launch_rows(const CudaContext& context, Call<T> call, Rows rows) {
  const unsigned blocks = blocks_for(call.batch, kBlock / kTeam * kRows, kMaxBlocks);
  launch(loss_kernel<T, Rows, kTeam, kBlock>, blocks, kBlock, 0, context.stream, call, rows);
}

/// Loss operation that runs `Rows`, which is copied to the device with each call.
/// `rows.run<Team>(row, largest, wants_errors)` returns a RowLoss, the same in all threads of a
/// team, and writes the gradient times Row::scale. It calls Team::sum() at least once, reads logits
/// of other threads only before that, and calls Team::order() before it writes the gradient.
template <class T, class Rows>
class CudaLoss final : public LossOp {
 public:
  CudaLoss(const CudaContext& context, const LossDesc& desc, Rows rows, bool weighted,
           DeviceMemory constants)
      : context_(context),
        d_(desc),
        sums_(sum_list(desc)),
        rows_(rows),
        weighted_(weighted || desc.targets.weighted),
        constants_(std::move(constants)) {}

  void run(const LossArgs& args) override {
    Call<T> call = {};
    call.logits = device<const T>(args.logits);
    call.gradient = d_.training ? device<T>(args.dlogits) : nullptr;
    call.labels = device<const std::int32_t>(args.labels);
    call.slots = device<const std::int32_t>(args.slots);
    call.targets = device<const float>(args.targets);
    call.scale = d_.training ? device<const float>(args.inverse_count) : nullptr;
    call.metrics = device<StepMetrics>(args.metrics);
    call.sample_loss = device<float>(args.sample_loss);
    call.sample_sums = device<float>(args.sample_sums);
    call.prediction = device<std::int32_t>(args.prediction);
    call.outputs = device<float>(args.outputs);
    call.shape = d_.targets;
    call.batch = static_cast<std::int32_t>(d_.batch);
    call.classes = static_cast<std::int32_t>(d_.classes);
    call.sums = sums_;
    call.weighted = weighted_;
    call.add = args.write == GradWrite::add;
    call.partials = partial_sums<BlockSums>(context_, kMaxBlocks);
    call.counter = block_counters(context_);
    if (d_.classes <= 128) {
      launch_rows<T, Rows, kSoftmaxLanes, 1024, 2>(context_, call, rows_);
    } else if (d_.classes <= 2048) {
      launch_rows<T, Rows, 32, 256, 1>(context_, call, rows_);
    } else {
      launch_rows<T, Rows, 512, 512, 1>(context_, call, rows_);
    }
  }

 private:
  const CudaContext& context_;
  LossDesc d_;
  SumList sums_;
  Rows rows_;
  bool weighted_;
  DeviceMemory constants_;  ///< constants to which `rows` points
};

/// Creates the operation in the description's type.
template <class Rows>
std::unique_ptr<LossOp> make_loss(const CudaContext& context, const char* name,
                                  const LossDesc& desc, Rows rows, bool weighted,
                                  DeviceMemory constants) {
  check_cuda_desc(context, name, desc.type, desc.batch);
  // Rows are counted in 32 bits; leave room for the stride past the last ones.
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  if (desc.classes < 1 || desc.classes > kMax || desc.batch > kMax) {
    fail(ErrorKind::device,
         "{0}: {1} needs 1 to {2} classes and a batch of at most {2}, not {3} classes and a batch "
         "of {4}",
         context.name, name, kMax, desc.classes, desc.batch);
  }
  if (desc.type == DType::bf16) {
    return std::make_unique<CudaLoss<Bf16, Rows>>(context, desc, rows, weighted,
                                                  std::move(constants));
  }
  return std::make_unique<CudaLoss<float, Rows>>(context, desc, rows, weighted,
                                                 std::move(constants));
}

}  // namespace dpt::loss_rows
