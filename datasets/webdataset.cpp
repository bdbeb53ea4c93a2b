// WebDataset: tar shards in which the files of a sample follow each other and have the same name up
// to its first dot (000123.jpg, 000123.cls). Opening lists the members and reads the labels; an
// image is read by its offset when the sample is read.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/class_table.h"
#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/image_source.h"
#include "datasets/kinds.h"
#include "datasets/requirements.h"
#include "datasets/shard_names.h"
#include "datasets/shared_files.h"
#include "datasets/split_files.h"
#include "datasets/tar_reader.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/stage_clock.h"
#include "kernels/base/utf8.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace {

struct ShardFiles {
  std::string shards;
};

/// Form of the labels.
enum class ShardLabel : std::uint8_t { as_first, name, number };
constexpr auto enum_names(ShardLabel) {
  return std::to_array<EnumName<ShardLabel>>(
      {{ShardLabel::as_first, "auto"}, {ShardLabel::name, "name"}, {ShardLabel::number, "number"}});
}

struct WebDatasetOptions {
  ShardFiles train;
  std::optional<ShardFiles> test, val;
  ShardLabel label_type = ShardLabel::as_first;
  std::vector<std::string> classes;
  std::int64_t cache_mib = 1024;
};

// ---- Samples -----------------------------------------------------------------------------------

/// Place of a sample's image in its archive.
struct ShardImage {
  std::uint64_t offset = 0, size = 0;
  /// End of the image's name in ShardIndex::names. The name begins at the previous image's end.
  std::uint64_t name_end = 0;
  std::uint32_t shard = 0;
};

/// All shards of a part.
struct ShardIndex {
  std::vector<std::string> shards;
  std::vector<ShardImage> images;
  std::string names;
  std::vector<std::int32_t> labels;
};

/// Name of a member: the part up to the first dot after its folder, and the rest in lower case.
struct ShardMember {
  explicit ShardMember(const std::string& name) {
    const std::size_t slash = name.rfind('/');
    const std::size_t base = slash == std::string::npos ? 0 : slash + 1;
    const std::size_t dot = name.find('.', base);
    is_hidden = dot == base;
    key = name.substr(0, dot);
    if (dot == std::string::npos) return;
    extension = name.substr(dot + 1);
    for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  bool is_image() const { return extension == "jpg" || extension == "jpeg" || extension == "png"; }
  /// Returns true for an image that is used only if the sample has no JPEG or PNG. Earlier releases
  /// read only those two formats and ignored this member.
  bool is_other_image() const {
    return !is_image() && extension.find('.') == std::string::npos &&
           is_image_name("x." + extension);
  }
  std::string key, extension;
  bool is_hidden = false;
};

/// Label as text.
struct WrittenLabel {
  std::string text;
  std::optional<std::int64_t> number;  ///< set if the text is an integer
  bool is_numeric = false;             ///< the text is a number, possibly not an integer
};

WrittenLabel label_of_text(const std::string& text, const std::string& where) {
  if (const std::size_t bad = find_bad_utf8(text); bad != std::string::npos) {
    fail(ErrorKind::data, "{}: expected UTF-8, found the byte 0x{:02X}", where,
         static_cast<unsigned char>(text[bad]));
  }
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  WrittenLabel label;
  label.text = text.substr(begin, last == std::string::npos ? 0 : last + 1 - begin);
  const char* end = label.text.data() + label.text.size();
  std::int64_t value = 0;
  const auto [at, error] = std::from_chars(label.text.data(), end, value);
  if (error == std::errc{} && at == end) label.number = value;
  double any = 0;
  label.is_numeric = std::from_chars(label.text.data(), end, any).ptr == end && !label.text.empty();
  return label;
}

WrittenLabel label_of_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) fail(ErrorKind::data, "{}: not valid JSON", where);
  for (const char* key : {"label", "cls"}) {
    if (!json.is_object() || !json.contains(key)) continue;
    const nlohmann::json& value = json[key];
    if (value.is_string()) return label_of_text(value.get<std::string>(), where);
    if (value.is_number_integer()) return label_of_text(value.dump(), where);
    fail(ErrorKind::data, "{}: expected an integer or the name of a class as \"{}\", found {}",
         where, key, value.dump().substr(0, 40));
  }
  fail(ErrorKind::data, "{}: expected an object with \"label\" or \"cls\"", where);
}

