// The mathematics of an operation: the sizes and functions that its description stands for.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace dpt::reference {

/// Parameters of an operation, in the order of its description's kParams.
using Params = std::vector<Values>;

/// Gradients with respect to an operation's inputs and parameters.
struct Derivatives {
  Derivatives(Values of_x, Params of_params) : x(std::move(of_x)), params(std::move(of_params)) {}
  Derivatives(Gradients g) : x(std::move(g.x)), params{std::move(g.weight), std::move(g.bias)} {}
  Values x;
  Params params;
};

/// An operation described as mathematics: sizes and functions. Dropout draws for the samples 0, 1,
/// ... and step 0. If batch norm uses running statistics, they are its third and fourth parameters,
/// and have no gradients.
struct Maths {
  std::size_t x = 0, y = 0;         ///< elements
  std::vector<std::size_t> params;  ///< elements of each; 0 if the operation lacks it
  std::size_t inputs = 1;           ///< number of inputs in x, one after another
  std::vector<std::size_t>
      sizes;  ///< elements of each input if they have separate gradients; else empty
  bool input_gradient = true;
  /// Returns the number of elements of an input.
  std::size_t input(std::size_t k) const { return sizes.empty() ? x / inputs : sizes[k]; }
  std::function<Values(const Values& x, const Params& params)> forward;
  std::function<Derivatives(const Values& x, const Params& params, const Values& dy)> backward;
};

/// Returns the mathematics of any operation.
Maths maths_of(const OpDesc& desc);

}  // namespace dpt::reference
