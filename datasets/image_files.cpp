#include "datasets/image_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "datasets/dataset.h"
#include "datasets/fingerprint.h"
#include "datasets/folder_report.h"
#include "datasets/image_file.h"
#include "datasets/image_source.h"
#include "datasets/image_walk.h"
#include "datasets/requirements.h"
#include "datasets/unlabelled.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/image/image_formats.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Adds the images below a folder, sorted by path, and notes about files that are left out.
void add_images_below(const std::string& folder, ListedImages& listed) {
  WalkedFolder walked = std::move(walk_folders({folder})[0]);
  std::vector<std::string> found;
  for (const ListedImage& image : walked.images) {
    found.push_back((fs::path(folder) / image.name).string());
  }
  // A file that cannot be opened, but has an image's extension, counts as an unreadable sample.
  std::erase_if(walked.bad, [&](const BadFile& bad) {
    if (bad.kind == BadFileKind::unread_format) return false;
    found.push_back(bad.path);
    return true;
  });
  FolderReport report(folder, true);
  report.add(walked);
  const std::vector<std::string> notes = report.notes();
  if (found.empty()) {
    fail(ErrorKind::data, "{}: expected images ({}) in the folder, found none{}", folder,
         fmt::join(readable_extensions(), ", "),
         notes.empty() ? std::string() : fmt::format(" ({})", fmt::join(notes, "; ")));
  }
  std::sort(found.begin(), found.end());
  listed.paths.insert(listed.paths.end(), found.begin(), found.end());
  listed.notes.insert(listed.notes.end(), notes.begin(), notes.end());
}

class ImageFilesSource final : public ImageSource {
 public:
  ImageFilesSource(std::vector<std::string> paths, Samples samples,
                   const DataRequirements& requirements, std::string fingerprint)
      : ImageSource("the images", std::move(samples), requirements, 0, std::move(fingerprint)),
        paths_(std::move(paths)) {}

  std::string describe(std::int64_t index) const override { return paths_[index]; }

 protected:
  std::vector<std::byte> read_file(std::int64_t index) const override {
    return read_image_file(describe(index));
  }

 private:
  std::vector<std::string> paths_;
};

}  // namespace

ListedImages list_images(const std::vector<std::string>& paths) {
  ListedImages listed;
  for (const std::string& path : paths) {
    std::error_code error;  // Ignored: reading the path will report it.
    if (fs::is_directory(path, error)) {
      add_images_below(path, listed);
    } else {
      listed.paths.push_back(path);
    }
  }
  return listed;
}

std::shared_ptr<const DataSource> open_image_files(std::vector<std::string> paths,
                                                   const DataRequirements& requirements,
                                                   const ModelOutputs& outputs,
                                                   std::shared_ptr<UnreadableSamples> unreadable) {
  const SampleShape input = requirements.input;
  if (input.c != 1 && input.c != 3) {
    fail(ErrorKind::data,
         "images are read as 1 channel (grey) or 3 (RGB), but the model's input is {}",
         shape_text(input));
  }
  check_image_count("the images", paths.size());
  ImageSource::Samples samples;
  samples.labels.resize(paths.size());
  // Hash the names, because processes that share the work compare the hash.
  Fingerprint names;
  for (const std::string& path : paths) names.add(path);
  return without_labels(std::make_shared<ImageFilesSource>(std::move(paths), std::move(samples),
                                                           requirements, names.text()),
                        outputs, std::move(unreadable));
}

}  // namespace dpt
