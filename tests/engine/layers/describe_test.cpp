// A layer's requests to a backend: every field of its options and its position in the net.
#include <algorithm>

#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

/// Returns the description of a layer in a net that computes in `type`, for training or evaluation.
template <class Desc>
Desc described(const Layer& layer, const ActivationShape& in, DType type, bool tf32, bool training,
               bool input_gradient) {
  LayerContext context;
  context.batch = 7;
  const std::vector<ActivationShape> inputs = inputs_of(layer, in);
  context.in = inputs;
  context.out = infer(layer, in);
  context.type = type;
  context.tf32 = tf32;
  context.training = training;
  context.input_gradient = input_gradient;
  context.seed = 11;
  context.stream = 12;
  return std::get<Desc>(layer.describe(context));
}

TEST_CASE("Conv2d hands its options and its context to the backend") {
  const auto plain = layer("Conv2d", {{"out_channels", integer(6)},
                                      {"kernel_size", Size2{3, 2}},
                                      {"stride", Size2{2, 1}},
                                      {"padding", Size2{0, 1}},
                                      {"dilation", Size2{1, 2}},
                                      {"groups", integer(2)},
                                      {"bias", false}});
  const ActivationShape in = image(4, 9, 8);
  const Conv2dDesc d = described<Conv2dDesc>(*plain, in, DType::f32, true, true, true);
  CHECK(d.batch == 7);
  CHECK(d.in == SampleShape{9, 8, 4});
  CHECK(d.conv_out == SampleShape{4, 8, 6});
  CHECK(d.out == d.conv_out);
  CHECK(d.kernel == Size2{3, 2});
  CHECK(d.stride == Size2{2, 1});
  CHECK(d.padding == Size2{0, 1});
  CHECK(d.dilation == Size2{1, 2});
  CHECK(d.groups == 2);
  CHECK_FALSE(d.bias);
  CHECK_FALSE(d.relu);
  CHECK_FALSE(d.pool);
  CHECK(d.type == DType::f32);
  CHECK(d.tf32);
  CHECK(d.training);
  CHECK(d.input_gradient);

  const auto fused =
      plain->fuse(*layer("ReLU"))
          ->fuse(*layer("AvgPool2d", pool({2, 3}, {{"stride", Size2{1, 2}},
                                                   {"padding", Size2{1, 0}},
                                                   {"ceil_mode", true},
                                                   {"count_include_pad", false},
                                                   {"divisor_override", integer(5)}})));
  for (const bool training : {false, true}) {
    const Conv2dDesc f = described<Conv2dDesc>(*fused, in, DType::bf16, false, training, false);
    CHECK(f.relu);
    CHECK(f.conv_out == d.conv_out);
    CHECK(f.out == infer(*fused, in).shape);
    CHECK(f.type == DType::bf16);
    CHECK_FALSE(f.tf32);
    CHECK(f.training == training);
    CHECK_FALSE(f.input_gradient);
    REQUIRE(f.pool);
    const Pool2dDesc& p = *f.pool;
    CHECK(p.kind == PoolKind::average);
    CHECK(p.kernel == Size2{2, 3});
    CHECK(p.stride == Size2{1, 2});
    CHECK(p.padding == Size2{1, 0});
    CHECK_FALSE(p.count_include_pad);
    CHECK(p.divisor_override == 5);
    CHECK(p.type == DType::bf16);
    CHECK(p.batch == 7);
    CHECK(p.in == d.conv_out);
    CHECK(p.out == f.out);
    CHECK(p.training == training);
    // The pooling's input gradient is the gradient of the convolution's output. The gradient of the
    // convolution's weights is computed from it.
    CHECK(p.input_gradient == training);
  }
}

