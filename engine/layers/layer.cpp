#include "engine/layers/layer.h"

#include "kernels/base/error.h"

namespace dpt {

std::unique_ptr<Layer> Layer::fuse(const Layer&) const {
  return nullptr;
}

std::string Layer::write_ops(OpWriter&, const OpContext&) const {
  fail(ErrorKind::usage, "this type of layer has no counterpart among ONNX's operations");
}

}  // namespace dpt
