#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ExportOptions {
  std::string target, torch, onnx, use;
  std::string preprocessing;  ///< layout of the images, "nhwc" or "nchw"; empty: no preprocessing
  std::vector<std::string> overrides;
  bool include_normalisation = false, softmax = false, overwrite = false, allow_other_model = false,
       json = false;
};

int run_export(const ExportOptions& options);

}  // namespace dpt