TEST_CASE("Linear hands its options and its context to the backend") {
  const auto plain = layer("Linear", {{"out_features", integer(3)}});
  const ActivationShape in{{2, 3, 4}, true};
  const LinearDesc d = described<LinearDesc>(*plain, in, DType::f32, true, true, true);
  CHECK(d.batch == 7);
  CHECK(d.in == 24);
  CHECK(d.out == 3);
  CHECK(d.bias);
  CHECK_FALSE(d.relu);
  CHECK(d.type == DType::f32);
  CHECK(d.tf32);
  CHECK(d.training);
  CHECK(d.input_gradient);
  const auto bare = layer("Linear", {{"out_features", integer(3)}, {"bias", false}});
  const LinearDesc f =
      described<LinearDesc>(*bare->fuse(*layer("ReLU")), in, DType::bf16, false, false, false);
  CHECK_FALSE(f.bias);
  CHECK(f.relu);
  CHECK(f.type == DType::bf16);
  CHECK_FALSE(f.tf32);
  CHECK_FALSE(f.training);
  CHECK_FALSE(f.input_gradient);
  CHECK(plain->detail().empty());
  CHECK(bare->detail() == "no bias");
}

TEST_CASE("activations and dropout hand their options and their context to the backend") {
  const ActivationShape in = image(3, 6, 9);
  for (const bool yes : {false, true}) {
    const DType type = yes ? DType::bf16 : DType::f32;
    const auto softplus = layer("Softplus", {{"beta", 2.0}, {"threshold", 3.0}});
    const ActivationDesc a = described<ActivationDesc>(*softplus, in, type, false, yes, true);
    const auto& formula = std::get<activations::Softplus>(a.formula);
    CHECK(formula.beta == 2);
    CHECK(formula.threshold == 3);
    CHECK(a.batch == 7);
    CHECK(a.shape == in.shape);
    CHECK(a.type == type);
    CHECK(a.training == yes);
    const auto dropout = layer(yes ? "Dropout2d" : "Dropout", {{"p", 0.25}});
    const DropoutDesc d = described<DropoutDesc>(*dropout, in, type, false, yes, true);
    CHECK(d.p == 0.25);
    CHECK(d.channels == yes);
    CHECK(d.batch == 7);
    CHECK(d.shape == in.shape);
    CHECK(d.type == type);
    CHECK(d.training == yes);
    CHECK(d.seed == 11);
    CHECK(d.stream == 12);
  }
}

TEST_CASE("pooling, ReLU and Add hand their options and their context to the backend") {
  const ActivationShape in = image(3, 6, 9);
  const auto max = layer(
      "MaxPool2d",
      pool({2, 3}, {{"stride", Size2{3, 2}}, {"padding", Size2{1, 0}}, {"dilation", Size2{2, 1}}}));
  for (const bool yes : {false, true}) {
    const DType type = yes ? DType::bf16 : DType::f32;
    const Pool2dDesc p = described<Pool2dDesc>(*max, in, type, false, yes, !yes);
    CHECK(p.kind == PoolKind::max);
    CHECK(p.kernel == Size2{2, 3});
    CHECK(p.stride == Size2{3, 2});
    CHECK(p.padding == Size2{1, 0});
    CHECK(p.dilation == Size2{2, 1});
    CHECK(p.type == type);
    CHECK(p.batch == 7);
    CHECK(p.in == in.shape);
    CHECK(p.out == infer(*max, in).shape);
    CHECK(p.training == yes);
    CHECK(p.input_gradient == !yes);
    const ReluDesc r = described<ReluDesc>(*layer("ReLU"), in, type, false, yes, true);
    CHECK(r.batch == 7);
    CHECK(r.shape == in.shape);
    CHECK(r.type == type);
    CHECK(r.training == yes);
    const auto add = layer("Add");
    const std::unique_ptr<Layer> fused = add->fuse(*layer("ReLU"));
    const SumDesc s = described<SumDesc>(yes ? *fused : *add, in, type, false, yes, true);
    CHECK(s.batch == 7);
    CHECK(s.shape == in.shape);
    CHECK(s.inputs == 2);
    CHECK(s.relu == yes);
    CHECK(s.type == type);
    CHECK(s.training == yes);
  }
  const Pool2dDesc whole =
      described<Pool2dDesc>(*layer("AdaptiveAvgPool2d"), in, DType::f32, false, true, true);
  CHECK(whole.kind == PoolKind::average);
  CHECK(whole.kernel == Size2{6, 9});
  CHECK(whole.stride == Size2{6, 9});
  CHECK(whole.out == SampleShape{1, 1, 3});
  CHECK(whole.count_include_pad);
  CHECK(whole.divisor_override == 0);
}

