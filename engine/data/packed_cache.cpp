#include "engine/data/packed_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "engine/data/host_transform.h"
#include "engine/data/wrapped_source.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/held_path.h"
#include "kernels/base/mapped_file.h"
#include "kernels/base/stage_clock.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/worker_threads.h"
#include "kernels/base/xxhash.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMagic[] = "dptpack1";
constexpr std::size_t kMagicBytes = 8;
constexpr const char* kOrientation = "exif_orientation";
constexpr std::size_t kTrailerBytes = 8 + 8 + kMagicBytes;

struct PackedEntry {
  std::uint64_t offset = 0;
  std::uint32_t height = 0, width = 0;
  std::int32_t label = 0;
  std::uint32_t hash = 0;
};
static_assert(sizeof(PackedEntry) == 24);

std::uint32_t low_hash(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

Json header_of(const DataSource& source, const PackedCacheOptions& options) {
  const auto orientation =
      options.applies_orientation ? ExifOrientation::apply : ExifOrientation::ignore;
  return {{"version", 1},
          {"fingerprint", source.fingerprint()},
          {"shorter_side", options.shorter_side},
          {"salvage", options.salvage},
          {kOrientation, name_of(orientation)},
          {"channels", source.shape().c},
          {"samples", source.size()}};
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// ---- Making the cache --------------------------------------------------------------------------

/// Returns the whole image as an ImagePart, at the size at which the cache keeps it.
ImagePart kept_part(std::int64_t height, std::int64_t width, std::int64_t shorter_side) {
  if (shorter_side == 0 || std::min(height, width) <= shorter_side) {
    return whole_image(height, width, height, width);
  }
  const Size2 size = with_shorter_side({height, width}, shorter_side);
  return whole_image(height, width, size.h, size.w);
}

/// Writer of the cache. Decodes on several threads; any error except an unreadable sample stops all
/// threads.
class CacheMaker {
 public:
  CacheMaker(const DataSource& source, const PackedCacheOptions& options)
      : source_(source),
        options_(options),
        file_(options.path),
        index_(static_cast<std::size_t>(source.size())) {}

  void make() {
    write({reinterpret_cast<const std::byte*>(kMagic), kMagicBytes});
    run_workers(options_.threads, "decoder of " + options_.path,
                [this](const std::atomic<bool>& stop) {
                  for (std::int64_t i = next_++; i < source_.size() && !stop; i = next_++) {
                    beat("creating the cache of decoded images");
                    add(i);
                  }
                },
                {});
    const std::string header = header_of(source_, options_).dump();
    std::vector<std::byte> end(index_.size() * sizeof(PackedEntry));
    std::memcpy(end.data(), index_.data(), end.size());
    const std::span<const std::byte> text = bytes_of(header);
    end.insert(end.end(), text.begin(), text.end());
    const std::uint64_t length = header.size(), hash = XXH3_64bits(end.data(), end.size());
    const auto append = [&](const void* from, std::size_t count) {
      const auto* bytes = static_cast<const std::byte*>(from);
      end.insert(end.end(), bytes, bytes + count);
    };
    append(&length, sizeof length);
    append(&hash, sizeof hash);
    append(kMagic, kMagicBytes);
    write(end);
    file_.commit();
  }

 private:
  void add(std::int64_t i) {
    PackedEntry& entry = index_[i];
    Image image;
    try {
      image = source_.read_part(
          i,
          [&](std::int64_t height, std::int64_t width) {
            return kept_part(height, width, options_.shorter_side);
          },
          entry.label);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      entry.label = source_.label(i);
    }
    const std::span<const std::byte> pixels = std::as_bytes(std::span(image.pixels));
    entry.height = static_cast<std::uint32_t>(image.height);
    entry.width = static_cast<std::uint32_t>(image.width);
    entry.hash = low_hash(pixels);
    const std::lock_guard lock(mutex_);
    entry.offset = written_;
    write(pixels);
    ++done_;
    const auto now = std::chrono::steady_clock::now();
    if (options_.info && now - told_ > std::chrono::seconds(10)) {
      told_ = now;
      options_.info(fmt::format("creating {}: {} of {} images, {} MiB", options_.path, done_,
                                source_.size(), written_ >> 20));
    }
  }

  void write(std::span<const std::byte> bytes) {
    file_.write(bytes);
    written_ += bytes.size();
  }

  const DataSource& source_;
  const PackedCacheOptions& options_;
  AtomicFile file_;
  std::vector<PackedEntry> index_;
  std::atomic<std::int64_t> next_{0};
  std::mutex mutex_;  ///< guards file_ and the following members
  std::uint64_t written_ = 0;
  std::int64_t done_ = 0;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

/// Lock that prevents other processes from making the same file at the same time. The destructor
/// removes the lock file. If the process is killed, the lock file remains, and the next process
/// reuses it.
class CacheLock {
 public:
  CacheLock(const PackedCacheOptions& options) : path_(options.path + ".lock") {
    // The previous holder may have removed the lock file while this process waited: the path then
    // names no file or another one, and a lock on the removed file protects nothing.
    do {
      file_ = open_file(path_, O_RDWR | O_CREAT, 0666);
      if (!file_.is_open()) fail(ErrorKind::data, "{}: {}", path_, std::strerror(errno));
      wait(options);
    } while (!is_same_entry(path_, file_));
  }
  CacheLock(const CacheLock&) = delete;
  ~CacheLock() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  void wait(const PackedCacheOptions& options) {
    bool told = false;
    while (flock(file_.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        fail(ErrorKind::data, "{}: cannot be locked: {}", path_, std::strerror(errno));
      }
      beat("waiting for the cache of decoded images");
      check_stop();
      if (!told && options.info) {
        options.info(fmt::format("waiting for another process to create {}", options.path));
      }
      told = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  std::string path_;
  FileHandle file_;
};

// ---- Reading the cache -------------------------------------------------------------------------

class PackedSource final : public WrappedSource {
 public:
  PackedSource(std::shared_ptr<const DataSource> source, const PackedCacheOptions& options)
      : WrappedSource(std::move(source)), path_(options.path), file_(options.path) {
    read_index(options);
  }

  bool resizes() const override { return source().resizes(); }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    const Image image = read_part(
        index,
        [&](std::int64_t height, std::int64_t width) {
          return whole_image(height, width, shape().h, shape().w);
        },
        label);
    std::memcpy(pixels.data(), image.pixels.data(), pixels.size());
  }

  Image read_part(std::int64_t index, const ChoosePart& choose,
                  std::int32_t& label) const override {
    const PackedEntry& entry = index_[index];
    if (entry.height == 0) return source().read_part(index, choose, label);
    label = entry.label;
    const std::int64_t h = entry.height, w = entry.width, c = shape().c;
    const auto pixels = file_.bytes().subspan(static_cast<std::size_t>(entry.offset),
                                              static_cast<std::size_t>(h * w * c));
    {
      const StageTimer timer(DataStage::read);
      if (low_hash(pixels) != entry.hash) {
        throw DamagedCache(
            fmt::format("{}: damaged: the pixels of sample {} ({}) are not those that were "
                        "written: remove the file, and the next run creates it again",
                        path_, index, describe(index)));
      }
    }
    return part_of({h, w, c, {reinterpret_cast<const std::uint8_t*>(pixels.data()), pixels.size()}},
                   choose(h, w));
  }

 private:
  [[noreturn]] void refuse(const std::string& found) const {
    fail(ErrorKind::data,
         "{}: expected a complete cache of decoded images, found {}: remove the file, and the next "
         "run creates it again",
         path_, found);
  }

  void read_index(const PackedCacheOptions& options) {
    const std::span<const std::byte> all = file_.bytes();
    const auto is_magic = [](std::span<const std::byte> at) {
      return std::memcmp(at.data(), kMagic, kMagicBytes) == 0;
    };
    if (all.size() < kMagicBytes + kTrailerBytes || !is_magic(all) ||
        !is_magic(all.last(kMagicBytes))) {
      refuse("a different or incomplete file");
    }
    const std::span<const std::byte> trailer = all.last(kTrailerBytes);
    std::uint64_t length = 0, hash = 0;
    std::memcpy(&length, trailer.data(), sizeof length);
    std::memcpy(&hash, trailer.data() + sizeof length, sizeof hash);
    const std::size_t room = all.size() - kMagicBytes - kTrailerBytes;
    if (length > room) refuse("a damaged header");
    const auto text = all.subspan(all.size() - kTrailerBytes - length, length);
    Json header =
        Json::parse(reinterpret_cast<const char*>(text.data()),
                    reinterpret_cast<const char*>(text.data()) + text.size(), nullptr, false);
    if (!header.is_object() || !header.contains("samples")) refuse("a damaged header");
    // Earlier releases did not turn images and did not write this field.
    if (!header.contains(kOrientation)) header[kOrientation] = name_of(ExifOrientation::ignore);
    const Json expected = header_of(source(), options);
    for (const auto& [name, value] : expected.items()) {
      if (header.contains(name) && header[name] == value) continue;
      fail(ErrorKind::data,
           "{}: this cache holds other data: expected {} {}, found {}: set data.cache to another "
           "folder, or remove this file, and the next run creates it again",
           path_, name, value.dump(),
           header.contains(name) ? header[name].dump() : std::string("none"));
    }
    const std::size_t entries = static_cast<std::size_t>(size()) * sizeof(PackedEntry);
    if (entries > room - length) refuse("a damaged index");
    const auto at = all.size() - kTrailerBytes - length - entries;
    if (XXH3_64bits(all.data() + at, entries + length) != hash) refuse("a damaged index");
    index_.resize(static_cast<std::size_t>(size()));
    std::memcpy(index_.data(), all.data() + at, entries);
    for (const PackedEntry& entry : index_) {
      const std::uint64_t bytes =
          std::uint64_t{entry.height} * entry.width * static_cast<std::uint64_t>(shape().c);
      if (entry.offset > at || bytes > at - entry.offset) refuse("a damaged index");
    }
  }

  std::string path_;
  MappedFile file_;
  std::vector<PackedEntry> index_;
};

bool is_there(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

}  // namespace

std::shared_ptr<const DataSource> with_packed_cache(std::shared_ptr<const DataSource> source,
                                                    const PackedCacheOptions& options) {
  assert(source->type() == DType::u8);
  if (!is_there(options.path)) {
    make_folders(folder_of(options.path));
    const CacheLock lock(options);
    if (!is_there(options.path)) CacheMaker(*source, options).make();
  }
  return std::make_shared<PackedSource>(std::move(source), options);
}

}  // namespace dpt
