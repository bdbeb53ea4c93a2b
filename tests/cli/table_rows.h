// Reads the tables that dpt eval --predictions and dpt predict write.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace dpt::testing {

using TableRow = std::map<std::string, std::string>;

/// Returns the fields of a line. A quoted field may contain commas.
inline std::vector<std::string> table_fields(const std::string& line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const bool is_quoted = line[begin] == '"';
    const std::size_t close = is_quoted ? line.find('"', begin + 1) : begin;
    const std::size_t end = std::min(line.find(',', close), line.size());
    fields.push_back(is_quoted ? line.substr(begin + 1, close - begin - 1)
                               : line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

inline std::vector<TableRow> table_rows(const std::string& text) {
  std::vector<TableRow> rows;
  std::vector<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = table_fields(line);
    if (names.empty()) {
      names = fields;
      continue;
    }
    REQUIRE(fields.size() == names.size());
    rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) rows.back()[names[i]] = fields[i];
  }
  return rows;
}

inline double value_in(const TableRow& row, const std::string& name) {
  return std::stod(row.at(name));
}

}  // namespace dpt::testing
