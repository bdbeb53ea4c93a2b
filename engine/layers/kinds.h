// One function per kind of layer, the list of them, and the helper that builds a kind.
#pragma once

#include "engine/layers/layer.h"

namespace dpt {

LayerKind conv2d_layer();
LayerKind conv_transpose2d_layer();
LayerKind linear_layer();
LayerKind relu_layer();
LayerKind leaky_relu_layer();
LayerKind relu6_layer();
LayerKind gelu_layer();
LayerKind silu_layer();
LayerKind sigmoid_layer();
LayerKind tanh_layer();
LayerKind softplus_layer();
LayerKind hardswish_layer();
LayerKind hardsigmoid_layer();
LayerKind batch_norm1d_layer();
LayerKind batch_norm2d_layer();
LayerKind group_norm_layer();
LayerKind layer_norm_layer();
LayerKind layer_norm2d_layer();
LayerKind prelu_layer();
LayerKind layer_scale_layer();
LayerKind dropout_layer();
LayerKind dropout2d_layer();
LayerKind stochastic_depth_layer();
LayerKind add_layer();
LayerKind concat_layer();
LayerKind multiply_layer();
LayerKind max_pool2d_layer();
LayerKind avg_pool2d_layer();
LayerKind adaptive_avg_pool2d_layer();
LayerKind adaptive_max_pool2d_layer();
LayerKind zero_pad2d_layer();
LayerKind upsample_layer();
LayerKind pad_channels_layer();
LayerKind flatten_layer();
LayerKind identity_layer();

/// Returns all layers, in the order of docs/reference/config.md.
inline std::vector<LayerKind> all_layers() {
  return {conv2d_layer(),
          conv_transpose2d_layer(),
          linear_layer(),
          relu_layer(),
          leaky_relu_layer(),
          relu6_layer(),
          gelu_layer(),
          silu_layer(),
          sigmoid_layer(),
          tanh_layer(),
          softplus_layer(),
          hardswish_layer(),
          hardsigmoid_layer(),
          batch_norm1d_layer(),
          batch_norm2d_layer(),
          group_norm_layer(),
          layer_norm_layer(),
          layer_norm2d_layer(),
          prelu_layer(),
          layer_scale_layer(),
          dropout_layer(),
          dropout2d_layer(),
          stochastic_depth_layer(),
          add_layer(),
          concat_layer(),
          multiply_layer(),
          max_pool2d_layer(),
          avg_pool2d_layer(),
          adaptive_avg_pool2d_layer(),
          adaptive_max_pool2d_layer(),
          zero_pad2d_layer(),
          upsample_layer(),
          pad_channels_layer(),
          flatten_layer(),
          identity_layer()};
}

/// Returns the layer kind of class L, whose constructor takes an L::Options. REQUIRES: `table`
/// describes L::Options and outlives the kind.
template <class L>
LayerKind layer_kind(const ObjectTable& table) {
  return {&table, [](const Variant& options) -> std::unique_ptr<Layer> {
            return std::make_unique<L>(options.as<typename L::Options>());
          }};
}

}  // namespace dpt
