#include "datasets/idx.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <system_error>

#include "datasets/requirements.h"
#include "datasets/resident_source.h"
#include "datasets/shared_files.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::int64_t kMaxPixels = 16384;  ///< maximum size of a side

/// Reads the magic number and the dimensions. Throws unless their number is from `fewest` to
/// `most`.
std::vector<std::int64_t> read_header(ByteStream& file, int fewest, int most) {
  std::array<std::byte, 4> word;
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(word[i]); };
  const auto big_endian = [&] { return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3); };
  file.read(word, "the IDX magic number");
  const int dims = static_cast<int>(byte(3));
  if (byte(0) != 0 || byte(1) != 0 || byte(2) != 0x08 || dims < fewest || dims > most) {
    const bool gzip = byte(0) == 0x1f && byte(1) == 0x8b;
    fail(ErrorKind::data,
         "{}: not an IDX file of {}: at offset 0, expected the magic number {:08x}{}, found "
         "{:08x}{}",
         file.name(), most == 1 ? "labels" : "images", 0x0800 + fewest,
         most > fewest ? fmt::format(" or {:08x}", 0x0800 + most) : std::string(), big_endian(),
         gzip ? " (this is gzip: rename it so that it ends in .gz)" : "");
  }
  std::vector<std::int64_t> result;
  for (int d = 0; d < dims; ++d) {
    file.read(word, "the IDX header");
    result.push_back(big_endian());
  }
  return result;
}

std::int64_t checked_count(const ByteStream& file, std::int64_t count) {
  if (count < 1 || count > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::data, "{}: the header at offset 4 says {} samples; expected 1 to {}",
         file.name(), count, std::numeric_limits<std::int32_t>::max());
  }
  return count;
}

SampleShape checked_shape(const ByteStream& file, const std::vector<std::int64_t>& dims) {
  const SampleShape shape{dims[1], dims[2], dims.size() > 3 ? dims[3] : 1};
  const auto side = [](std::int64_t n) { return 1 <= n && n <= kMaxPixels; };
  if (!side(shape.h) || !side(shape.w) || shape.c < 1 || shape.c > 64) {
    fail(ErrorKind::data,
         "{}: the header at offset 8 says images of {} (height x width); expected 1 to {} pixels "
         "per side and 1 to 64 channels",
         file.name(), shape_text(shape), kMaxPixels);
  }
  return shape;
}

/// Returns the only file of `root` whose name begins with `prefix`; empty if there is none. Prefers
/// a plain file to its compressed version.
std::string find_file(const std::string& root, const std::string& prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(prefix)) found.push_back(name);
  }
  if (error) fail(ErrorKind::data, "{}: cannot be listed: {}", root, error.message());
  std::sort(found.begin(), found.end());
  if (found.size() == 2 && found[1] == found[0] + ".gz") found.pop_back();
  if (found.size() > 1) {
    fail(ErrorKind::data, "{}: several files could be {}: {}; keep only one of them", root, prefix,
         fmt::join(found, ", "));
  }
  return found.empty() ? std::string() : (std::filesystem::path(root) / found[0]).string();
}

/// Reads the labels of `data`, and names its classes by number if they have no names.
void read_labels(ByteStream& labels, const DataRequirements& requirements,
                 ResidentSource::Data& data) {
  std::vector<std::uint8_t> raw_labels(data.labels.size());
  const std::uint64_t label_offset = labels.position();
  labels.read(std::as_writable_bytes(std::span(raw_labels)),
              fmt::format("{} labels", raw_labels.size()));
  labels.expect_end();
  if (data.classes.empty()) {
    const std::int64_t largest = *std::max_element(raw_labels.begin(), raw_labels.end());
    data.classes = numbered_classes(requirements.classes > 0 ? requirements.classes : largest + 1);
  }
  for (std::size_t i = 0; i < raw_labels.size(); ++i) {
    if (raw_labels[i] >= data.classes.size()) {
      check_label(raw_labels[i], data.classes.size(),
                  fmt::format("{}, sample {} at offset {}", labels.name(), i, label_offset + i));
    }
  }
  data.labels.assign(raw_labels.begin(), raw_labels.end());
}

void check_idx_root(const std::string& name, const std::string& root, const std::string& fetch) {
  check_root(name, root,
             "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
             "t10k-labels-idx1-ubyte, plain or with .gz",
             fetch);
}

}  // namespace

std::shared_ptr<const DataSource> read_idx_pair(ByteStream images, std::optional<ByteStream> labels,
                                                const std::vector<std::string>& classes,
                                                std::optional<std::int64_t> size,
                                                const DataRequirements& requirements) {
  const std::vector<std::int64_t> dims = read_header(images, 3, 4);
  const std::int64_t count = checked_count(images, dims[0]);
  const std::int64_t label_count =
      labels ? checked_count(*labels, read_header(*labels, 1, 1)[0]) : count;
  if (count != label_count) {
    fail(ErrorKind::data, "{} has {}, but {} has {}: they do not belong together", images.name(),
         counted(static_cast<std::uint64_t>(count), "image"), labels->name(),
         counted(static_cast<std::uint64_t>(label_count), "label"));
  }
  if (size && count != *size) {
    fail(ErrorKind::data,
         "{}: expected the {} images of the published data set, found {} (for other files of this "
         "format, write dataset: idx)",
         images.name(), *size, count);
  }
  const SampleShape shape = checked_shape(images, dims);
  const std::uint64_t bytes =
      static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(shape.elements());
  images.expect(bytes, fmt::format("{} of {}", counted(static_cast<std::uint64_t>(count), "image"),
                                   shape_text(shape)));
  if (labels) labels->expect(static_cast<std::uint64_t>(count), fmt::format("{} labels", count));
  check_shape(images.name(), shape, requirements);

  ResidentSource::Data data;
  data.shape = shape;
  data.classes = classes;
  data.files = {{images.name(), count}};
  data.labels.resize(static_cast<std::size_t>(count));
  if (labels) read_labels(*labels, requirements, data);
  data.pixels = allocate_pixels(bytes, images.name());
  images.read({data.pixels.get(), bytes}, "the pixels");
  images.expect_end();
  return std::make_shared<ResidentSource>(std::move(data));
}

