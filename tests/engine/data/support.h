// Helpers that the tests of data share: a temporary folder, hand-made files, options without YAML.
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
  /// Writes a file and creates its folders.
  void write(const std::string& name, const Bytes& bytes) const;
};

Bytes gzip(const Bytes& bytes);
/// Returns an IDX file: the type byte 0x08, the dimensions, the elements.
Bytes idx(const std::vector<std::uint32_t>& dims, const Bytes& elements);
/// Returns `count` bytes of a small generator (not Philox), the same in every call.
Bytes noise(std::size_t count, std::uint32_t seed = 12345);
Bytes concat(Bytes a, const Bytes& b);

/// Returns the message of the dpt::Error that `action` throws, and checks its kind. Fails the test
/// if none is thrown.
std::string error_of(const std::function<void()>& action, ErrorKind kind = ErrorKind::data);
/// Returns the same message with every occurrence of `path` replaced by "$".
std::string error_of(const std::function<void()>& action, const TempDir& dir,
                     ErrorKind kind = ErrorKind::data);

using Fields = std::vector<std::pair<std::string, PlainValue>>;

/// Returns `{type: name, fields...}` from a table, at "config.yaml:3:5". Fields of nested structs
/// have names like "train.images".
Variant variant(const VariantTable& table, const std::string& name, const Fields& fields = {});
/// Opens a data set by name.
DataSets open(const std::string& name, const Fields& fields, const DataRequirements& requirements);

/// Returns a sample's bytes and its label.
std::pair<Bytes, std::int32_t> sample(const DataSource& source, std::int64_t index);

/// Returns the folder of the real data (DPT_DATA, or ../shared/datasets next to the source). If
/// `name` is missing, prints a message and returns an empty string.
std::string real_data(const std::string& name);

}  // namespace dpt::data_test
