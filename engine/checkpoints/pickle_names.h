// Names of the opcodes and values of a pickle, for messages.
// Source: CPython's Lib/pickletools.py
#pragma once

#include <string_view>

#include "engine/checkpoints/pickle_tree.h"

namespace dpt {

/// Returns the name of an opcode of protocols 0 to 5; empty for any other byte.
std::string_view pickle_opcode_name(unsigned char opcode);

/// Describes a kind of value: "a list".
const char* kind_text(PickleKind kind);

}  // namespace dpt
