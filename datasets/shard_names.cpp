#include "datasets/shard_names.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "engine/config/paths.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::size_t kMaxShards = 100'000;

/// Returns the texts to which {A..B} or {a,b} expands; empty for other braces.
std::vector<std::string> alternatives(const std::string& braces) {
  std::vector<std::string> all;
  const std::size_t dots = braces.find("..");
  if (dots != std::string::npos) {
    const std::string first = braces.substr(0, dots), last = braces.substr(dots + 2);
    std::uint64_t a = 0, b = 0;
    const auto is_number = [](const std::string& text, std::uint64_t& value) {
      const char* end = text.data() + text.size();
      const auto [at, error] = std::from_chars(text.data(), end, value);
      return error == std::errc{} && at == end;
    };
    if (!is_number(first, a) || !is_number(last, b) || a > b || b - a >= kMaxShards) return {};
    // Pad all numbers to as many digits as the first has, as a shell does.
    for (std::uint64_t i = a; i <= b; ++i) all.push_back(fmt::format("{:0{}}", i, first.size()));
    return all;
  }
  if (braces.find(',') == std::string::npos) return {};
  for (std::size_t begin = 0;;) {
    const std::size_t end = braces.find(',', begin);
    all.push_back(braces.substr(begin, end - begin));
    if (end == std::string::npos) return all;
    begin = end + 1;
  }
}

/// Returns the patterns to which a text with braces expands, sorted.
std::vector<std::string> without_braces(const std::string& text, const std::string& field) {
  const std::size_t open = text.find('{');
  if (open == std::string::npos) return {text};
  const std::size_t close = text.find('}', open);
  const std::vector<std::string> chosen =
      close == std::string::npos ? std::vector<std::string>()
                                 : alternatives(text.substr(open + 1, close - open - 1));
  if (chosen.empty()) {
    fail(ErrorKind::usage,
         "{}: expected braces as in shard-{{000..099}}.tar or {{a,b}}.tar, in ascending order and "
         "with at most {} shards, found '{}'",
         field, kMaxShards,
         text.substr(open, close == std::string::npos ? close : close + 1 - open));
  }
  std::vector<std::string> all;
  for (const std::string& rest : without_braces(text.substr(close + 1), field)) {
    if (all.size() + chosen.size() > kMaxShards) {
      fail(ErrorKind::usage, "{}: expected at most {} shards, found more", field, kMaxShards);
    }
    for (const std::string& middle : chosen) all.push_back(text.substr(0, open) + middle + rest);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::vector<std::string> find_shards(const std::string& pattern, const std::string& field) {
  std::vector<std::string> shards;
  for (const std::string& path : without_braces(pattern, field)) {
    if (path.find_first_of("*?[") == std::string::npos) {
      shards.push_back(path);
      continue;
    }
    glob_t found = {};
    const int result = glob(path.c_str(), GLOB_ERR, nullptr, &found);
    const std::vector<std::string> names(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (result != 0) {
      fail(ErrorKind::data, "{}: {}: {}{}", field, path,
           result == GLOB_NOMATCH ? "no such file" : "its folder cannot be read",
           hint_of_default(pattern));
    }
    shards.insert(shards.end(), names.begin(), names.end());
  }
  std::vector<std::string> sorted = shards;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    fail(ErrorKind::usage, "{}: expected each shard once, found {} twice", field, *twice);
  }
  return shards;
}

}  // namespace dpt