/// Labels by number or by name, according to label_type or to the first label.
class ShardLabels {
 public:
  ShardLabels(const WebDatasetOptions& options, const DataRequirements& requirements)
      : type_(options.label_type),
        follows_first_(type_ == ShardLabel::as_first),
        table_(options.classes, options.train.shards, requirements) {}

  std::int32_t label_of(const WrittenLabel& label, const std::string& where) {
    const auto place = [&] { return where; };
    if (type_ == ShardLabel::as_first) {
      const bool is_number = label.number || label.is_numeric || label.text.empty();
      type_ = is_number ? ShardLabel::number : ShardLabel::name;
    }
    if (type_ == ShardLabel::number) {
      if (!label.number) refuse("the number", label, where);
      return table_.label_of_number(*label.number, place);
    }
    if (label.text.empty() || (follows_first_ && label.is_numeric)) {
      refuse("the name", label, where);
    }
    return table_.label_of_name(label.text, place);
  }
  ClassTable& table() { return table_; }
  bool are_names() const { return type_ == ShardLabel::name; }

 private:
  [[noreturn]] void refuse(const char* expected, const WrittenLabel& label,
                           const std::string& where) const {
    fail(ErrorKind::data, "{}: expected {} of a class, found '{}'{}", where, expected,
         label.text.substr(0, 40),
         follows_first_ && !label.text.empty() && (are_names() || !label.is_numeric)
             ? " (without data.label_type, the first label decides whether labels are numbers or "
               "names)"
             : "");
  }

  ShardLabel type_;
  bool follows_first_;
  ClassTable table_;
};

