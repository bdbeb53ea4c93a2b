// The smallest run, for tests of messages and refusals.
#pragma once

#include "tests/cli/workplace.h"

namespace dpt::testing {

/// A config with 40 training samples, five steps and one small layer.
inline constexpr const char* kTinyConfig = R"(version: 1
name: tiny
data: {dataset: synthetic, size: 48, test_size: 6, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 1}
log: {every: 1}
devices: [cpu]
)";

struct Tiny : Workplace {
  Tiny() : Workplace(kTinyConfig) {}
};

}  // namespace dpt::testing
