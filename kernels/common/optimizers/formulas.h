// The list of all formulas. The loops of every backend are instantiated from this list. An
// OptimizerDesc identifies its formula by its index in the list. The index is never stored in
// files.
#pragma once

#include "kernels/common/optimizers/adadelta.h"
#include "kernels/common/optimizers/adagrad.h"
#include "kernels/common/optimizers/adam.h"
#include "kernels/common/optimizers/average.h"
#include "kernels/common/optimizers/lamb.h"
#include "kernels/common/optimizers/lars.h"
#include "kernels/common/optimizers/lion.h"
#include "kernels/common/optimizers/nadam.h"
#include "kernels/common/optimizers/radam.h"
#include "kernels/common/optimizers/rmsprop.h"
#include "kernels/common/optimizers/sgd.h"
#include "kernels/common/optimizers/yogi.h"

namespace dpt {

using OptimizerFormulas = FormulaList<                          //
    SgdFormula<false>, SgdFormula<true>,                        //
    AdamFormula<false>, AdamFormula<true>,                      //
    NAdamFormula,                                               //
    RAdamFormula,                                               //
    RmspropFormula<false, false>, RmspropFormula<false, true>,  //
    RmspropFormula<true, false>, RmspropFormula<true, true>,    //
    AdagradFormula,                                             //
    AdadeltaFormula,                                            //
    YogiFormula,                                                //
    LionFormula,                                                //
    LarsFormula,                                                //
    LambFormula,                                                //
    AverageFormula>;

template <class Formula>
constexpr int formula_index() {
  constexpr int kIndex = index_in<Formula>(OptimizerFormulas{});
  static_assert(kIndex >= 0, "the formula is not in OptimizerFormulas");
  return kIndex;
}

}  // namespace dpt