/// Returns the first ten names and the number of others.
std::string first_ten(const std::vector<std::string>& names) {
  constexpr std::size_t kMax = 10;
  const std::size_t shown = std::min(kMax, names.size());
  const std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

/// Adds the samples of a shard. If `labels` is null, does not read their labels, which are then 0.
void read_shard(std::size_t number, ShardLabels* labels, ShardIndex& index) {
  const std::string& path = index.shards[number];
  TarReader reader(path);
  struct Open {
    std::string key;
    std::vector<std::string> extensions;
    std::optional<TarMember> image, cls, json;
    std::vector<TarMember> other_images{};
  };
  std::optional<Open> open;
  const auto finish = [&] {
    if (!open) return;
    if (!open->image && open->other_images.size() == 1) {
      open->image = open->other_images[0];
    }
    if (!open->image || (labels && !open->cls && !open->json)) {
      fail(ErrorKind::data,
           "{}, sample {}: expected {}, found {} (the members of a sample follow each other and "
           "have the same base name, which ends at the first dot)",
           path, open->key,
           open->image ? "a label (.cls or .json)"
                       : fmt::format("one image ({})", fmt::join(readable_extensions(), ", ")),
           first_ten(open->extensions));
    }
    index.names += open->image->name;
    index.images.push_back({open->image->offset, open->image->size, index.names.size(),
                            static_cast<std::uint32_t>(number)});
    if (labels) {
      // If there is a .cls file, the .json file is not the label.
      const TarMember& label = open->cls ? *open->cls : *open->json;
      const std::string where = fmt::format("{}, {}", path, label.name);
      const std::string text = reader.content(label);
      index.labels.push_back(labels->label_of(
          open->cls ? label_of_text(text, where) : label_of_json(text, where), where));
    } else {
      index.labels.push_back(0);
    }
    open.reset();
  };
  TarMember member;
  while (reader.next(member)) {
    const ShardMember name(member.name);
    if (name.is_hidden) continue;
    if (!open || open->key != name.key) {
      finish();
      open.emplace();
      open->key = name.key;
    }
    if (name.is_other_image()) open->other_images.push_back(member);
    open->extensions.push_back(name.extension.empty() ? "no extension" : "." + name.extension);
    std::optional<TarMember>* part = name.is_image()            ? &open->image
                                     : !labels                  ? nullptr
                                     : name.extension == "cls"  ? &open->cls
                                     : name.extension == "json" ? &open->json
                                                                : nullptr;
    if (!part) continue;
    if (*part) {
      fail(ErrorKind::data,
           "{}, {}: expected one image and one label for each sample, found a second {} for "
           "{} (the base name of a sample ends at the first dot)",
           path, member.name, name.is_image() ? "image" : "label", open->key);
    }
    *part = member;
  }
  finish();
}

class WebDatasetSource final : public ImageSource {
 public:
  WebDatasetSource(const std::string& name, ShardIndex index, Samples samples,
                   const DataRequirements& requirements, std::int64_t cache_bytes,
                   std::string fingerprint)
      : ImageSource(name, std::move(samples), requirements, cache_bytes, std::move(fingerprint)),
        index_(std::move(index)) {}

  std::string describe(std::int64_t index) const override {
    const auto i = static_cast<std::size_t>(index);
    const std::size_t begin = i == 0 ? 0 : index_.images[i - 1].name_end;
    return fmt::format("{}, {}", index_.shards[index_.images[i].shard],
                       index_.names.substr(begin, index_.images[i].name_end - begin));
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    const StageTimer timer(DataStage::read);
    const ShardImage& image = index_.images[index];
    if (image.size > kMaxImageFileBytes) {
      fail(ErrorKind::data, "{}: the file has {} bytes; an image file may have at most {} MiB",
           describe(index), image.size, kMaxImageFileBytes >> 20);
    }
    // Open the file for each read: there may be more shards than a process can have open.
    const RandomAccessFile file(index_.shards[image.shard]);
    std::vector<std::byte> content(image.size);
    const std::size_t found = file.read(image.offset, content.data(), content.size());
    if (found != content.size()) {
      fail(ErrorKind::data,
           "{}: only {} of {} bytes could be read at offset {}: the shard was truncated after "
           "it had been opened",
           describe(index), found, content.size(), image.offset);
    }
    return content;
  }

 private:
  ShardIndex index_;
};

/// Returns the samples of all shards that `files` names. If `labels` is null, their labels are 0.
ShardIndex read_shards(const ShardFiles& files, const char* field, ShardLabels* labels) {
  ShardIndex index;
  index.shards = find_shards(files.shards, field);
  for (std::size_t i = 0; i < index.shards.size(); ++i) {
    read_shard(i, labels, index);
    check_image_count(files.shards, index.images.size());
  }
  if (index.images.empty()) {
    fail(ErrorKind::data, "{}: expected samples, found none in {} shard{}", files.shards,
         index.shards.size(), index.shards.size() == 1 ? "" : "s");
  }
  return index;
}

/// Creates the source. If `named_classes` is true, the fingerprint includes the classes' names.
std::shared_ptr<const DataSource> make_source(const ShardFiles& files, ShardIndex index,
                                              std::vector<std::string> classes, bool named_classes,
                                              const DataRequirements& requirements,
                                              std::int64_t cache_bytes) {
  ImageSource::Samples samples;
  samples.labels = std::move(index.labels);
  samples.classes = std::move(classes);
  Fingerprint hash;
  hash.add(fmt::format("webdataset v1 {}x{}x{}", requirements.input.h, requirements.input.w,
                       requirements.input.c));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < index.images.size(); ++i) {
    const ShardImage& image = index.images[i];
    const std::string name = index.names.substr(begin, image.name_end - begin);
    begin = image.name_end;
    hash.add(name);
    hash.add(fmt::format("{} {}", image.size, samples.labels[i]));
  }
  if (named_classes) {
    for (const std::string& name : samples.classes) hash.add(name);
  }
  return std::make_shared<WebDatasetSource>(files.shards, std::move(index), std::move(samples),
                                            requirements, cache_bytes, hash.text());
}

std::shared_ptr<const DataSource> open_shards(const ShardFiles& files, const char* field,
                                              const WebDatasetOptions& options, bool is_training,
                                              ShardLabels& labels,
                                              const DataRequirements& requirements) {
  ShardIndex index = read_shards(files, field, &labels);
  ClassTable& table = labels.table();
  if (is_training) {
    table.close(ClassOrder::numbers_first, index.labels);
    if (table.is_from_samples()) {
      check_classes(fmt::format("{} ({})", files.shards, some_of(table.names())),
                    table.names().size(), requirements);
    }
  }
  return make_source(files, std::move(index), table.names(), labels.are_names(), requirements,
                     options.cache_mib << 20);
}

const char* field_of(DataPart part) {
  switch (part) {
    case DataPart::train:
      return "data.train.shards";
    case DataPart::val:
      return "data.val.shards";
    default:
      return "data.test.shards";
  }
}

