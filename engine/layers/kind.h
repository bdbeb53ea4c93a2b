// How a layer's class becomes an entry of the registry.
//
// A layer's .cpp defines its class with `Options`, `table()` and a constructor from Options, and
// ends with `template LayerKind kind_of<ItsClass>();`. registry.cpp then names the class in one
// line and needs no header of it.
#pragma once

#include "engine/layers/layer.h"

namespace dpt {

template <class L>
LayerKind kind_of() {
  return {&L::table(), [](const Variant& options) -> std::unique_ptr<Layer> {
            return std::make_unique<L>(options.as<typename L::Options>());
          }};
}

}  // namespace dpt
