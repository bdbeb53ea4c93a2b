// Contract of an optimizer's formula, and the functions that a formula may use. Each formula is one
// header of this folder, written once for every backend. It is a struct with
//
//   static constexpr int kStates;  // flat buffers of state, at most kMaxOptimizerStates
//   struct Step { ... };           // constant over one update; computed by the host, in double
//   template <class T>
//   DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state);
//
// `update` is for one element. T is float, or a pack of floats with arithmetic operators and the
// functions below. `grad` has been clipped, and negated if the optimizer maximises. Branches may
// depend on `step` only. No term may be fused into a multiply-add by hand, and the compilers do not
// fuse either (-ffp-contract=off, -fmad=false), so every device and instruction set gives the same
// bits.
//
// A formula that needs norms of layers takes two passes over each range, which is then one
// parameter:
//
//   static constexpr bool kPreparesStates;  // true: `prepare` writes the states, not `update`
//   template <class T>  // the values whose norms `update` needs
//   DPT_HOST_DEVICE static void prepare(const Step& step, T param, T grad, T* state, T& a, T& b);
//   // the factor that follows from the sums of the squares of a and b
//   DPT_HOST_DEVICE static float ratio(const Step& step, double a_squares, double b_squares);
//   template <class T>
//   DPT_HOST_DEVICE static void update(const Step& step, float ratio, T& param, T grad, T* state);
//
// formulas.h lists all formulas; the loops of every backend are instantiated from that list.
#pragma once

#include <cmath>

#include "kernels/base/host_device.h"
#include "kernels/flat.h"

namespace dpt {

// ---- Scalar functions; each backend defines the same functions for packs -----------------------

DPT_HOST_DEVICE inline float square_root(float x) {
  return sqrtf(x);
}
/// Returns the larger of two numbers; NaN if either is NaN, like torch.maximum.
DPT_HOST_DEVICE inline float larger(float a, float b) {
  return a != a || a > b ? a : b;
}
/// Returns -1, 0 or 1. NaN stays NaN, unlike in torch.sign, so that a bad step shows.
DPT_HOST_DEVICE inline float sign_of(float x) {
  return x > 0 ? 1.0F : x < 0 ? -1.0F : x;
}

// ---- Both kinds of formulas --------------------------------------------------------------------

template <class Formula>
concept LayerwiseFormula = requires {
  Formula::kPreparesStates;
};

/// Returns true if the pass that writes the parameters also writes the states.
template <class Formula>
constexpr bool updates_states() {
  if constexpr (LayerwiseFormula<Formula>) return !Formula::kPreparesStates;
  return true;
}

/// Updates an element. Only formulas with norms use `ratio`.
template <class Formula, class T>
DPT_HOST_DEVICE inline void apply_formula(const typename Formula::Step& step,
                                          [[maybe_unused]] float ratio, T& param, T grad,
                                          T* state) {
  if constexpr (LayerwiseFormula<Formula>) {
    Formula::update(step, ratio, param, grad, state);
  } else {
    Formula::update(step, param, grad, state);
  }
}

// ---- Input of an update from the host ----------------------------------------------------------

/// The first bytes of an UpdateStep, with the formula's own Step.
template <class Formula>
struct FormulaStep {
  float gradient_sign = 1;  ///< -1 to maximise
  typename Formula::Step step;
};

// ---- The list ----------------------------------------------------------------------------------

template <class... Formulas>
struct FormulaList {
  static constexpr int kCount = sizeof...(Formulas);
  static_assert(((sizeof(FormulaStep<Formulas>) <= sizeof(UpdateStep)) && ...));
  static_assert(((Formulas::kStates <= kMaxOptimizerStates) && ...));
};

template <class Wanted, class... Formulas>
constexpr int index_in(FormulaList<Formulas...>) {
  constexpr bool kIs[] = {__is_same(Wanted, Formulas)...};
  for (int i = 0; i < static_cast<int>(sizeof...(Formulas)); ++i) {
    if (kIs[i]) return i;
  }
  return -1;
}

}  // namespace dpt
