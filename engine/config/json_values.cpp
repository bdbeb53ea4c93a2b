#include "engine/config/json_values.h"

#include <cassert>
#include <cmath>

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

struct ToJson {
  const Field& field;

  Json operator()(std::monostate) const { return nullptr; }
  Json operator()(std::int64_t value) const {
    if (value == 0 && !field.zero_word.empty()) return field.zero_word;
    return value;
  }
  Json operator()(double value) const { return json_number(value); }
  Json operator()(const Size2& value) const {
    if (value.h == value.w) return value.h;
    return Json::array({value.h, value.w});
  }
  Json operator()(const std::vector<double>& value) const {
    if (value.empty() && !field.zero_word.empty()) return field.zero_word;
    return value;
  }
  Json operator()(const TextPairs& value) const {
    Json map = Json::object();
    for (const auto& [key, text] : value) map[key] = text;
    return map;
  }
  template <class T>
  Json operator()(const T& value) const {
    return value;
  }
};

}  // namespace

Json json_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

Json json_of(const Field& field, const PlainValue& value) {
  return std::visit(ToJson{field}, value);
}

Json json_of(const Variant& chosen) {
  Json out = {{"type", chosen.type}};
  for (const Field& field : chosen.table->fields) {
    assert(field.get && "a field of a simple type");
    out[field.name] = json_of(field, field.get(chosen.options.get()));
  }
  return out;
}

}  // namespace dpt
