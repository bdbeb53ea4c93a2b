// Tables of comma-separated values in UTF-8, with or without a byte order mark. Lines end with LF
// or CR LF. Fields with delimiters, quotes (doubled) or line breaks are in double quotes. The first
// line has the names of the columns, and every other line has the same number of fields. Source:
// RFC 4180
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dpt {

/// Reads a file line by line, with memory for one line. Used by one thread. Throws ErrorKind::data
/// with file and line.
class CsvReader {
 public:
  /// Reads the header.
  CsvReader(const std::string& path, char delimiter);
  ~CsvReader();
  CsvReader(const CsvReader&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<std::string>& header() const { return header_; }
  /// Returns the index of the column `name`, which the config key `asked_by` names.
  std::size_t column(const std::string& name, const std::string& asked_by) const;

  /// Reads the next line. Returns false at the end of the file.
  bool next();
  /// Returns a field of the current line.
  std::string_view field(std::size_t column) const;
  /// Returns the number of the line on which the current record begins. The header has 1.
  std::int64_t line() const { return line_; }
  /// Returns "x.csv, line 7, column 2 (width)".
  std::string place(std::size_t column) const { return place(line_, column); }
  std::string place(std::int64_t line, std::size_t column) const;
  /// Returns the size of the file.
  std::uint64_t bytes() const;
  /// Returns the number of bytes that were read.
  std::uint64_t position() const;

 private:
  struct Input;
  bool read_record();
  void read_quoted();
  void check_utf8() const;
  [[noreturn]] void refuse(std::int64_t line, const std::string& problem) const;

  std::string path_;
  char delimiter_;
  std::unique_ptr<Input> input_;
  std::vector<std::string> header_;
  std::string text_;               ///< text of all fields
  std::vector<std::size_t> ends_;  ///< end of each field in text_
  std::int64_t line_ = 0;          ///< line on which the record begins
  std::int64_t next_line_ = 1;
};

}  // namespace dpt
