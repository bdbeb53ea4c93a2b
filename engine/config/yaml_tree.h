// YAML text as a tree. Each value records its place in the text.
//
// Built from yaml-cpp's parse events rather than its Node, because Node accepts duplicate keys,
// follows cyclic aliases forever and forgets whether a scalar was quoted. Anything that a config
// does not need is refused: custom tags, several documents, merge keys, excessive depth or size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/issue.h"

namespace dpt {

struct YamlNode {
  enum class Kind : std::uint8_t {
    null,
    scalar,
    list,
    map,
    broken  ///< already reported; readers skip it silently
  };
  Kind kind = Kind::null;
  bool is_plain = true;  ///< scalar: written without quotes
  std::string text;      ///< scalar
  Where where;
  std::vector<YamlNode> children;  ///< children of a list or a map
  std::string key;                 ///< key of this node in its map
  Where key_where;

  bool is_map() const { return kind == Kind::map; }
  bool is_list() const { return kind == Kind::list; }
  /// Returns the map's child of that name, or null.
  const YamlNode* find(const std::string& name) const;
  YamlNode* find(const std::string& name);
};

// Limits that fit a config of kMaxLayers layers as dpt writes it, with all defaults.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxConfigNodes = 400'000;  ///< counted with aliases expanded
inline constexpr int kMaxConfigDepth = 64;

/// Parses one document. Adds errors to `issues`; returns the part that could be read, `broken` if
/// none could. An empty document is null.
YamlNode parse_yaml(const std::string& text, const std::string& file,
                    std::vector<ConfigIssue>& issues);

}  // namespace dpt
