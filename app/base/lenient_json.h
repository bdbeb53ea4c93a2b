// Reads JSON files that a person or a crash may have left in any state.
#pragma once

#include <fstream>
#include <ios>
#include <string>

namespace dpt {

/// Returns the value in a file: null if the file cannot be opened or read (a folder, a disk that
/// fails), and a discarded value if it is not JSON. Throws nothing.
template <class Json>
Json lenient_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) return {};
  try {
    return Json::parse(in, nullptr, false);
  } catch (const std::ios_base::failure&) {
    return {};
  }
}

}  // namespace dpt
