#include "engine/checkpoints/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::size_t kMaxTensorDimensions = 32;
constexpr std::size_t kLongestName = 1024;

constexpr std::array<std::pair<std::string_view, std::uint64_t>, 17> kDtypes = {{
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
    {"U16", 2},
    {"I16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"U32", 4},
    {"I32", 4},
    {"F32", 4},
    {"U64", 8},
    {"I64", 8},
    {"F64", 8},
    {"C64", 8},
}};

std::string dtype_list() {
  std::string list;
  for (const auto& [name, bytes] : kDtypes) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

/// Returns a name for messages, with '?' for control characters, because a terminal would act on
/// them.
std::string shown(std::string name) {
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return name;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Receiver of the parser's events. Accepts only events that the format allows. The depth is fixed,
/// so that hostile nesting is refused at its first bracket. Event functions never return false;
/// they throw instead.
class HeaderReader {
 public:
  // Callbacks of the parser, with the names that nlohmann::json prescribes.
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  explicit HeaderReader(const std::string& path) : path_(path) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool number_integer(number_integer_t value) { return other(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t& text) { return other(text); }
  bool binary(binary_t&) { return other("binary data"); }

  bool number_unsigned(number_unsigned_t value) {
    if (place_ == Place::shape) {
      if (tensor_.shape.size() == kMaxTensorDimensions) {
        refuse(fmt::format("shape: expected at most {} dimensions", kMaxTensorDimensions));
      }
      if (value > INT64_MAX) refuse(fmt::format("shape: {} is too large", value));
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_.size() == 2) refuse("data_offsets: expected two numbers, found more");
      offsets_.push_back(value);
      return true;
    }
    return other(fmt::format("{}", value));
  }

  bool string(string_t& value) {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      if (dtype_bytes(value) == 0) {
        refuse(fmt::format("unknown dtype '{}'; known are {}", value, dtype_list()));
      }
      tensor_.dtype = std::move(value);
      return true;
    }
    return other("a string");
  }

  bool start_object(std::size_t) {
    if (place_ == Place::outside) {
      place_ = Place::top;
      return true;
    }
    if (place_ != Place::top) return other("an object");
    keys_.clear();
    if (name_ == "__metadata__") {
      place_ = Place::metadata;
    } else {
      place_ = Place::tensor;
      tensor_ = TensorEntry{name_, "", {}, 0, 0};
      offsets_.clear();
    }
    return true;
  }

  bool key(string_t& value) {
    if (place_ == Place::top) {
      name_ = value;
      if (!names_.insert(value).second) refuse("appears twice in the header");
      if (name_ != "__metadata__") {
        const std::string defect = name_defect(name_);
        if (!defect.empty()) refuse(defect);
      }
      return true;
    }
    if (place_ == Place::tensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      refuse(fmt::format("expected dtype, shape and data_offsets, found '{}'", value));
    }
    if (!keys_.insert(value).second) refuse(fmt::format("has '{}' twice", value));
    key_ = value;
    return true;
  }

  bool end_object() {
    if (place_ == Place::tensor) finish_tensor();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ == Place::tensor && key_ == "shape") {
      place_ = Place::shape;
    } else if (place_ == Place::tensor && key_ == "data_offsets") {
      place_ = Place::offsets;
    } else {
      other("a list");
    }
    return true;
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const string_t&, const nlohmann::detail::exception&) {
    // The header comes after the 8 bytes of its length, and positions count from 1.
    fail(ErrorKind::data, "{}: byte {}: the header is not valid JSON here", path_,
         8 + (position > 0 ? position - 1 : 0));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse(const std::string& what) const {
    if (name_ == "__metadata__") fail(ErrorKind::data, "{}: __metadata__: {}", path_, what);
    fail(ErrorKind::data, "{}: tensor '{}': {}", path_, shown(name_), what);
  }

  /// Throws for a value that is not allowed at place_.
  [[noreturn]] bool other(const std::string& found) const {
    switch (place_) {
      case Place::outside:
        fail(ErrorKind::data, "{}: expected a JSON object as the header, found {}", path_, found);
      case Place::top:
        refuse("expected an object, found " + found);
      case Place::metadata:
        refuse(fmt::format("'{}': expected a string, found {}", key_, found));
      case Place::tensor:
        refuse(fmt::format("{}: expected {}, found {}", key_,
                           key_ == "dtype" ? "a string" : "a list of numbers", found));
      case Place::shape:
        refuse("shape: expected integers of at least 0, found " + found);
      case Place::offsets:
        break;
    }
    refuse("data_offsets: expected integers of at least 0, found " + found);
  }

  void finish_tensor() {
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      if (keys_.count(needed) == 0) refuse(fmt::format("has no {}", needed));
    }
    if (offsets_.size() != 2) {
      refuse(fmt::format("data_offsets: expected two numbers, found {}", offsets_.size()));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    if (tensor_.begin > tensor_.end) {
      refuse(fmt::format("data_offsets: expected [begin, end] in ascending order, found [{}, {}]",
                         tensor_.begin, tensor_.end));
    }
    std::uint64_t bytes = 0;
    if (!tensor_bytes(tensor_.dtype, tensor_.shape, bytes)) {
      refuse(fmt::format("shape: {} elements of {} overflow a 64-bit count of bytes",
                         shape_text(tensor_.shape), tensor_.dtype));
    }
    if (bytes != tensor_.bytes()) {
      refuse(fmt::format("expected {} bytes for {} {}, found {} (data_offsets {} to {})", bytes,
                         tensor_.dtype, shape_text(tensor_.shape), tensor_.bytes(), tensor_.begin,
                         tensor_.end));
    }
    header_.tensors.push_back(std::move(tensor_));
  }

  const std::string& path_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::string name_, key_;
  std::set<std::string> names_, keys_;
  TensorEntry tensor_;
  std::vector<std::uint64_t> offsets_;
};

void check_layout(const std::string& path, const std::vector<TensorEntry>& tensors,
                  std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  const TensorEntry* before = nullptr;
  for (const TensorEntry& tensor : tensors) {
    if (tensor.end > data_bytes) {
      fail(ErrorKind::data,
           "{}: tensor '{}': ends at byte {} of the data, but the data has only {} bytes: the file "
           "is truncated",
           path, tensor.name, tensor.end, data_bytes);
    }
    if (tensor.begin != end) {
      fail(ErrorKind::data,
           "{}: tensor '{}': expected to begin at byte {} of the data{}, found {}{}", path,
           tensor.name, end, before ? fmt::format(" (after '{}')", before->name) : std::string(),
           tensor.begin, tensor.begin < end ? ", an overlap" : ", a hole");
    }
    end = tensor.end;
    before = &tensor;
  }
  if (end != data_bytes) {
    fail(ErrorKind::data, "{}: expected {} bytes of data, as the header says, found {}", path, end,
         data_bytes);
  }
}

/// Throws for a file with dpt's metadata but without dpt's checksum. Otherwise, a file with a
/// changed bit in the checksum's name would pass for another program's file, which has no checksum.
void check_integrity_is_there(const std::string& path, const SafetensorsHeader& header) {
  const auto ours = header.metadata.lower_bound("dpt.");
  if (ours == header.metadata.end() || !ours->first.starts_with("dpt.")) return;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.name == kIntegrityName) return;
  }
  fail(ErrorKind::data,
       "{}: expected the checksum tensor '{}' at the end (the metadata '{}' says that dpt wrote "
       "the file), found {}: the file is damaged; use an earlier checkpoint. (If another program "
       "rewrote the file, it must drop the metadata keys that begin with 'dpt.')",
       path, kIntegrityName, shown(ours->first),
       header.tensors.empty() ? std::string("no tensor")
                              : fmt::format("'{}' as the last tensor", header.tensors.back().name));
}

