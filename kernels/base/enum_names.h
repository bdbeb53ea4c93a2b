// The names of an enum's values, as configs, logs and messages write them. They are defined once,
// next to the enum:
//
//   enum class Precision : std::uint8_t { fp32, tf32 };
//   constexpr auto enum_names(Precision) {
//     return std::to_array<EnumName<Precision>>({{Precision::fp32, "fp32"}, ...});
//   }
//
// A field of such a type (`field("precision", &S::precision, ...)`) takes its choices from there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace dpt {

template <class E>
struct EnumName {
  E value;
  const char* name;
};

template <class E>
const char* name_of(E value) requires(std::is_enum_v<E>&& requires { enum_names(E{}); }) {
  for (const auto& [candidate, name] : enum_names(E{})) {
    if (candidate == value) return name;
  }
  return "?";
}

template <class E>
std::optional<E> enum_of(std::string_view text) {
  for (const auto& [value, name] : enum_names(E{})) {
    if (text == name) return value;
  }
  return std::nullopt;
}

template <class E>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : enum_names(E{})) names.emplace_back(entry.name);
  return names;
}

}  // namespace dpt
