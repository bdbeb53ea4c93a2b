#include "app/train/hyperparameters.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/base/catalog.h"
#include "engine/config/flat_values.h"
#include "engine/config/stored_spec.h"

namespace dpt {
namespace {

constexpr std::string_view kHyperparameters[] = {
    "seed", "data.batch_size", "data.val_split", "optimizer.", "lr_schedule.", "loss.", "train."};

/// Converts a YAML value to JSON.
Json json_of_value(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end) return number;
  if (text == "true" || text == "false") return text == "true";
  return text;
}

}  // namespace

Json hyperparameters_of(const TrainSpec& spec) {
  Json out = Json::object();
  for (const auto& [path, value] : flat_config(show_to_compare(catalog(), spec), "config").values) {
    const std::string& name = path;  // Clang cannot capture a structured binding
    const bool counts = std::any_of(
        std::begin(kHyperparameters), std::end(kHyperparameters), [&](std::string_view prefix) {
          return prefix.ends_with('.') ? name.starts_with(prefix) : name == prefix;
        });
    if (counts && value != "null") out[path] = json_of_value(value);
  }
  return out;
}

}  // namespace dpt
