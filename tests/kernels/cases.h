// Descriptions for the kernel tests: ordinary ones, and edge cases where kernels go wrong.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "kernels/backend.h"

namespace dpt::testing {

/// Returns the output size of a convolution along both axes.
inline SampleShape conv_shape(const SampleShape& in, std::int64_t channels, Size2 kernel,
                              Size2 stride, Size2 padding, Size2 dilation) {
  return {(in.h + 2 * padding.h - dilation.h * (kernel.h - 1) - 1) / stride.h + 1,
          (in.w + 2 * padding.w - dilation.w * (kernel.w - 1) - 1) / stride.w + 1, channels};
}

inline Conv2dDesc conv_case(std::int64_t batch, SampleShape in, std::int64_t channels, Size2 kernel,
                            Size2 stride = {1, 1}, Size2 padding = {0, 0}, Size2 dilation = {1, 1},
                            std::int64_t groups = 1) {
  Conv2dDesc d;
  d.batch = batch;
  d.in = in;
  d.kernel = kernel;
  d.stride = stride;
  d.padding = padding;
  d.dilation = dilation;
  d.groups = groups;
  d.conv_out = d.out = conv_shape(in, channels, kernel, stride, padding, dilation);
  return d;
}

/// Returns a pool over `in` with the floor output size; callers override the rest.
inline Pool2dDesc pool_case(PoolKind kind, std::int64_t batch, SampleShape in, Size2 kernel,
                            Size2 stride, Size2 padding = {0, 0}, Size2 dilation = {1, 1}) {
  Pool2dDesc d;
  d.kind = kind;
  d.kernel = kernel;
  d.stride = stride;
  d.padding = padding;
  d.dilation = dilation;
  d.batch = batch;
  d.in = in;
  d.out = conv_shape(in, in.c, kernel, stride, padding, dilation);
  return d;
}

/// Returns `conv` with a pool of its floor output size after it.
inline Conv2dDesc with_pool(Conv2dDesc conv, PoolKind kind, Size2 kernel, Size2 stride,
                            Size2 padding = {0, 0}) {
  conv.pool = pool_case(kind, conv.batch, conv.conv_out, kernel, stride, padding);
  conv.out = conv.pool->out;
  return conv;
}

inline std::int64_t weight_count(const Conv2dDesc& d) {
  return d.conv_out.c * d.kernel.h * d.kernel.w * (d.in.c / d.groups);
}

inline std::string text(const Size2& s) {
  return fmt::format("({},{})", s.h, s.w);
}
inline std::string text(const SampleShape& s) {
  return fmt::format("{}x{}x{}", s.h, s.w, s.c);
}
inline std::string text(const Pool2dDesc& d) {
  return fmt::format("{} pool {} kernel {} stride {} padding {} dilation {} -> {}",
                     d.kind == PoolKind::max ? "max" : "average", text(d.in), text(d.kernel),
                     text(d.stride), text(d.padding), text(d.dilation), text(d.out));
}
inline std::string text(const Conv2dDesc& d) {
  return fmt::format(
      "conv batch {} {} kernel {} stride {} padding {} dilation {} groups {} -> {}{}{}{}", d.batch,
      text(d.in), text(d.kernel), text(d.stride), text(d.padding), text(d.dilation), d.groups,
      text(d.conv_out), d.bias ? " bias" : "", d.relu ? " relu" : "",
      d.pool ? ", " + text(*d.pool) : "");
}

inline std::vector<Conv2dDesc> conv_cases() {
  std::vector<Conv2dDesc> cases = {
      conv_case(3, {8, 8, 1}, 6, {3, 3}),                              // C = 1
      conv_case(2, {28, 28, 1}, 20, {3, 3}),                           // LeNet's first
      conv_case(3, {13, 13, 20}, 50, {5, 5}),                          // LeNet's second
      conv_case(1, {9, 7, 3}, 5, {3, 2}),                              // batch 1, odd sizes
      conv_case(2, {5, 6, 4}, 7, {5, 6}),                              // kernel = input
      conv_case(2, {9, 9, 8}, 8, {2, 2}, {3, 3}),                      // stride > kernel
      conv_case(2, {8, 8, 16}, 16, {3, 3}, {1, 1}, {1, 1}),            // ResNet's
      conv_case(2, {8, 8, 16}, 32, {3, 3}, {2, 2}, {1, 1}),            // its downsampling
      conv_case(2, {8, 8, 16}, 32, {1, 1}, {2, 2}),                    // its shortcut
      conv_case(2, {10, 9, 3}, 4, {3, 3}, {1, 2}, {2, 0}, {2, 1}),     // uneven, dilated
      conv_case(2, {7, 7, 8}, 12, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 4),  // groups
      conv_case(2, {7, 7, 8}, 8, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 8),   // depthwise
      conv_case(2, {7, 7, 6}, 4, {3, 3}, {1, 1}, {2, 2}, {2, 2}, 2),   // groups and dilation
      conv_case(1, {1, 40, 2}, 3, {1, 7}, {1, 3}, {0, 3}),             // one row
      conv_case(2, {4, 4, 3}, 1, {3, 3}, {1, 1}, {3, 3}),              // padding = kernel, K = 1
      conv_case(1, {6, 300, 1}, 2, {3, 3}, {1, 1}, {1, 1}),            // wide
      conv_case(2, {3, 3, 130}, 70, {3, 3}, {1, 1}, {1, 1}),           // many channels
      conv_case(5, {1, 1, 1}, 1, {1, 1}),                              // one number
  };
  return cases;
}

inline std::vector<Pool2dDesc> pool_cases() {
  std::vector<Pool2dDesc> cases;
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    cases.push_back(pool_case(kind, 3, {8, 8, 20}, {2, 2}, {2, 2}));
    cases.push_back(pool_case(kind, 2, {9, 9, 50}, {2, 2}, {2, 2}));         // a row is dropped
    cases.push_back(pool_case(kind, 1, {7, 5, 3}, {3, 2}, {1, 2}));          // overlap
    cases.push_back(pool_case(kind, 2, {8, 8, 4}, {3, 3}, {2, 2}, {1, 1}));  // ResNet's stem
    cases.push_back(pool_case(kind, 2, {9, 9, 1}, {2, 2}, {3, 3}));          // gaps, C = 1
    cases.push_back(pool_case(kind, 2, {4, 4, 64}, {4, 4}, {4, 4}));         // global
    cases.push_back(pool_case(kind, 2, {17, 17, 2}, {17, 17}, {1, 1}));      // over 255 positions
    cases.push_back(pool_case(kind, 2, {5, 5, 3}, {1, 1}, {1, 1}));          // identity
    Pool2dDesc ceil = pool_case(kind, 2, {6, 7, 3}, {3, 3}, {2, 2});
    ceil.out = {3, 3, 3};  // ceil_mode: the last row's window extends beyond the input
    cases.push_back(ceil);
    Pool2dDesc ceil_padded = pool_case(kind, 2, {6, 6, 5}, {3, 3}, {2, 2}, {1, 1});
    ceil_padded.out = {4, 4, 5};
    cases.push_back(ceil_padded);
    if (kind == PoolKind::average) {
      ceil_padded.count_include_pad = false;
      cases.push_back(ceil_padded);
      ceil_padded.divisor_override = 5;
      cases.push_back(ceil_padded);
    } else {
      cases.push_back(pool_case(kind, 2, {9, 9, 3}, {3, 3}, {1, 1}, {1, 1}, {2, 3}));
      Pool2dDesc nothing = pool_case(kind, 1, {1, 4, 3}, {2, 2}, {1, 1}, {1, 1}, {3, 1});
      nothing.out = {1, 5, 3};  // dilation jumps over the only row: all padding
      cases.push_back(nothing);
    }
  }
  return cases;
}

}  // namespace dpt::testing
