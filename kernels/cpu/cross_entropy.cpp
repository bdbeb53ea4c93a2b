#include "kernels/cpu/cross_entropy.h"

#include <cassert>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/common/softmax.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"

namespace dpt {
namespace {

/// One thread for any team: a batch of logits is small, and the loss is summed in sample order. A
/// row of bf16 logits is widened, computed on in fp32, and its gradient rounded.
template <class T>
class CpuCrossEntropy final : public CrossEntropyOp {
 public:
  explicit CpuCrossEntropy(const CrossEntropyDesc& desc)
      : d_(desc), row_(desc.type == DType::bf16 ? static_cast<std::size_t>(desc.classes) : 0) {}

  void run(const CrossEntropyArgs& args) override {
    const T* logits = host<const T>(args.logits);
    const auto* labels = host<const std::int32_t>(args.labels);
    const auto* slots = host<const std::int32_t>(args.slots);
    T* gradient = d_.training ? host<T>(args.dlogits) : nullptr;
    float* sample_loss = host(args.sample_loss);
    auto* prediction = host<std::int32_t>(args.prediction);
    const float scale = gradient ? *host(args.inverse_count) : 0.0F;
    double loss_sum = 0;
    std::int64_t correct = 0;
    for (std::int64_t k = 0; k < d_.batch; ++k) {
      const std::int32_t label = labels[slots[k]];
      assert(label >= 0 && label < d_.classes);
      const std::int64_t at = k * d_.classes;
      const SoftmaxRow row = run_row(logits + at, label, scale, gradient ? gradient + at : nullptr);
      loss_sum += static_cast<double>(row.loss);
      correct += row.prediction == label ? 1 : 0;
      if (sample_loss) sample_loss[k] = row.loss;
      if (prediction) prediction[k] = row.prediction;
    }
    auto* metrics = host<StepMetrics>(args.metrics);
    if (args.write == GradWrite::overwrite) *metrics = {.stop_votes = metrics->stop_votes};
    metrics->loss_sum = static_cast<float>(static_cast<double>(metrics->loss_sum) + loss_sum);
    metrics->correct += static_cast<float>(correct);
    metrics->count += static_cast<float>(d_.batch);
  }

 private:
  SoftmaxRow run_row(const float* logits, std::int32_t label, float scale, float* gradient) {
    return softmax_cross_entropy(logits, static_cast<std::int32_t>(d_.classes), label,
                                 d_.label_smoothing, scale, gradient);
  }
  SoftmaxRow run_row(const Bf16* logits, std::int32_t label, float scale, Bf16* gradient) {
    for (std::size_t c = 0; c < row_.size(); ++c) row_[c] = to_float(logits[c]);
    const SoftmaxRow row = run_row(row_.data(), label, scale, gradient ? row_.data() : nullptr);
    if (gradient) cpu_to_bf16(gradient, row_.data(), d_.classes);
    return row;
  }

  CrossEntropyDesc d_;
  std::vector<float> row_;  ///< one row in fp32; empty where the rows are
};

}  // namespace

std::unique_ptr<CrossEntropyOp> make_cpu_cross_entropy(const CrossEntropyDesc& desc) {
  check_cpu_desc("cross-entropy", desc.type, desc.batch);
  if (desc.classes < 1) {
    fail(ErrorKind::device, "cpu: cross-entropy needs at least 1 class, not {}", desc.classes);
  }
  if (desc.type == DType::bf16) return std::make_unique<CpuCrossEntropy<Bf16>>(desc);
  return std::make_unique<CpuCrossEntropy<float>>(desc);
}

}  // namespace dpt
