// All layers: one line each. The class itself is in its own .cpp, see kind.h.
#include <algorithm>
#include <array>
#include <cassert>

#include "engine/layers/layer.h"

namespace dpt {

/// Defined in kind.h, made in each layer's .cpp.
template <class L>
LayerKind kind_of();

constexpr LayerKind (*kKinds[])() = {
    &kind_of<class Conv2d>,             //
    &kind_of<class ConvTranspose2d>,    //
    &kind_of<class Linear>,             //
    &kind_of<class ReLU>,               //
    &kind_of<class LeakyReLU>,          //
    &kind_of<class ReLU6>,              //
    &kind_of<class GELU>,               //
    &kind_of<class SiLU>,               //
    &kind_of<class Sigmoid>,            //
    &kind_of<class Tanh>,               //
    &kind_of<class Softplus>,           //
    &kind_of<class Hardswish>,          //
    &kind_of<class Hardsigmoid>,        //
    &kind_of<class BatchNorm1d>,        //
    &kind_of<class BatchNorm2d>,        //
    &kind_of<class GroupNorm>,          //
    &kind_of<class LayerNorm>,          //
    &kind_of<class LayerNorm2d>,        //
    &kind_of<class PReLU>,              //
    &kind_of<class LayerScale>,         //
    &kind_of<class Dropout>,            //
    &kind_of<class Dropout2d>,          //
    &kind_of<class StochasticDepth>,    //
    &kind_of<class Add>,                //
    &kind_of<class Concat>,             //
    &kind_of<class Multiply>,           //
    &kind_of<class MaxPool2d>,          //
    &kind_of<class AvgPool2d>,          //
    &kind_of<class AdaptiveAvgPool2d>,  //
    &kind_of<class AdaptiveMaxPool2d>,  //
    &kind_of<class ZeroPad2d>,          //
    &kind_of<class Upsample>,           //
    &kind_of<class PadChannels>,        //
    &kind_of<class Flatten>,            //
    &kind_of<class Identity>,           //
};

std::span<const LayerKind> layer_kinds() {
  static const auto kinds = [] {
    std::array<LayerKind, std::size(kKinds)> made{};
    std::transform(std::begin(kKinds), std::end(kKinds), made.begin(),
                   [](LayerKind (*kind)()) { return kind(); });
    return made;
  }();
  return kinds;
}

const VariantTable& layer_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "layer";
    for (const LayerKind& kind : layer_kinds()) made.alternatives.push_back(kind.table);
    const char* in_loss =
        "no layer at all: loss: {type: cross_entropy} takes the softmax of the last layer's "
        "outputs";
    // Keras, Caffe and PyTorch names of the same things.
    made.hints = {{"Conv2D", "Conv2d"},
                  {"Convolution", "Conv2d"},
                  {"Convolution2D", "Conv2d"},
                  {"conv", "Conv2d"},
                  {"Conv2DTranspose", "ConvTranspose2d"},
                  {"Deconvolution", "ConvTranspose2d"},
                  {"Deconv2d", "ConvTranspose2d"},
                  {"Dense", "Linear"},
                  {"InnerProduct", "Linear"},
                  {"FullyConnected", "Linear"},
                  {"fc", "Linear"},
                  {"Relu", "ReLU"},
                  {"Activation", "ReLU"},
                  {"LeakyRelu", "LeakyReLU"},
                  {"Relu6", "ReLU6"},
                  {"Gelu", "GELU"},
                  {"Swish", "SiLU"},
                  {"swish", "SiLU"},
                  {"TanH", "Tanh"},
                  {"HardSwish", "Hardswish"},
                  {"hard_swish", "Hardswish"},
                  {"HardSigmoid", "Hardsigmoid"},
                  {"hard_sigmoid", "Hardsigmoid"},
                  {"DropOut", "Dropout"},
                  {"SpatialDropout2D", "Dropout2d"},
                  {"BatchNorm", "BatchNorm1d or BatchNorm2d"},
                  {"BatchNormalization", "BatchNorm2d"},
                  {"SyncBatchNorm", "BatchNorm2d with sync: true"},
                  {"GroupNormalization", "GroupNorm"},
                  {"LayerNormalization", "LayerNorm"},
                  {"LayerNormChannels", "LayerNorm2d"},
                  {"InstanceNorm2d", "GroupNorm with num_groups = channels"},
                  {"ParametricReLU", "PReLU"},
                  {"PRelu", "PReLU"},
                  {"DropPath", "StochasticDepth"},
                  {"Concatenate", "Concat"},
                  {"Cat", "Concat"},
                  {"Mul", "Multiply"},
                  {"ZeroPadding2D", "ZeroPad2d"},
                  {"UpSampling2D", "Upsample"},
                  {"LambdaLayer", "PadChannels after AvgPool2d with kernel_size 1, stride 2"},
                  {"UpsamplingNearest2d", "Upsample"},
                  {"Sum", "Add"},
                  {"Eltwise", "Add"},
                  {"ElementwiseAdd", "Add"},
                  {"Softmax", in_loss},
                  {"LogSoftmax", in_loss},
                  {"SoftmaxWithLoss", in_loss},
                  {"MaxPool", "MaxPool2d"},
                  {"MaxPooling2D", "MaxPool2d"},
                  {"Pooling", "MaxPool2d or AvgPool2d"},
                  {"AvgPool", "AvgPool2d"},
                  {"AveragePooling2D", "AvgPool2d"},
                  {"GlobalAveragePooling2D", "AdaptiveAvgPool2d"},
                  {"GlobalAvgPool2d", "AdaptiveAvgPool2d"},
                  {"GlobalMaxPooling2D", "AdaptiveMaxPool2d"},
                  {"GlobalMaxPool2d", "AdaptiveMaxPool2d"},
                  {"Reshape", "Flatten"},
                  {"View", "Flatten"}};
    return made;
  }();
  return table;
}

std::unique_ptr<Layer> make_layer(const Variant& spec) {
  for (const LayerKind& kind : layer_kinds()) {
    if (kind.table->name == spec.type) return kind.make(spec);
  }
  assert(false && "make_layer: the reader lets no unknown type through");
  return nullptr;
}

}  // namespace dpt