TEST_CASE("joining, moving, normalising and scaling layers hand their options on") {
  const ActivationShape in = image(6, 4, 9);
  for (const bool yes : {false, true}) {
    const DType type = yes ? DType::bf16 : DType::f32;
    const ConcatDesc c = described<ConcatDesc>(*layer("Concat"), in, type, false, yes, true);
    CHECK(c.batch == 7);
    CHECK(c.in == std::vector<SampleShape>(2, in.shape));
    CHECK(c.out == SampleShape{4, 9, 12});
    CHECK(c.type == type);
    const ProductDesc p = described<ProductDesc>(*layer("Multiply"), in, type, false, yes, true);
    CHECK(p.batch == 7);
    CHECK(p.in == std::array{in.shape, in.shape});
    CHECK(p.out == in.shape);
    CHECK(p.type == type);
    const auto pad = layer("ZeroPad2d", {{"padding", std::vector<std::int64_t>{1, 2, 3, 4}}});
    const PixelMapDesc z = described<PixelMapDesc>(*pad, in, type, false, yes, true);
    CHECK(z.batch == 7);
    CHECK(z.in == in.shape);
    CHECK(z.out == SampleShape{11, 12, 6});
    CHECK(z.scale == Size2{1, 1});
    CHECK(z.before == Size2{3, 1});
    CHECK(z.type == type);
    const auto larger = layer("Upsample", {{"scale_factor", Size2{2, 3}}});
    const PixelMapDesc u = described<PixelMapDesc>(*larger, in, type, false, yes, true);
    CHECK(u.scale == Size2{2, 3});
    CHECK(u.before == Size2{0, 0});
    const auto channels = layer("PadChannels", {{"before", integer(2)}, {"after", integer(3)}});
    const PixelMapDesc n = described<PixelMapDesc>(*channels, in, type, false, yes, true);
    CHECK(n.batch == 7);
    CHECK(n.in == SampleShape{in.shape.h * in.shape.w, 6, 1});
    CHECK(n.out == SampleShape{in.shape.h * in.shape.w, 11, 1});
    CHECK(n.scale == Size2{1, 1});
    CHECK(n.before == Size2{0, 2});
    CHECK(n.type == type);
    const auto group =
        layer("GroupNorm", {{"num_groups", integer(3)}, {"eps", 0.5}, {"affine", yes}});
    const GroupNormDesc g = described<GroupNormDesc>(*group, in, type, false, yes, !yes);
    CHECK(g.batch == 7);
    CHECK(g.shape == in.shape);
    CHECK(g.groups == 3);
    CHECK(g.eps == 0.5F);
    CHECK(g.weight == yes);
    CHECK(g.bias == yes);
    CHECK(g.type == type);
    CHECK(g.training == yes);
    CHECK(g.input_gradient == !yes);
    const GroupNormDesc l = described<GroupNormDesc>(*layer("LayerNorm2d", {{"bias", yes}}), in,
                                                     type, false, yes, true);
    CHECK(l.batch == 7 * 36);
    CHECK(l.shape == SampleShape{1, 1, 6});
    CHECK(l.weight);
    CHECK(l.bias == yes);
    const GroupNormDesc a =
        described<GroupNormDesc>(*layer("LayerNorm"), in, type, false, yes, true);
    CHECK(a.batch == 7);
    CHECK(a.shape == SampleShape{1, 1, 216});
    const auto prelu = layer("PReLU", {{"num_parameters", integer(yes ? 6 : 1)}});
    const ChannelScaleDesc s = described<ChannelScaleDesc>(*prelu, in, type, false, yes, !yes);
    CHECK(s.batch == 7);
    CHECK(s.shape == in.shape);
    CHECK(s.one_weight == !yes);
    CHECK(s.negative_only);
    CHECK(s.type == type);
    CHECK(s.training == yes);
    CHECK(s.input_gradient == !yes);
    const ChannelScaleDesc f =
        described<ChannelScaleDesc>(*layer("LayerScale"), in, type, false, yes, true);
    CHECK_FALSE(f.one_weight);
    CHECK_FALSE(f.negative_only);
    const LinearDesc m =
        described<LinearDesc>(*layer("Linear", {{"out_features", integer(3)}, {"per_pixel", true}}),
                              in, type, false, yes, true);
    CHECK(m.batch == 7 * 36);
    CHECK(m.in == 6);
    CHECK(m.out == 3);
  }
}

