// BatchNorm1d and BatchNorm2d, as in torch.nn: each channel is normalised over the samples and
// pixels of a shard (or of the whole batch), optionally with ReLU fused.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/relu.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct BatchNormOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
  bool sync = false;
};

/// Base class of BatchNorm1d and BatchNorm2d. They differ in the inputs that they accept.
class BatchNorm : public Layer {
 public:
  using Options = BatchNormOptions;

  explicit BatchNorm(const Options& options, bool relu) : options_(options), relu_(relu) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_kind(in[0]);
    return in[0];
  }

  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    std::vector<ParamSpec> all;
    const auto add = [&](const char* suffix, double start, ParamRole role) {
      ParamSpec& spec = all.emplace_back();
      spec.suffix = suffix;
      if (role != ParamRole::counter) spec.file_shape = {in[0].channels()};
      if (role != ParamRole::counter && in[0].flat && in[0].shape.h * in[0].shape.w > 1) {
        spec.layout = ParamLayout::vector_hwc;
        spec.hwc = in[0].shape;
      }
      spec.init = {InitKind::constant, start};
      spec.role = role;
      spec.momentum = static_cast<float>(options_.momentum.value_or(-1.0));
    };
    if (options_.affine) {
      add("weight", 1, ParamRole::trained);
      add("bias", 0, ParamRole::trained);
    }
    if (options_.track_running_stats) {
      add("running_mean", 0, ParamRole::running);
      add("running_var", 1, ParamRole::running);
      add("num_batches_tracked", 0, ParamRole::counter);
    }
    return all;
  }

  std::optional<Coupling> coupling(bool is_frozen) const override {
    if (is_frozen && options_.track_running_stats) return std::nullopt;
    return Coupling{options_.sync, !options_.track_running_stats};
  }

  std::unique_ptr<Layer> fuse(const Layer& next) const override {
    if (relu_ || !dynamic_cast<const ReLU*>(&next)) return nullptr;
    return with_relu();
  }

  std::optional<RunningNorm> running_norm() const override {
    if (!options_.track_running_stats) return std::nullopt;
    return RunningNorm{static_cast<float>(options_.eps), relu_};
  }

  OpDesc describe(const LayerContext& context) const override {
    BatchNormDesc desc;
    desc.batch = context.batch;
    desc.shape = context.out.shape;
    if (context.out.flat) desc.shape = {1, 1, context.out.elements()};
    desc.eps = static_cast<float>(options_.eps);
    desc.affine = options_.affine;
    desc.batch_statistics =
        !options_.track_running_stats || (context.training && !context.is_frozen);
    desc.relu = relu_;
    desc.type = context.type;
    desc.training = context.training;
    desc.input_gradient = context.input_gradient;
    return desc;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    if (!options_.track_running_stats) {
      fail(ErrorKind::usage,
           "track_running_stats: false normalises with the statistics of each batch, even in "
           "evaluation, so a sample's result depends on the others: this cannot be exported; train "
           "with running statistics");
    }
    const std::int64_t channels = context.shapes[0].channels();
    const auto factor = [&](const char* suffix, float usual) {
      if (options_.affine) return writer.param(suffix);
      return writer.floats({channels}, std::vector(static_cast<std::size_t>(channels), usual));
    };
    return writer.op("BatchNormalization",
                     {context.in[0], factor("weight", 1.0F), factor("bias", 0.0F),
                      writer.param("running_mean"), writer.param("running_var")},
                     {{"epsilon", static_cast<float>(options_.eps)}});
  }

  std::string detail() const override {
    std::string text = options_.sync ? "over the whole batch" : "";
    const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
    if (!options_.momentum) {
      add("cumulative average");
    } else if (*options_.momentum != 0.1) {
      add(fmt::format("momentum {}", *options_.momentum));
    }
    if (!options_.affine) add("not affine");
    if (!options_.track_running_stats) add("no running statistics");
    return text;
  }
  static ObjectTable make_table(const char* name, const char* doc) {
    using O = Options;
    return object_table<O>(
        name, doc,
        {field("eps", &O::eps, "Added to the variance for numerical stability.").above(0),
         field("momentum", &O::momentum,
               "Weight of a batch's statistics in the new running statistics; null: the average "
               "over all batches so far.")
             .range(0, 1),
         field("affine", &O::affine, "Add a learnable weight and bias per channel."),
         field("track_running_stats", &O::track_running_stats,
               "Keep running statistics and use them in evaluation. If false, evaluation uses the "
               "statistics of each group of at most data.batch_size samples."),
         field("sync", &O::sync,
               "Normalise over the whole batch, regardless of the number of replicas and shards, "
               "like SyncBatchNorm. If false, each shard is normalised by itself.")});
  }

 protected:
  const Options& options() const { return options_; }
  virtual void require_kind(const ActivationShape& in) const = 0;
  virtual std::unique_ptr<Layer> with_relu() const = 0;

 private:
  Options options_;
  bool relu_;
};

class BatchNorm2d final : public BatchNorm {
 public:
  explicit BatchNorm2d(const Options& options, bool relu = false) : BatchNorm(options, relu) {}

 private:
  void require_kind(const ActivationShape& in) const override {
    if (!in.flat) return;
    throw ShapeError(fmt::format("expected an image (C x H x W) as input, found a vector of {} "
                                 "features; use BatchNorm1d, or move it before the Flatten",
                                 in.elements()),
                     in);
  }
  std::unique_ptr<Layer> with_relu() const override {
    return std::make_unique<BatchNorm2d>(options(), true);
  }
};

class BatchNorm1d final : public BatchNorm {
 public:
  explicit BatchNorm1d(const Options& options, bool relu = false) : BatchNorm(options, relu) {}

 private:
  void require_kind(const ActivationShape& in) const override {
    if (in.flat) return;
    throw ShapeError(fmt::format("expected a vector of features as input, found an image of {} "
                                 "(C x H x W); use BatchNorm2d, or add {{type: Flatten}} before it",
                                 in.text()),
                     in);
  }
  std::unique_ptr<Layer> with_relu() const override {
    return std::make_unique<BatchNorm1d>(options(), true);
  }
};

LayerKind batch_norm1d_layer() {
  static const ObjectTable table = BatchNorm::make_table(
      "BatchNorm1d", "Batch normalisation of each feature of a vector, like torch.nn.BatchNorm1d.");
  return layer_kind<BatchNorm1d>(table);
}

LayerKind batch_norm2d_layer() {
  static const ObjectTable table = BatchNorm::make_table(
      "BatchNorm2d", "Batch normalisation of each channel of an image, like torch.nn.BatchNorm2d.");
  return layer_kind<BatchNorm2d>(table);
}

}  // namespace dpt
