// The registry of the layers in kinds.h, with their names in other systems.
#include "engine/layers/kinds.h"

namespace dpt {

const Registry<LayerKind>& layer_kinds() {
  const char* in_loss =
      "no layer at all: loss: {type: cross_entropy} takes the softmax of the last layer's "
      "outputs";
  static const Registry<LayerKind> registry(
      "layer", all_layers(),
      // Names of the same layers in Keras, Caffe and PyTorch.
      {{"Conv2D", "Conv2d"},
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
       {"View", "Flatten"}});
  return registry;
}

std::unique_ptr<Layer> make_layer(const Variant& spec) {
  return layer_kinds().at(spec.type).make(spec);
}

}  // namespace dpt
