#pragma once

#include "app/bench/bench_options.h"

namespace dpt {

int run_bench(const BenchOptions& options);

}  // namespace dpt
