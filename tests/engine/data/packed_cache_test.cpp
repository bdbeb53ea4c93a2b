// The cache of decoded images: it returns the same images as its source, and detects faults in its
// file.
#include "engine/data/packed_cache.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/xxhash.h"
#include "kernels/image/resize.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

/// Images of 3 channels and different sizes. One image cannot be read.
class Images final : public DataSource {
 public:
  explicit Images(std::string fingerprint = "pictures", std::int64_t bad = 4)
      : fingerprint_(std::move(fingerprint)), bad_(bad) {}
  std::int64_t size() const override { return 9; }
  SampleShape shape() const override { return {6, 6, 3}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  bool resizes() const override { return true; }
  std::int32_t label(std::int64_t index) const override {
    return static_cast<std::int32_t>(index % 3);
  }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    const Image image = read_part(
        index, [](std::int64_t h, std::int64_t w) { return whole_image(h, w, 6, 6); }, label);
    std::memcpy(pixels.data(), image.pixels.data(), pixels.size());
  }
  Image read_part(std::int64_t index, const ChoosePart& choose,
                  std::int32_t& label) const override {
    ++decoded;
    if (on_read) on_read(index);
    if (index == bad_) fail(ErrorKind::data, "{}: torn", describe(index));
    label = this->label(index);
    Image image{20 + index, 31 - index, 3, {}};
    image.pixels.resize(static_cast<std::size_t>(image.height * image.width * 3));
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
      image.pixels[i] = static_cast<std::uint8_t>(i * 7 + static_cast<std::size_t>(index) * 31);
    }
    return part_of(image, choose(image.height, image.width));
  }
  std::string describe(std::int64_t index) const override {
    return fmt::format("picture {}", index);
  }
  std::string fingerprint() const override { return fingerprint_; }

  mutable std::atomic<int> decoded{0};
  std::function<void(std::int64_t)> on_read;

 private:
  std::string fingerprint_;
  std::int64_t bad_;
  std::vector<std::string> classes_ = {"a", "b", "c"};
};

ImagePart middle(std::int64_t height, std::int64_t width) {
  return {{2, 3, height - 5, width - 4}, 9, 8, {1, 2, 7, 5}};
}

Image part(const DataSource& source, std::int64_t index, const ChoosePart& choose = middle) {
  std::int32_t label = -1;
  Image image = source.read_part(index, choose, label);
  CHECK(label == static_cast<std::int32_t>(index % 3));
  return image;
}

std::string data_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::data);
    return error.what();
  }
  return "no error";
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct CacheDir : testing::TempDir {
  PackedCacheOptions options(std::int64_t shorter_side = 0, int threads = 3) const {
    PackedCacheOptions made;
    made.path = file("folder/train.pack");
    made.shorter_side = shorter_side;
    made.threads = threads;
    return made;
  }
};

TEST_CASE("a cache of turned images is not taken for one of stored images") {
  for (const bool applies : {false, true}) {
    CAPTURE(applies);
    const CacheDir dir;
    PackedCacheOptions options = dir.options();
    options.applies_orientation = applies;
    const auto pictures = std::make_shared<Images>();
    with_packed_cache(pictures, options);
    with_packed_cache(pictures, options);
    options.applies_orientation = !applies;
    const std::string text = data_error([&] { with_packed_cache(pictures, options); });
    CHECK(text.find(applies ? "expected exif_orientation \"ignore\", found \"apply\""
                            : "expected exif_orientation \"apply\", found \"ignore\"") !=
          std::string::npos);
  }
}

TEST_CASE("a cache that does not name exif_orientation is one of stored images") {
  const CacheDir dir;
  const auto pictures = std::make_shared<Images>();
  with_packed_cache(pictures, dir.options());
  const std::string path = dir.options().path;
  std::string bytes = read_all(path);
  // Write a cache of an earlier release: its header lacks the key, so its hash and length differ.
  const std::string key = ",\"exif_orientation\":\"ignore\"";
  const std::size_t at = bytes.find(key);
  REQUIRE(at != std::string::npos);
  const std::size_t trailer = 24;
  std::uint64_t length = 0, hash = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - trailer, sizeof length);
  bytes.erase(at, key.size());
  length -= key.size();
  const std::size_t index = bytes.size() - trailer - length - 9 * 24;
  hash = XXH3_64bits(bytes.data() + index, bytes.size() - trailer - index);
  std::memcpy(bytes.data() + bytes.size() - trailer, &length, sizeof length);
  std::memcpy(bytes.data() + bytes.size() - trailer + 8, &hash, sizeof hash);
  overwrite(path, bytes);
  CHECK(with_packed_cache(pictures, dir.options())->size() == 9);
  PackedCacheOptions options = dir.options();
  options.applies_orientation = true;
  const std::string text = data_error([&] { with_packed_cache(pictures, options); });
  CHECK(text.find("expected exif_orientation \"apply\", found \"ignore\"") != std::string::npos);
}

