#include "engine/export/torch_state.h"

#include <algorithm>

#include "engine/checkpoints/param_tensors.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/tensor_view.h"
#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"

namespace dpt {

void write_torch_state(const std::string& path, const Plan& plan, const std::vector<float>& params,
                       const ExportFacts& facts) {
  const auto is_counter = [](const Param* param) { return param->spec.role == ParamRole::counter; };
  std::vector<const Param*> all;
  for (const Param& param : plan.params) all.push_back(&param);
  // Put wide elements first, so that each tensor begins at a multiple of its element's size, as
  // PyTorch's reader of safetensors requires.
  std::stable_partition(all.begin(), all.end(), is_counter);
  std::vector<TensorView> views;
  for (const Param* param : all) {
    views.push_back({param->name, is_counter(param) ? "I64" : "F32", param->spec.file_shape});
  }
  std::vector<float> file;
  std::vector<std::int64_t> integers;
  const auto values_of = [&](std::size_t i) -> const void* {
    const Param* param = all[i];
    const float* values = params.data() + param->offset;
    if (is_counter(param)) {
      integers = counts_of(*param, values);
      return integers.data();
    }
    file.resize(static_cast<std::size_t>(param->count));
    to_file_layout(*param, values, file.data());
    return file.data();
  };
  Metadata metadata = metadata_of(facts);
  metadata["format"] = "pt";  // required by the Hugging Face libraries
  write_safetensors(path, metadata, views, values_of, Checksum::none);
}

}  // namespace dpt
