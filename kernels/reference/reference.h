// Plain double-precision implementations of every operation, forward and backward, written to be
// easy to read. Tests and the self check compare the backends' kernels with them. Activations are
// (batch, h, w, c), convolution weights (out, kh, kw, in/groups), linear weights (out, in), as in
// kernels/backend.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace dpt::reference {

using Values = std::vector<double>;

/// Computes the convolution alone, with the output (batch, conv_out). Adds `bias` unless it is
/// empty.
Values conv(const Conv2dDesc& d, const Values& x, const Values& weight, const Values& bias);

/// Gradients of an operation with parameters.
struct Gradients {
  Values x, weight, bias;
};

/// Computes the convolution and the operations that the description fuses with it. Ignores `bias`
/// if d.bias is false.
Values conv2d(const Conv2dDesc& d, const Values& x, const Values& weight, const Values& bias);
Gradients conv2d_backward(const Conv2dDesc& d, const Values& x, const Values& weight,
                          const Values& bias, Values dy);

/// Computes a transposed convolution. In the convolution that it transposes, y and dy take the
/// place of the input, and x and dx that of the output.
Values conv_transpose2d(const ConvTranspose2dDesc& d, const Values& x, const Values& weight,
                        const Values& bias);
Gradients conv_transpose2d_backward(const ConvTranspose2dDesc& d, const Values& x,
                                    const Values& weight, const Values& dy);

/// Describes a linear layer as a 1x1 convolution over a 1x1 image.
Conv2dDesc as_convolution(const LinearDesc& d);
Values linear(const LinearDesc& d, const Values& x, const Values& weight, const Values& bias);
Gradients linear_backward(const LinearDesc& d, const Values& x, const Values& weight,
                          const Values& bias, const Values& dy);

Values relu(Values x);
/// Returns dy where y (ReLU's output) is positive or NaN, and 0 elsewhere.
Values relu_backward(Values dy, const Values& y);

Values activation(const ActivationDesc& d, const Values& x);
Values activation_backward(const ActivationDesc& d, const Values& x, const Values& dy);

/// Returns the factors by which dropout multiplies x and dy: 0 or 1 / (1 - p) for each element.
/// ids[k] belongs to sample k.
Values dropout_factors(const DropoutDesc& d, const std::vector<std::int64_t>& ids,
                       std::int64_t step);
Values product(const Values& a, const Values& b);

/// Sums the inputs. `x` holds all inputs, one after another. The gradient has the same order.
Values sum(const SumDesc& d, const Values& x);
Values sum_backward(const SumDesc& d, const Values& x, Values dy);

/// Normalises the batch with its own statistics.
Values batch_norm(const BatchNormDesc& d, const Values& x, const Values& weight,
                  const Values& bias);
Gradients batch_norm_backward(const BatchNormDesc& d, const Values& x, const Values& weight,
                              const Values& bias, Values dy);

/// Parameters of batch normalisation and the running statistics with which it normalises.
struct RunningNormParams {
  const Values &weight, &bias, &mean, &variance;
};
/// Normalises each channel with its running statistics. They have no gradients.
Values running_norm(const BatchNormDesc& d, const Values& x, const RunningNormParams& params);
Gradients running_norm_backward(const BatchNormDesc& d, const Values& x,
                                const RunningNormParams& params, Values dy);

/// Returns, for each window of max pooling, how far its second-largest element is below the
/// largest. Infinity for a window of one element, and for every window of average pooling.
Values pool_margins(const Pool2dDesc& d, const Values& x);

/// Pools x. A window of max pooling is won by its last NaN, if there is one, otherwise by the first
/// of its largest elements.
Values pool(const Pool2dDesc& d, const Values& x);
Values pool_backward(const Pool2dDesc& d, const Values& x, const Values& dy);

struct CrossEntropy {
  Values sample_loss;  ///< (batch)
  Values gradient;     ///< (batch, classes) of the sum of losses times `scale`
  std::vector<std::int32_t> prediction;
  double loss_sum = 0, weight = 0;
  std::int64_t correct = 0, labelled = 0;
};

/// Computes the loss of torch.nn.CrossEntropyLoss, summed over samples. labels[k] and row k of
/// `targets` belong to sample k. `targets` has the shape d.targets.
CrossEntropy cross_entropy(const CrossEntropyDesc& d, const Values& logits,
                           const std::vector<std::int32_t>& labels, double scale,
                           const Values& targets = {});

}  // namespace dpt::reference
