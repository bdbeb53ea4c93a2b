#include "engine/checkpoints/torch_file.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <string_view>

#include <fmt/ranges.h>

#include "engine/checkpoints/foreign_file.h"
#include "engine/checkpoints/pickle_names.h"
#include "engine/checkpoints/pickle_tree.h"
#include "engine/checkpoints/safetensors_header.h"
#include "engine/checkpoints/torch_pickle.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/text.h"
#include "kernels/base/zip_archive.h"

namespace dpt {
namespace {

// Limits for hostile files: dictionaries may contain each other, or the same one many times.
constexpr int kMaxDepth = 3;
constexpr std::size_t kMaxVisited = 8'000'000;  ///< items of dictionaries
constexpr std::size_t kMaxListed = 400'000;     ///< tensors
constexpr std::size_t kMaxOthers = 20;          ///< keys of a dictionary
// Limit of inflated bytes per byte of the file: weights hardly shrink when they are deflated.
constexpr std::uint64_t kMaxRatio = 100;

/// A dictionary of tensors, and each tensor's index in PickleTree::tensors.
struct ListedDictionary {
  TorchDictionary dictionary;
  std::map<std::string, std::size_t, std::less<>> index;
};

/// Finds the dictionaries of tensors in a pickle.
class DictionaryFinder {
 public:
  DictionaryFinder(const PickleTree& tree, const std::string& path) : tree_(tree), path_(path) {}

  std::vector<ListedDictionary> find() {
    const PickleValue& root = tree_.values[tree_.root];
    if (root.kind != PickleKind::dictionary) {
      fail(ErrorKind::data,
           "{}: expected a dictionary of tensors, such as a state_dict, found {}: save the "
           "state_dict() of the model",
           path_, kind_text(root.kind));
    }
    visit(root, "", 0);
    if (found_.empty()) {
      fail(ErrorKind::data,
           "{}: expected a dictionary of tensors, such as a state_dict, found a dictionary without "
           "tensors ({}): save the state_dict() of the model",
           path_, keys_of(root));
    }
    return std::move(found_);
  }

 private:
  void visit(const PickleValue& value, const std::string& key, int depth) {
    visited_ += value.items.size() + 1;
    if (visited_ > kMaxVisited) {
      fail(ErrorKind::data, "{}: expected at most {} dictionary items, found more", path_,
           kMaxVisited);
    }
    ListedDictionary listed;
    listed.dictionary.key = key;
    for (std::size_t i = 0; i < value.items.size(); i += 2) {
      const PickleValue& name = tree_.values[value.items[i]];
      const PickleValue& held = tree_.values[value.items[i + 1]];
      if (name.kind == PickleKind::text && held.kind == PickleKind::tensor) {
        add(listed, std::string(name.text), static_cast<std::size_t>(held.integer));
      } else if (listed.dictionary.others.size() < kMaxOthers) {
        listed.dictionary.others.push_back(text_of_key(name));
      }
    }
    if (!listed.dictionary.tensors.empty()) found_.push_back(std::move(listed));
    for (std::size_t i = 0; i < value.items.size() && depth < kMaxDepth; i += 2) {
      const PickleValue& name = tree_.values[value.items[i]];
      const PickleValue& held = tree_.values[value.items[i + 1]];
      if (name.kind != PickleKind::text || held.kind != PickleKind::dictionary) continue;
      visit(held, key.empty() ? std::string(name.text) : fmt::format("{}.{}", key, name.text),
            depth + 1);
    }
  }

  void add(ListedDictionary& to, const std::string& name, std::size_t index) {
    if (const std::string defect = name_defect(name); !defect.empty()) {
      const std::string& key = to.dictionary.key;
      fail(ErrorKind::data, "{}: a tensor's name{}: {}", path_,
           key.empty() ? "" : fmt::format(" in the dictionary '{}'", key), defect);
    }
    if (++listed_ > kMaxListed) {
      fail(ErrorKind::data, "{}: expected at most {} tensors, found more", path_, kMaxListed);
    }
    if (!to.index.emplace(name, index).second) {
      fail(ErrorKind::data, "{}: two tensors are called '{}'", path_, name);
    }
    const TorchTensor& tensor = tree_.tensors[index];
    to.dictionary.tensors.push_back(
        {name, std::string(tensor.storage.dtype), tensor.shape, 0, tensor.bytes});
  }

  static std::string text_of_key(const PickleValue& key) {
    if (key.kind == PickleKind::text) return std::string(key.text);
    return key.kind == PickleKind::integer ? fmt::format("{}", key.integer) : kind_text(key.kind);
  }

  std::string keys_of(const PickleValue& dictionary) const {
    constexpr std::size_t kMax = 10;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < dictionary.items.size() && keys.size() < kMax; i += 2) {
      keys.push_back(text_of_key(tree_.values[dictionary.items[i]]));
    }
    if (keys.empty()) return "it is empty";
    return fmt::format("its keys: {}{}", fmt::join(keys, ", "),
                       dictionary.items.size() / 2 > kMax ? ", ..." : "");
  }

