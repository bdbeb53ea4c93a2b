#pragma once

#include "app/bench/bench_options.h"

namespace dpt {

/// `bench --data`: times the reading, decoding and transforming of the training samples.
int run_bench_data(const BenchOptions& options);

}  // namespace dpt
