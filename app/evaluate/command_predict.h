#pragma once

#include "app/evaluate/predict_options.h"

namespace dpt {

int run_predict(const PredictOptions& options);

}  // namespace dpt