  const PickleTree& tree_;
  const std::string& path_;
  std::vector<ListedDictionary> found_;
  std::size_t visited_ = 0, listed_ = 0;
};

/// Calls `copy(from, to)` for each element of a view, with its offset in the storage and its
/// position in row-major order, both in elements.
template <class Copy>
void for_each_element(const TorchTensor& tensor, Copy copy) {
  std::vector<std::int64_t> at(tensor.shape.size());
  std::uint64_t from = tensor.offset;
  for (std::uint64_t to = 0;; ++to) {
    copy(from, to);
    std::size_t axis = at.size();
    for (; axis > 0; --axis) {
      const auto stride = static_cast<std::uint64_t>(tensor.strides[axis - 1]);
      if (++at[axis - 1] < tensor.shape[axis - 1]) {
        from += stride;
        break;
      }
      from -= stride * static_cast<std::uint64_t>(tensor.shape[axis - 1] - 1);
      at[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

/// Returns true if the elements of a view follow each other in its storage.
bool is_contiguous(const TorchTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t axis = tensor.shape.size(); axis-- > 0;) {
    if (tensor.shape[axis] == 1) continue;
    if (tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

}  // namespace

bool is_torch_file(const std::string& path) {
  if (entry_type(path) != EntryType::file) return false;
  std::uint64_t size = 0;
  const FileHandle file = open_regular_file(path, size);
  std::string head(std::min<std::uint64_t>(size, kForeignHeadBytes), '\0');
  read_exactly(file, path, 0, std::as_writable_bytes(std::span(head)));
  return is_torch_archive(head);
}

struct TorchFile::Contents {
  explicit Contents(const std::string& file)
      : path(file), mapped(file), archive(mapped.bytes(), path, "save it again with torch.save") {}

  void read_members();
  void read_pickle();
  void check_storages() const;
  const ZipMember& storage_of(const TorchTensor& tensor, const std::string& name) const;
  std::span<const std::byte> bytes_of(const ZipMember& member);

  std::string path;
  MappedFile mapped;
  ZipArchive archive;
  std::string folder;  ///< folder of the members, with a slash
  std::map<std::string, const ZipMember*, std::less<>> members;
  bool has_checksums = false;
  PickleTree tree;
  std::vector<ListedDictionary> listed;
  std::vector<TorchDictionary> dictionaries;
  /// Members whose checksum was verified, with their bytes.
  std::map<const ZipMember*, std::span<const std::byte>> read;
  std::deque<std::vector<std::byte>> inflated;
  std::uint64_t inflated_bytes = 0;
};

void TorchFile::Contents::read_members() {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const ZipMember& member : archive.members()) {
    members.emplace(member.name, &member);
    // After torch.serialization.set_crc32_options(False), the checksums of all members are 0.
    has_checksums = has_checksums || (member.size > 0 && member.crc != 0);
    if (member.name.ends_with(kPickle) &&
        member.name.find('/') + kPickle.size() == member.name.size()) {
      if (!folder.empty()) fail(ErrorKind::data, "{}: expected one data.pkl, found two", path);
      folder = member.name.substr(0, member.name.size() - kPickle.size() + 1);
    }
  }
  if (folder.empty()) {
    fail(ErrorKind::data,
         "{}: expected a file written by torch.save, found a zip archive without a data.pkl", path);
  }
  if (members.contains(folder + "constants.pkl")) {
    fail(ErrorKind::data, "{}: found a TorchScript archive, which holds a program{}", path,
         torch_conversion(path, TorchContent::script));
  }
  const auto order = members.find(folder + "byteorder");
  if (order == members.end()) return;
  const std::span<const std::byte> text = bytes_of(*order->second);
  constexpr std::string_view kLittle = "little";
  if (text.size() != kLittle.size() || std::memcmp(text.data(), kLittle.data(), text.size()) != 0) {
    fail(ErrorKind::data,
         "{}: byteorder: expected a file written on a little-endian machine, found another byte "
         "order{}",
         path, torch_conversion(path, TorchContent::pickle));
  }
}

void TorchFile::Contents::read_pickle() {
  tree = read_torch_pickle(bytes_of(*members.at(folder + "data.pkl")), path);
  listed = DictionaryFinder(tree, path).find();
  for (const ListedDictionary& each : listed) dictionaries.push_back(each.dictionary);
  check_storages();
}

/// Checks that the bytes of every tensor are present, before any are read.
void TorchFile::Contents::check_storages() const {
  for (const ListedDictionary& each : listed) {
    for (const auto& [name, index] : each.index) storage_of(tree.tensors[index], name);
  }
}

const ZipMember& TorchFile::Contents::storage_of(const TorchTensor& tensor,
                                                 const std::string& name) const {
  const std::string key = fmt::format("{}data/{}", folder, tensor.storage.key);
  const auto found = members.find(key);
  const std::uint64_t width = dtype_bytes(tensor.storage.dtype);
  if (found == members.end()) {
    fail(ErrorKind::data, "{}: tensor '{}': expected the member {} of the archive, found none",
         path, name, key);
  }
  const std::uint64_t size = found->second->size;
  if (size / width != tensor.storage.elements || size % width != 0) {
    fail(ErrorKind::data,
         "{}: tensor '{}': expected {} elements of {} in the member {}, found {} bytes", path, name,
         tensor.storage.elements, tensor.storage.dtype, key, size);
  }
  return *found->second;
}

std::span<const std::byte> TorchFile::Contents::bytes_of(const ZipMember& member) {
  const auto known = read.find(&member);
  if (known != read.end()) return known->second;
  if (member.size != member.packed) {
    inflated_bytes += member.size;
    if (inflated_bytes > mapped.bytes().size() * kMaxRatio) {
      fail(ErrorKind::data,
           "{}, member {}: expected at most {} times the file's {} bytes after decompression, "
           "found {} bytes",
           path, member.name, kMaxRatio, mapped.bytes().size(), inflated_bytes);
    }
  }
  std::vector<std::byte>& room = inflated.emplace_back();
  const std::span<const std::byte> bytes =
      archive.content(member, room, has_checksums ? ZipChecksum::compare : ZipChecksum::ignore);
  read.emplace(&member, bytes);
  return bytes;
}

TorchFile::TorchFile(const std::string& path)
    : TensorFile(path), contents_(std::make_shared<Contents>(path)) {}

TorchFile TorchFile::open(const std::string& path) {
  TorchFile file(path);
  file.contents_->read_members();
  file.contents_->read_pickle();
  return file;
}

const std::vector<TorchDictionary>& TorchFile::dictionaries() const {
  return contents_->dictionaries;
}

const TorchDictionary* TorchFile::usual() const {
  const std::vector<TorchDictionary>& all = dictionaries();
  const auto most = std::max_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.tensors.size() < b.tensors.size();
  });
  // A file may hold a tensor, such as a best accuracy, next to a state_dict.
  const bool is_whole = all[0].key.empty();
  if (is_whole && all[0].tensors.size() == most->tensors.size()) return all.data();
  if (all.size() == (is_whole ? 2U : 1U)) return &all.back();
  for (const char* key : {"model", "state_dict"}) {
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const TorchDictionary& each) { return each.key == key; });
    if (found != all.end()) return &*found;
  }
  return nullptr;
}

void TorchFile::choose(const std::optional<std::string>& key) {
  const std::vector<TorchDictionary>& all = dictionaries();
  const TorchDictionary* found = usual();
  if (key) {
    const auto named = std::find_if(all.begin(), all.end(),
                                    [&](const TorchDictionary& each) { return each.key == *key; });
    found = named != all.end() ? &*named : nullptr;
  }
  if (!found) {
    constexpr std::size_t kMax = 10;
    std::string list;
    for (std::size_t i = 0; i < std::min(all.size(), kMax); ++i) {
      list += fmt::format("\n  {}: {}", all[i].key.empty() ? "(the file)" : all[i].key,
                          counted(all[i].tensors.size(), "tensor"));
    }
    if (all.size() > kMax) list += fmt::format("\n  and {} more", all.size() - kMax);
    fail(
        ErrorKind::data,
        "{}: {}. The file has these dictionaries of tensors:{}\nChoose one in the config: weights: "
        "{{file: ..., key: ...}}",
        path(),
        key ? fmt::format("weights.key: found no dictionary of tensors '{}'", *key)
            : "expected one dictionary of tensors, or one called model or state_dict, found others",
        list);
  }
  chosen_ = static_cast<std::size_t>(found - all.data());
  set_contents({}, found->tensors);
}

Integrity TorchFile::check_integrity() const {
  const ListedDictionary& chosen = contents_->listed[chosen_];
  for (const auto& [name, index] : chosen.index) {
    contents_->bytes_of(contents_->storage_of(contents_->tree.tensors[index], name));
  }
  return contents_->has_checksums ? Integrity::good : Integrity::absent;
}

void TorchFile::read_to(const TensorEntry& entry, std::span<std::byte> to) const {
  const auto& index = contents_->listed[chosen_].index;
  const TorchTensor& tensor = contents_->tree.tensors[index.find(entry.name)->second];
  if (to.empty()) return;
  const std::span<const std::byte> bytes =
      contents_->bytes_of(contents_->storage_of(tensor, entry.name));
  const std::size_t width = dtype_bytes(tensor.storage.dtype);
  if (is_contiguous(tensor)) {
    std::memcpy(to.data(), bytes.data() + tensor.offset * width, to.size());
    return;
  }
  for_each_element(tensor, [&](std::uint64_t from, std::uint64_t place) {
    std::memcpy(to.data() + place * width, bytes.data() + from * width, width);
  });
}

}  // namespace dpt