void check_integrity_entry(const std::string& path, const std::vector<TensorEntry>& tensors) {
  for (const TensorEntry& tensor : tensors) {
    if (tensor.name != kIntegrityName) continue;
    if (tensor.dtype != "U8" || tensor.shape != std::vector<std::int64_t>{16}) {
      fail(ErrorKind::data, "{}: tensor '{}': expected U8 [16], found {} {}", path, tensor.name,
           tensor.dtype, shape_text(tensor.shape));
    }
    if (&tensor != &tensors.back()) {
      fail(ErrorKind::data,
           "{}: tensor '{}': expected it to be the last tensor, found '{}' after it", path,
           tensor.name, tensors.back().name);
    }
  }
}

std::string quoted(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "{}: cannot write it: expected UTF-8, found '{}'", path, text);
  }
}

}  // namespace

std::string name_defect(const std::string& name) {
  if (name.empty()) return "expected a name, found an empty one";
  if (name.size() > kLongestName) {
    return fmt::format("expected a name of at most {} bytes, found {}", kLongestName, name.size());
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      return fmt::format("expected a name of printable characters, found byte 0x{:02x} in it",
                         static_cast<unsigned>(byte));
    }
  }
  return {};
}

std::uint64_t dtype_bytes(std::string_view dtype) {
  for (const auto& [name, bytes] : kDtypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

bool tensor_bytes(std::string_view dtype, const std::vector<std::int64_t>& shape,
                  std::uint64_t& bytes) {
  bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      return false;
    }
  }
  return true;
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view json,
                                           std::uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') {
    fail(ErrorKind::data, "{}: byte 8: expected a header that begins with '{{', found 0x{:02x}",
         path, json.empty() ? 0U : static_cast<unsigned>(static_cast<unsigned char>(json.front())));
  }
  // The parser takes a zero byte for the end of its input and would ignore the rest.
  const std::size_t zero = json.find('\0');
  if (zero != std::string_view::npos) {
    fail(ErrorKind::data, "{}: byte {}: expected JSON, found a zero byte", path, 8 + zero);
  }
  HeaderReader reader(path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  SafetensorsHeader header = reader.take();
  // Empty tensors share their position with others, so they stay in the order of the header.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  check_layout(path, header.tensors, data_bytes);
  check_integrity_entry(path, header.tensors);
  check_integrity_is_there(path, header);
  return header;
}

