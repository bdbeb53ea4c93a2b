#include "datasets/picture_files.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "datasets/fingerprint.h"
#include "datasets/image.h"
#include "datasets/requirements.h"
#include "engine/data/stage_clock.h"
#include "kernels/error.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// The pictures below a folder, sorted by path.
std::vector<std::string> pictures_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().filename().string().starts_with(".")) {
      it.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;  // of a link that leads nowhere: reading it says so
    if (it->is_directory(ignored)) continue;
    if (is_image_name(it->path().string())) found.push_back(it->path().string());
  }
  if (error) fail(ErrorKind::data, "{}: cannot be listed: {}", folder, error.message());
  if (found.empty()) {
    fail(ErrorKind::data,
         "{}: expected pictures (*.jpg, *.jpeg or *.png) in the folder, found none", folder);
  }
  std::sort(found.begin(), found.end());
  return found;
}

class PictureFilesSource final : public DataSource {
 public:
  PictureFilesSource(PictureFiles files, SampleShape shape, bool salvage,
                     std::shared_ptr<UnreadablePictures> unreadable)
      : files_(std::move(files)),
        shape_(shape),
        salvage_(salvage),
        unreadable_(std::move(unreadable)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(files_.paths.size()); }
  SampleShape shape() const override { return shape_; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return files_.classes; }
  TargetShape targets() const override { return files_.targets; }
  bool resizes() const override { return true; }
  std::int32_t label(std::int64_t) const override { return 0; }
  /// Of the names: processes that share the work compare it.
  std::string fingerprint() const override {
    Fingerprint names;
    for (const std::string& path : files_.paths) names.add(path);
    return names.text();
  }
  std::string describe(std::int64_t index) const override {
    return files_.paths[static_cast<std::size_t>(index)];
  }

  void read_targets(std::int64_t, std::span<float> row) const override {
    std::fill(row.begin(), row.end(), 0.0F);
  }

  Image read_part(std::int64_t index, const ChoosePart& choose,
                  std::int32_t& label) const override {
    label = 0;
    const std::string path = describe(index);
    // A choice has to be made once, also where the file turns out to be damaged after it.
    std::optional<PicturePart> part;
    const ChoosePart choose_once = [&](std::int64_t height, std::int64_t width) {
      part = choose(height, width);
      return *part;
    };
    try {
      const std::vector<std::byte> file = read_image_file(path);
      const StageTimer timer(DataStage::decode);
      return decode_part(file, path, shape_.c, choose_once, {salvage_});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      unreadable_->add(index, error.what());
    }
    if (!part) choose_once(shape_.h, shape_.w);
    Image black{part->window.height, part->window.width, shape_.c, {}};
    black.pixels.resize(static_cast<std::size_t>(black.height * black.width * black.channels));
    return black;
  }

  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    const Image image = read_part(
        index,
        [&](std::int64_t height, std::int64_t width) {
          return whole_picture(height, width, shape_.h, shape_.w);
        },
        label);
    assert(image.pixels.size() == pixels.size());
    std::memcpy(pixels.data(), image.pixels.data(), pixels.size());
  }

 private:
  PictureFiles files_;
  SampleShape shape_;
  bool salvage_;
  std::shared_ptr<UnreadablePictures> unreadable_;
};

}  // namespace

void UnreadablePictures::add(std::int64_t index, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  problems_[index] = problem;
}

std::map<std::int64_t, std::string> UnreadablePictures::take_below(std::int64_t end) {
  const std::lock_guard lock(mutex_);
  std::map<std::int64_t, std::string> taken;
  while (!problems_.empty() && problems_.begin()->first < end) {
    taken.insert(problems_.extract(problems_.begin()));
  }
  return taken;
}

std::vector<std::string> list_pictures(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    std::error_code error;  // of a path that cannot be looked at: reading it says so
    if (!fs::is_directory(path, error)) {
      all.push_back(path);
      continue;
    }
    const std::vector<std::string> below = pictures_below(path);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

std::shared_ptr<const DataSource> open_picture_files(
    PictureFiles files, const DataRequirements& requirements,
    std::shared_ptr<UnreadablePictures> unreadable) {
  const SampleShape input = requirements.input;
  if (input.c != 1 && input.c != 3) {
    fail(ErrorKind::data,
         "pictures are read as 1 channel (grey) or 3 (RGB), but the model's input is {}",
         shape_text(input));
  }
  return std::make_shared<PictureFilesSource>(std::move(files), input, requirements.salvage,
                                              std::move(unreadable));
}

}  // namespace dpt
