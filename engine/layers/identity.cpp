// Identity: passes its input on, like torch.nn.Identity. Gives a value another name, or replaces a
// removed layer.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"

namespace dpt {

struct IdentityOptions {};

class Identity final : public Layer {
 public:
  using Options = IdentityOptions;

  explicit Identity(const Options&) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }
  bool is_view() const override { return true; }
  std::string write_ops(OpWriter&, const OpContext& context) const override {
    return context.in[0];
  }
  OpDesc describe(const LayerContext&) const override { return {}; }
};

LayerKind identity_layer() {
  static const ObjectTable table = object_table<IdentityOptions>(
      "Identity", "Passes its input on unchanged, like torch.nn.Identity.", {});
  return layer_kind<Identity>(table);
}

}  // namespace dpt
