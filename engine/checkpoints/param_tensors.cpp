#include "engine/checkpoints/param_tensors.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"
#include "kernels/base/error.h"

namespace dpt {

void check_shape(const TensorFile& file, const TensorEntry& entry, const Param& param) {
  if (entry.shape == param.spec.file_shape) return;
  fail(ErrorKind::data,
       "{}: tensor '{}': expected the shape [{}] of the config's model, found [{}]", file.path(),
       entry.name, fmt::join(param.spec.file_shape, ", "), fmt::join(entry.shape, ", "));
}

std::vector<std::int64_t> counts_of(const Param& param, const float* values) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(param.count));
  std::transform(values, values + param.count, counts.begin(), &UpdateCounter::count);
  return counts;
}

void put_counts(const Param& param, std::span<const std::int64_t> counts, float* values) {
  std::transform(counts.begin(), counts.begin() + param.count, values, &UpdateCounter::bits);
}

void read_into(const TensorFile& file, const TensorEntry& entry, const Param& param, float* flat) {
  if (param.spec.role == ParamRole::counter) {
    put_counts(param, file.read_integers(entry), flat + param.offset);
  } else {
    from_file_layout(param, file.read_floats(entry).data(), flat + param.offset);
  }
}

}  // namespace dpt
