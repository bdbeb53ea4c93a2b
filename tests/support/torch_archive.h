// Writes files as torch.save does: a zip archive of a pickle and the bytes of storages. It checks
// nothing, so that tests can write malformed files.
// Source: CPython's Lib/pickletools.py
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/zip.h"

namespace dpt::testing {

/// Opcodes that leave one value on the stack.
namespace pickled {

inline std::string text(const std::string& value) {
  return "X" + little_endian(value.size(), 4) + value;
}
inline std::string integer(std::int64_t value) {
  return std::string("\x8a\x08") + little_endian(static_cast<std::uint64_t>(value), 8);
}
inline std::string tuple(const std::vector<std::string>& items) {
  std::string all = "(";
  for (const std::string& item : items) all += item;
  return all + "t";
}
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::vector<std::string> items;
  for (const std::int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline std::string object(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
using Pairs = std::vector<std::pair<std::string, std::string>>;
/// Pickles a dictionary with text keys.
inline std::string dictionary(const Pairs& pairs) {
  std::string all = "}(";
  for (const auto& [key, value] : pairs) all += text(key) + value;
  return all + "u";
}
inline std::string ordered(const Pairs& pairs) {
  return object("collections", "OrderedDict") + ")R" + dictionary(pairs).substr(1);
}

}  // namespace pickled

/// A view of a storage.
struct PickledTensor {
  std::vector<std::int64_t> shape, strides;
  std::string key = "0";
  std::int64_t elements = 0;  ///< number of elements in the storage
  std::int64_t offset = 0;
  std::string storage = "FloatStorage";
  std::string metadata{};  ///< a seventh argument, or empty

  std::string text() const {
    using namespace pickled;
    const std::string id = tuple({pickled::text("storage"), object("torch", storage),
                                  pickled::text(key), pickled::text("cpu"), integer(elements)});
    return object("torch._utils", "_rebuild_tensor_v2") +
           tuple({id + "Q", integer(offset), integers(shape), integers(strides), "\x89",
                  ordered({}), metadata}) +
           "R";
  }
};

inline std::string pickle(const std::string& value) {
  return "\x80\x02" + value + ".";
}

/// Returns the little-endian bytes of numbers.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// Returns the bytes of the floats 0, 1, 2, ...
inline std::string counted(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
  return bytes_of(values);
}

/// Returns an archive of a pickle and of storages, which are pairs of key and bytes.
inline std::string torch_archive(const std::string& data_pkl,
                                 const std::vector<std::pair<std::string, std::string>>& storages,
                                 const ZipStyle& style = {}) {
  std::vector<std::pair<std::string, std::string>> members = {{"archive/data.pkl", data_pkl},
                                                              {"archive/byteorder", "little"}};
  for (const auto& [key, bytes] : storages) members.emplace_back("archive/data/" + key, bytes);
  members.emplace_back("archive/version", "3\n");
  return zip(members, style);
}

}  // namespace dpt::testing