namespace {

/// Returns the pair of files under `root` whose names begin with `part`. Without facts, the test
/// set is optional: if it is missing, both paths are empty.
IdxFiles find_pair(const std::string& name, const std::string& root, const std::string& part,
                   const IdxFacts* facts) {
  IdxFiles files{find_file(root, part + "-images"), find_file(root, part + "-labels")};
  const bool is_missing = files.images.empty() && files.labels.empty();
  if (is_missing && part == "t10k" && !facts) return files;
  if (files.images.empty() || files.labels.empty()) {
    fail(ErrorKind::data,
         "{}: {} has no file {}; expected {}-images-idx3-ubyte and {}-labels-idx1-ubyte, plain "
         "or with .gz{}",
         name, root,
         files.images.empty() ? part + "-images-idx3-ubyte" : part + "-labels-idx1-ubyte", part,
         part, fetch_hint(facts ? facts->fetch : std::string()));
  }
  return files;
}

}  // namespace

DataSets open_idx(const std::string& name, const std::string& root, const IdxFacts* facts,
                  const DataRequirements& requirements) {
  check_idx_root(name, root, facts ? facts->fetch : std::string());
  if (facts) check_classes(fmt::format("{} ({})", name, root), facts->classes.size(), requirements);
  const auto open = [&](const std::string& part,
                        std::int64_t size) -> std::shared_ptr<const DataSource> {
    const IdxFiles files = find_pair(name, root, part, facts);
    if (files.images.empty()) return nullptr;
    return read_idx_pair(ByteStream(files.images), ByteStream(files.labels),
                         facts ? facts->classes : std::vector<std::string>(),
                         facts ? std::optional(size) : std::nullopt, requirements);
  };
  DataSets sets;
  if (requirements.wants(DataPart::train)) {
    sets.train = open("train", facts ? facts->train_size : 0);
  }
  if (requirements.wants(DataPart::test)) sets.test = open("t10k", facts ? facts->test_size : 0);
  return sets;
}

DataSets open_idx_files(const IdxOptions& options, const DataRequirements& requirements) {
  if (!options.root.empty()) check_idx_root("idx", options.root, {});
  const auto find = [&](const std::optional<IdxFiles>& files, const char* part) {
    if (files || options.root.empty()) return files.value_or(IdxFiles());
    return find_pair("idx", options.root, part, nullptr);
  };
  const auto open = [&](const IdxFiles& files) -> std::shared_ptr<const DataSource> {
    if (files.images.empty()) return nullptr;
    return read_idx_pair(ByteStream(files.images), ByteStream(files.labels), {}, std::nullopt,
                         requirements);
  };
  DataSets sets;
  const IdxFiles train = find(options.train, "train");
  sets.train = open(train);
  const IdxFiles test = find(options.test, "t10k"), val = options.val.value_or(IdxFiles());
  check_no_shared_files({{"data.train.images", {train.images}},
                         {"data.val.images", {val.images}},
                         {"data.test.images", {test.images}}});
  sets.test = open(test);
  sets.val = open(val);
  return sets;
}

std::shared_ptr<const DataSource> open_idx_file_images(const IdxOptions& options, DataPart part,
                                                       const DataRequirements& requirements) {
  const auto& files = part == DataPart::train  ? options.train
                      : part == DataPart::test ? options.test
                                               : options.val;
  if (files) return read_idx_pair(ByteStream(files->images), std::nullopt, {}, {}, requirements);
  if (part == DataPart::val || options.root.empty()) return nullptr;
  return open_idx_images("idx", options.root, nullptr, part, requirements);
}

std::shared_ptr<const DataSource> open_idx_images(const std::string& name, const std::string& root,
                                                  const IdxFacts* facts, DataPart part,
                                                  const DataRequirements& requirements) {
  const std::string fetch = facts ? facts->fetch : std::string();
  check_idx_root(name, root, fetch);
  const bool is_test = part == DataPart::test;
  const std::string prefix = is_test ? "t10k-images" : "train-images";
  const std::string images = find_file(root, prefix);
  if (images.empty()) {
    if (is_test && !facts) return nullptr;
    fail(ErrorKind::data, "{}: {} has no file {}-idx3-ubyte, plain or with .gz{}", name, root,
         prefix, fetch_hint(fetch));
  }
  std::optional<std::int64_t> size;
  if (facts) size = is_test ? facts->test_size : facts->train_size;
  return read_idx_pair(ByteStream(images), std::nullopt, {}, size, requirements);
}

}  // namespace dpt
