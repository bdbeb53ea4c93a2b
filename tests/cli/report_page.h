// Parses the page of a dpt report.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/report/assets.h"
#include "tests/cli/tiny.h"
#include "tests/support/npy_data.h"
#include "tests/support/skip.h"

namespace dpt::testing {

inline constexpr const char* kDigits = R"(version: 1
name: digits
data: {dataset: digits, val_split: 300, batch_size: 64}
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 10}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 3}
log: {every: 5}
devices: [cpu]
)";

/// Returns true and reports a skipped test if this build lacks Chart.js, which reports need.
inline bool lacks_charts() {
  if (!dpt::report_assets().charts.empty()) return false;
  skip_test("this build has no Chart.js (DPT_CHARTS)");
  return true;
}

/// Returns the text between two others; REQUIRES both, in this order.
inline std::string between(const std::string& text, const std::string& begin,
                           const std::string& end) {
  const std::size_t at = text.find(begin);
  INFO("looked for: ", begin);
  REQUIRE(at != std::string::npos);
  const std::size_t from = at + begin.size(), to = text.find(end, from);
  REQUIRE(to != std::string::npos);
  return text.substr(from, to - from);
}

inline std::string section(const std::string& page, const std::string& id) {
  return between(page, "<section id=\"" + id + "\">", "</section>");
}

inline bool has_section(const std::string& page, const std::string& id) {
  return contains(page, "<section id=\"" + id + "\">");
}

inline nlohmann::json curve_data(const std::string& page) {
  return nlohmann::json::parse(
      between(page, "<script type=\"application/json\" id=\"curve-data\">", "</script>"));
}

/// Returns the points of a curve on the page; empty if the page lacks it.
inline nlohmann::json points_of(const std::string& page, const std::string& title, std::size_t run,
                                const std::string& of) {
  const nlohmann::json data = curve_data(page);
  for (const auto& chart : data["charts"]) {
    if (chart["title"] != title) continue;
    for (const auto& series : chart["series"]) {
      if (series["run"] == run && series["of"] == of) return series["points"];
    }
  }
  return nlohmann::json::array();
}

inline std::vector<std::byte> from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> bytes;
  std::uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    REQUIRE(digits.find(c) != std::string::npos);
    bits = bits << 6 | static_cast<std::uint32_t>(digits.find(c));
    have += 6;
    if (have < 8) continue;
    have -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> have & 0xff));
  }
  return bytes;
}

/// Returns the cells of a table in a section, row by row, without markup.
inline std::vector<std::vector<std::string>> cells_of(const std::string& html,
                                                      const std::string& style) {
  std::vector<std::vector<std::string>> rows;
  std::string table = between(html, "<table class=\"" + style + "\">", "</table>");
  for (std::size_t at = table.find("<tr>"); at != std::string::npos; at = table.find("<tr>", at)) {
    const std::size_t end = table.find("</tr>", at);
    rows.emplace_back();
    std::string cell;
    bool is_markup = false;
    for (std::size_t i = at + 4; i < end; ++i) {
      if (table.compare(i, 5, "</td>") == 0 || table.compare(i, 5, "</th>") == 0) {
        rows.back().push_back(cell);
        cell.clear();
      }
      if (table[i] == '<') is_markup = true;
      if (!is_markup) cell += table[i];
      if (table[i] == '>') is_markup = false;
    }
    at = end;
  }
  return rows;
}

/// Returns the config of a small net on arrays in `folder` with targets of `kind` (see npy_data.h).
inline std::string arrays_config(const std::string& folder, const std::string& kind,
                                 bool weighted) {
  return "version: 1\nname: arrays\ndata:\n" + npy_data(folder, kind, weighted) + R"(  val_split: 8
  batch_size: 8
  transforms:
    train: [{type: Normalize, mean: [0.5], std: [0.5]}]
    eval: [{type: Normalize, mean: [0.5], std: [0.5]}]
model:
  input: [1, 8, 8]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]
optimizer: {type: SGD, lr: 0.001}
train: {epochs: 2}
devices: [cpu]
loss: {type: )" +
         loss_of_kind(kind) + "}\n";
}

/// A folder in which reports are created.
struct Reports : Workplace {
  explicit Reports(const std::string& config = kDigits) : Workplace(config) {}

  /// Returns the page that the command creates, and stores its stderr in `messages`.
  std::string page(const std::vector<std::string>& words, std::string* messages = nullptr) const {
    std::vector<std::string> command = {"report"};
    command.insert(command.end(), words.begin(), words.end());
    const Finished finished = run_well(command, {"-o", "page.html"});
    CHECK(finished.out == "page.html\n");
    if (messages) *messages = finished.err;
    return read_file(dir.file("page.html"));
  }
};

}  // namespace dpt::testing
