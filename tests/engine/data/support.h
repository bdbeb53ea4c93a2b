// What the tests of data share: a temporary folder, files made by hand, options without YAML.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/data_sets.h"
#include "engine/data/source.h"
#include "kernels/base/error.h"
#include "tests/support/places.h"
#include "tests/support/temp_dir.h"

namespace dpt::data_test {

using Bytes = std::vector<std::uint8_t>;

/// A temporary folder that test files are written to.
class TempDir : public testing::TempDir {
 public:
  std::string operator/(const std::string& name) const { return file(name); }
  /// Writes a file, making its folders.
  void write(const std::string& name, const Bytes& bytes) const;
};

Bytes gzip(const Bytes& bytes);
/// An IDX file: the type byte 0x08, the dimensions, the elements.
Bytes idx(const std::vector<std::uint32_t>& dims, const Bytes& elements);
/// `count` bytes of a little generator (not philox), the same for every call.
Bytes noise(std::size_t count, std::uint32_t seed = 12345);
Bytes concat(Bytes a, const Bytes& b);

/// The text and kind of the dpt::Error that `action` throws; fails the test if it throws none.
std::string error_of(const std::function<void()>& action, ErrorKind kind = ErrorKind::data);
/// The same with every occurrence of `path` written as "$".
std::string error_of(const std::function<void()>& action, const TempDir& dir,
                     ErrorKind kind = ErrorKind::data);

using Fields = std::vector<std::pair<std::string, PlainValue>>;

/// `{type: name, fields...}` from a table, at "config.yaml:3:5". Fields of nested structs are
/// "train.images".
Variant variant(const VariantTable& table, const std::string& name, const Fields& fields = {});
/// Opens a data set by name.
DataSets open(const std::string& name, const Fields& fields, const DataRequirements& requirements);

/// One sample's bytes and its label.
std::pair<Bytes, std::int32_t> sample(const DataSource& source, std::int64_t index);

/// Folder of the real data (DPT_DATA, or ../shared/datasets next to the source); empty, with a
/// message, when `name` is not there.
std::string real_data(const std::string& name);

}  // namespace dpt::data_test