TEST_CASE("a cache of decoded images has their pixels, labels and errors") {
  const CacheDir dir;
  const auto pictures = std::make_shared<Images>();
  for (int run = 0; run < 2; ++run) {
    const auto cached = with_packed_cache(pictures, dir.options());
    CHECK(pictures->decoded == 9);  // the second run finds the file
    for (std::int64_t i = 0; i < cached->size(); ++i) {
      CAPTURE(i);
      if (i == 4) {
        CHECK(data_error([&] { part(*cached, i); }) == "picture 4: torn");
        continue;
      }
      CHECK((part(*cached, i).pixels == part(*pictures, i).pixels));
      std::array<std::byte, 108> ours{}, theirs{};
      std::int32_t label = 0;
      cached->read(i, ours, label);
      pictures->read(i, theirs, label);
      CHECK((ours == theirs));
    }
    pictures->decoded = 9;
  }
  CHECK(!std::filesystem::exists(dir.file("folder/train.pack.tmp")));
}

TEST_CASE("a cache of a shorter side has the images resized to it, smaller ones as they are") {
  const CacheDir dir;
  const auto pictures = std::make_shared<Images>();
  const auto cached = with_packed_cache(pictures, dir.options(23));
  const auto whole = [](std::int64_t h, std::int64_t w) { return whole_image(h, w, h, w); };
  const Image small = part(*cached, 1, whole);  // 21 x 30
  CHECK(small.height == 21);
  CHECK((small.pixels == part(*pictures, 1, whole).pixels));
  const Image large = part(*cached, 5, whole);  // 25 x 26
  CHECK(large.height == 23);
  CHECK(large.width == 23);
  CHECK((large.pixels == part(*pictures, 5, [](std::int64_t h, std::int64_t w) {
                           return whole_image(h, w, 23, 23);
                         }).pixels));
}

TEST_CASE("processes that want the same cache make it once") {
  const CacheDir dir;
  const auto pictures = std::make_shared<Images>();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { with_packed_cache(pictures, dir.options(0, 1)); });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(pictures->decoded == 9);
}

TEST_CASE("a cache whose maker was killed is made by the next run, and nothing is left over") {
  const CacheDir dir;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto slow = std::make_shared<Images>();
    slow->on_read = [](std::int64_t index) {
      if (index == 5) kill(getpid(), SIGKILL);
    };
    with_packed_cache(slow, dir.options(0, 1));
    _exit(1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const std::string path = dir.options().path;
  CHECK(std::filesystem::exists(path + ".tmp"));
  CHECK(std::filesystem::exists(path + ".lock"));
  const auto pictures = std::make_shared<Images>();
  const auto cached = with_packed_cache(pictures, dir.options());
  CHECK(pictures->decoded == 9);
  CHECK((part(*cached, 8).pixels == part(*pictures, 8).pixels));
  CHECK(!std::filesystem::exists(path + ".tmp"));
  CHECK(!std::filesystem::exists(path + ".lock"));
}

TEST_CASE(
    "a process that makes a cache beats for each image, and one that waits for it beats, too") {
  const CacheDir dir;
  const auto maker = std::make_shared<Heartbeat>(), waiter = std::make_shared<Heartbeat>();
  const auto slow = std::make_shared<Images>();
  std::atomic<bool> has_begun{false};
  std::vector<std::uint64_t> beats;
  slow->on_read = [&](std::int64_t index) {
    beats.push_back(maker->beats());
    has_begun = true;
    // However long this takes, the waiting process must not count as stalled. Continue after three
    // of its heartbeats.
    const std::uint64_t before = waiter->beats();
    while (index == 1 && waiter->beats() < before + 3) std::this_thread::yield();
  };
  std::thread other([&] {
    set_heartbeat_of_thread(waiter);
    while (!has_begun) std::this_thread::yield();
    with_packed_cache(std::make_shared<Images>(), dir.options());
  });
  set_heartbeat_of_thread(maker);
  with_packed_cache(slow, dir.options(0, 1));
  set_heartbeat_of_thread(nullptr);
  other.join();
  REQUIRE(beats.size() == 9);
  for (std::size_t i = 1; i < beats.size(); ++i) CHECK(beats[i] > beats[i - 1]);
}

TEST_CASE("a cache of other data, or a damaged one, is refused") {
  const CacheDir dir;
  const std::string path = dir.options().path;
  const auto pictures = std::make_shared<Images>();
  with_packed_cache(pictures, dir.options());
  CHECK(
      data_error([&] { with_packed_cache(std::make_shared<Images>("others"), dir.options()); }) ==
      path +
          ": this cache holds other data: expected fingerprint \"others\", found \"pictures\": set "
          "data.cache to another folder, or remove this file, and the next run creates it again");
  CHECK(testing::contains(data_error([&] { with_packed_cache(pictures, dir.options(9)); }),
                          "expected shorter_side 9, found 0"));

  const std::string whole = read_whole_file(path);
  // A change of any byte is detected: in an image when it is read, elsewhere when the file is
  // opened.
  for (std::size_t at = 0; at < whole.size(); at += at < 9000 ? 997 : 1) {
    CAPTURE(at);
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    overwrite(path, bad);
    std::string found;
    found = data_error([&] {
      const auto cached = with_packed_cache(pictures, dir.options());
      for (const std::int64_t i : {0, 1, 2, 3, 5, 6, 7, 8}) part(*cached, i);
    });
    REQUIRE(testing::contains(found, path));
  }
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
    overwrite(path, whole.substr(0, length));
    CHECK(testing::contains(data_error([&] { with_packed_cache(pictures, dir.options()); }),
                            "expected a complete cache of decoded images"));
  }
}

}  // namespace
}  // namespace dpt
