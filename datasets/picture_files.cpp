#include "datasets/picture_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "datasets/fingerprint.h"
#include "datasets/image.h"
#include "datasets/picture_source.h"
#include "datasets/requirements.h"
#include "datasets/unlabelled.h"
#include "kernels/error.h"
#include "kernels/stop_request.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// The pictures below a folder, sorted by path.
std::vector<std::string> pictures_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    check_stop();
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

class PictureFilesSource final : public PictureSource {
 public:
  PictureFilesSource(std::vector<std::string> paths, Samples samples,
                     const DataRequirements& requirements, std::string fingerprint)
      : PictureSource("the pictures", std::move(samples), requirements, 0, std::move(fingerprint)),
        paths_(std::move(paths)) {}

  std::string describe(std::int64_t index) const override {
    return paths_[static_cast<std::size_t>(index)];
  }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::vector<std::string> paths_;
};

}  // namespace

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
    std::vector<std::string> paths, const DataRequirements& requirements,
    const ModelOutputs& outputs, std::shared_ptr<UnreadableSamples> unreadable) {
  const SampleShape input = requirements.input;
  if (input.c != 1 && input.c != 3) {
    fail(ErrorKind::data,
         "pictures are read as 1 channel (grey) or 3 (RGB), but the model's input is {}",
         shape_text(input));
  }
  check_picture_count("the pictures", paths.size());
  PictureSource::Samples samples;
  samples.labels.resize(paths.size());
  // Of the names: processes that share the work compare it.
  Fingerprint names;
  for (const std::string& path : paths) names.add(path);
  return without_labels(std::make_shared<PictureFilesSource>(std::move(paths), std::move(samples),
                                                             requirements, names.text()),
                        outputs, std::move(unreadable));
}

}  // namespace dpt