void check_no_shared_shards(const WebDatasetOptions& options) {
  std::vector<NamedFiles> parts;
  for (const DataPart part : {DataPart::train, DataPart::val, DataPart::test}) {
    const ShardFiles* files = files_of(options, part);
    if (files) parts.push_back({field_of(part), find_shards(files->shards, field_of(part))});
  }
  check_no_shared_files(parts);
}

DataSets open_webdataset(const Variant& variant, const DataRequirements& requirements) {
  const auto& options = variant.as<WebDatasetOptions>();
  check_image_channels("webdataset: " + options.train.shards, requirements);
  check_no_shared_shards(options);
  ShardLabels labels(options, requirements);
  DataSets sets;
  if (requirements.wants(DataPart::train)) {
    sets.train =
        open_shards(options.train, field_of(DataPart::train), options, true, labels, requirements);
  }
  const auto open = [&](DataPart part) {
    const ShardFiles* files = files_of(options, part);
    if (!files || !requirements.wants(part)) return std::shared_ptr<const DataSource>();
    return open_shards(*files, field_of(part), options, false, labels, requirements);
  };
  sets.val = open(DataPart::val);
  sets.test = open(DataPart::test);
  return sets;
}

std::shared_ptr<const DataSource> open_webdataset_unlabelled(const Variant& variant, DataPart part,
                                                             const DataRequirements& requirements,
                                                             UnreadableSamples& /*unreadable*/) {
  const auto& options = variant.as<WebDatasetOptions>();
  const ShardFiles* files = files_of(options, part);
  if (!files) return nullptr;
  check_image_channels("webdataset: " + files->shards, requirements);
  return make_source(*files, read_shards(*files, field_of(part), nullptr), {}, false, requirements,
                     0);
}

/// Returns the number of classes of the training samples.
std::optional<std::int64_t> outputs_of_shards(const WebDatasetOptions& options) {
  if (!options.classes.empty()) return static_cast<std::int64_t>(options.classes.size());
  ShardLabels labels(options, {});
  ShardIndex index = read_shards(options.train, field_of(DataPart::train), &labels);
  labels.table().close(ClassOrder::numbers_first, index.labels);
  return static_cast<std::int64_t>(labels.table().names().size());
}

const ObjectTable& shards_table() {
  static const ObjectTable table = object_table<ShardFiles>(
      "webdataset shards", "The shards of some samples.",
      {path_field("shards", &ShardFiles::shards,
                  "Paths of tar files: one, or several written with braces "
                  "(shard-{000000..000099}.tar, {a,b}.tar) or wildcards (shard-*.tar).")
           .required()});
  return table;
}

}  // namespace

DatasetKind webdataset_dataset() {
  static const ObjectTable table = object_table<WebDatasetOptions>(
      "webdataset",
      "Uncompressed tar files, in which the files of a sample are adjacent and share their name up "
      "to the first dot. A sample has an image (.jpg, .jpeg or .png, else another extension that "
      "image_folder reads), which is read as in image_folder, and the number or the name of its "
      "class, as text (.cls) or as \"label\" or \"cls\" in JSON (.json). Other files are ignored. "
      "The shards must not change while they are used.",
      {train_files_field(&WebDatasetOptions::train, shards_table()),
       val_files_field(&WebDatasetOptions::val, shards_table()),
       test_files_field(&WebDatasetOptions::test, shards_table()),
       field(
           "label_type", &WebDatasetOptions::label_type,
           "Kind of labels. name: the name of the class. number: the number of the class, from 0. "
           "auto: numbers if the first label of the training samples is a number, else names."),
       field("classes", &WebDatasetOptions::classes,
             "Names of the classes, from class 0 on. By default, numbers or, if labels are names, "
             "those of the training samples, sorted (numbers by value)."),
       field("cache_mib", &WebDatasetOptions::cache_mib,
             "Decoded images are kept in memory if the whole set fits in this many MiB.")
           .range(0, 1048576)
           .changeable()});
  DatasetKind kind = {&table, open_webdataset, open_webdataset_unlabelled, true};
  kind.declares = [](const Variant& variant) {
    return DeclaredSamples{true, TargetKind::class_index, false, DType::u8,
                           variant.as<WebDatasetOptions>().val.has_value()};
  };
  kind.outputs = [](const Variant& variant) {
    return outputs_of_shards(variant.as<WebDatasetOptions>());
  };
  return kind;
}

}  // namespace dpt
