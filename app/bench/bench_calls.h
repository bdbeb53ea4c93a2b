#pragma once

#include "app/bench/bench_options.h"

namespace dpt {

/// `bench --calls`: times each call of a step on the first device separately.
int run_bench_calls(const BenchOptions& options);

}  // namespace dpt