TEST_CASE("ConvTranspose2d hands its options and its context to the backend") {
  const auto made = layer("ConvTranspose2d", {{"out_channels", integer(6)},
                                              {"kernel_size", Size2{3, 2}},
                                              {"stride", Size2{2, 1}},
                                              {"padding", Size2{0, 1}},
                                              {"output_padding", Size2{1, 0}},
                                              {"dilation", Size2{1, 2}},
                                              {"groups", integer(2)},
                                              {"bias", false}});
  const ActivationShape in = image(4, 9, 8);
  const ConvTranspose2dDesc d =
      described<ConvTranspose2dDesc>(*made, in, DType::f32, true, true, true);
  CHECK(d.batch == 7);
  CHECK(d.in == SampleShape{9, 8, 4});
  CHECK(d.out == SampleShape{20, 8, 6});
  CHECK(d.kernel == Size2{3, 2});
  CHECK(d.stride == Size2{2, 1});
  CHECK(d.padding == Size2{0, 1});
  CHECK(d.dilation == Size2{1, 2});
  CHECK(d.groups == 2);
  CHECK_FALSE(d.bias);
  CHECK(d.type == DType::f32);
  CHECK(d.tf32);
  CHECK(d.training);
  CHECK(d.input_gradient);
  const ConvTranspose2dDesc e =
      described<ConvTranspose2dDesc>(*made, in, DType::bf16, false, false, false);
  CHECK(e.type == DType::bf16);
  CHECK_FALSE(e.tf32);
  CHECK_FALSE(e.training);
  CHECK_FALSE(e.input_gradient);
}

TEST_CASE("the parameters of a layer have the names that its operation uses") {
  const ActivationShape in = image(6, 4, 9);
  for (const auto& each :
       {layer("Conv2d", {{"out_channels", integer(6)}, {"kernel_size", square(3)}}),
        layer("ConvTranspose2d", {{"out_channels", integer(6)}, {"kernel_size", square(3)}}),
        layer("Linear", {{"out_features", integer(6)}, {"per_pixel", true}}), layer("BatchNorm2d"),
        layer("GroupNorm", {{"num_groups", integer(3)}}), layer("LayerNorm"), layer("PReLU"),
        layer("LayerScale")}) {
    LayerContext context;
    context.in = {&in, 1};
    context.out = infer(*each, in);
    const OpDesc desc = each->describe(context);
    std::vector<std::string> names;
    for (const ParamSpec& param : each->params({&in, 1})) {
      if (param.role != ParamRole::counter) names.emplace_back(param.name());
    }
    CHECK(std::ranges::equal(names, param_names(desc)));
  }
}

