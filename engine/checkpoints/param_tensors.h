// Conversion of a parameter to and from a tensor of a file, shared by checkpoints and weights
// files.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/checkpoints/tensor_file.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Throws ErrorKind::data, naming both shapes, unless the tensor has the parameter's shape.
void check_shape(const TensorFile& file, const TensorEntry& entry, const Param& param);

/// Returns the counts of a counter parameter; `values` is its place in the flat buffer.
std::vector<std::int64_t> counts_of(const Param& param, const float* values);

/// Writes the counts of a file to their place in the flat buffer. Inverse of counts_of.
void put_counts(const Param& param, std::span<const std::int64_t> counts, float* values);

/// Reads a tensor of a file into its place in the flat buffer. Throws ErrorKind::data for a dtype
/// that the parameter cannot have.
void read_into(const TensorFile& file, const TensorEntry& entry, const Param& param, float* flat);

}  // namespace dpt
