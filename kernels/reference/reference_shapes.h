// Double-precision implementations (reference.h) of the operations that move, repeat or scale
// values, and of those that normalise each sample separately.
#pragma once

#include "kernels/reference/reference.h"

namespace dpt::reference {

/// Concatenates the inputs. `x` holds all inputs, one after another. The gradient has the same
/// order.
Values concat(const ConcatDesc& d, const Values& x);
Values concat_backward(const ConcatDesc& d, const Values& dy);
Values product(const ProductDesc& d, const Values& x);
Values product_backward(const ProductDesc& d, const Values& x, const Values& dy);

Values pixel_map(const PixelMapDesc& d, const Values& x);
Values pixel_map_backward(const PixelMapDesc& d, const Values& dy);

Values group_norm(const GroupNormDesc& d, const Values& x, const Values& weight,
                  const Values& bias);
Gradients group_norm_backward(const GroupNormDesc& d, const Values& x, const Values& weight,
                              const Values& dy);

Values channel_scale(const ChannelScaleDesc& d, const Values& x, const Values& weight);
Gradients channel_scale_backward(const ChannelScaleDesc& d, const Values& x, const Values& weight,
                                 const Values& dy);

}  // namespace dpt::reference