std::string format_safetensors_header(const std::string& path, const Metadata& metadata,
                                      const std::vector<TensorView>& tensors) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      if (text.back() != '{') text += ",";
      text += quoted(path, key) + ":" + quoted(path, value);
    }
    text += "}";
  }
  std::uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    const std::string defect = name_defect(tensor.name);
    if (!defect.empty()) {
      fail(ErrorKind::data, "{}: tensor '{}': {}", path, shown(tensor.name), defect);
    }
    std::uint64_t bytes = 0;
    if (dtype_bytes(tensor.dtype) == 0) {
      fail(ErrorKind::data, "{}: tensor '{}': safetensors has no type {}", path, tensor.name,
           tensor.dtype);
    }
    if (!tensor_bytes(tensor.dtype, tensor.shape, bytes)) {
      fail(ErrorKind::data, "{}: tensor '{}': the shape {} is negative or too large to write", path,
           tensor.name, shape_text(tensor.shape));
    }
    if (text.size() > 1) text += ",";
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        quoted(path, tensor.name), tensor.dtype, fmt::join(tensor.shape, ","),
                        offset, offset + bytes);
    offset += bytes;
  }
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    fail(ErrorKind::data,
         "{}: cannot write it: its header would have {} bytes, more than the limit of {}", path,
         text.size(), kMaxHeaderBytes);
  }
  return text;
}

}  // namespace dpt
