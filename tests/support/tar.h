// Writes tar archives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace dpt::testing {

/// Returns a ustar header and the content, padded to whole blocks.
inline std::string tar_member(const std::string& name, const std::string& content, char type = '0',
                              const std::string& prefix = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  put(0, name.substr(0, 100));
  put(100, "0000644");
  put(124, fmt::format("{:011o}", content.size()));
  put(136, "00000000000");
  header[156] = type;
  put(257, "ustar");
  put(263, "00");
  put(345, prefix);
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

/// Returns a pax extended header for the next member.
inline std::string pax_header(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text;
  for (const auto& [key, value] : fields) {
    const std::size_t rest = key.size() + value.size() + 3;
    std::size_t length = rest + 1;
    while (length != rest + fmt::format("{}", length).size()) ++length;
    text += fmt::format("{} {}={}\n", length, key, value);
  }
  return tar_member("PaxHeaders/x", text, 'x');
}

inline const std::string kTarEnd(1024, '\0');

/// Returns an archive of pairs of name and content.
inline std::string tar(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string file;
  for (const auto& [name, content] : members) file += tar_member(name, content);
  return file + kTarEnd;
}

}  // namespace dpt::testing