TEST_CASE("weights and biases start by the options that are theirs") {
  const Options init = {{"weight_init", word("normal")}, {"weight_init_value", 2.0},
                        {"weight_init_std", 0.5},        {"bias_init", word("normal")},
                        {"bias_init_value", 3.0},        {"bias_init_std", 0.25}};
  const auto with = [&](Options options) {
    options.insert(options.end(), init.begin(), init.end());
    return options;
  };
  const ActivationShape pixels = image(4, 5, 5), features = vector_of(10);
  const std::vector<ParamSpec> conv =
      layer("Conv2d", with({{"out_channels", integer(6)}, {"kernel_size", Size2{3, 5}}}))
          ->params({&pixels, 1});
  const std::vector<ParamSpec> transposed =
      layer("ConvTranspose2d", with({{"out_channels", integer(6)}, {"kernel_size", Size2{3, 5}}}))
          ->params({&pixels, 1});
  const std::vector<ParamSpec> linear =
      layer("Linear", with({{"out_features", integer(6)}}))->params({&features, 1});
  for (const std::vector<ParamSpec>* params : {&conv, &transposed, &linear}) {
    REQUIRE(params->size() == 2);
    const ParamSpec &weight = params->at(0), &bias = params->at(1);
    CHECK(weight.suffix == "weight");
    CHECK(bias.suffix == "bias");
    CHECK(weight.init.kind == InitKind::normal);
    CHECK(weight.init.value == 2.0);
    CHECK(weight.init.stddev == 0.5);
    CHECK(bias.init.kind == InitKind::normal);
    CHECK(bias.init.value == 3.0);
    CHECK(bias.init.stddev == 0.25);
    CHECK(bias.layout == ParamLayout::plain);
    CHECK(bias.fan_in == weight.fan_in);
    CHECK(bias.fan_out == weight.fan_out);
  }
  CHECK(conv[0].fan_in == 4 * 15);
  CHECK(conv[0].fan_out == 6 * 15);
  CHECK(linear[0].fan_in == 10);
  CHECK(linear[0].fan_out == 6);
  const ParamSpec unset =
      layer("Linear", {{"out_features", integer(6)}})->params({&features, 1})[0];
  CHECK(unset.init.kind == InitKind::pytorch);
  CHECK(unset.init.value == 0.0);
  CHECK(unset.init.stddev == 1.0);
}

TEST_CASE("options of starting values that have no effect are refused, the bias's too") {
  const auto message = [](const Options& more) {
    Options all = {{"out_features", integer(2)}};
    all.insert(all.end(), more.begin(), more.end());
    const Variant made = variant("Linear", all);
    return made.table->check(made.options.get());
  };
  CHECK(message({{"bias", false}}).empty());
  CHECK(message({{"bias_init", word("constant")}}) == "bias_init: constant needs bias_init_value");
  CHECK(message({{"bias_init_std", 1.0}}) ==
        "bias_init_std has no effect with bias_init: default; it applies to normal only");
  for (const Options& more : {Options{{"bias_init", word("normal")}},
                              Options{{"bias_init_value", 1.0}}, Options{{"bias_init_std", 1.0}}}) {
    Options all = {{"bias", false}};
    all.insert(all.end(), more.begin(), more.end());
    CHECK(message(all) == "bias_init has no effect with bias: false");
  }
  CHECK(message({{"weight_init", word("normal")}, {"weight_init_value", 1.0}}).empty());
  CHECK(message({{"weight_init", word("kaiming_normal")}, {"weight_init_value", 1.0}}) ==
        "weight_init_value has no effect with weight_init: kaiming_normal; it applies to constant "
        "and normal only");
}

TEST_CASE("windows: as many as PyTorch, to the last one that fits") {
  const auto out = [](std::int64_t size, std::int64_t kernel, std::int64_t stride,
                      std::int64_t padding, bool ceil) {
    return infer(*layer("MaxPool2d", pool({kernel, kernel}, {{"stride", square(stride)},
                                                             {"padding", square(padding)},
                                                             {"ceil_mode", ceil}})),
                 image(1, size, size))
        .shape.h;
  };
  // The size that torch.nn.MaxPool2d gives with the same options.
  CHECK(out(5, 2, 2, 0, false) == 2);
  CHECK(out(5, 2, 2, 0, true) == 3);
  CHECK(out(6, 2, 2, 0, true) == 3);
  CHECK(out(4, 2, 3, 0, true) == 2);
  CHECK(out(4, 2, 4, 0, true) == 1);
  CHECK(out(4, 2, 4, 1, true) == 2);
  CHECK(out(5, 3, 3, 1, true) == 2);
  CHECK(out(6, 3, 3, 1, true) == 3);
  CHECK(out(2, 2, 1, 1, false) == 3);
  CHECK(out(3, 3, 5, 1, true) == 1);
}

}  // namespace
}  // namespace dpt::testing
