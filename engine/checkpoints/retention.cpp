// Which checkpoints a folder has, which is the newest good one, and which may go.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/file_io.h"
#include "kernels/error.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";

/// The step of "step-00001234.safetensors", or -1 for another name.
std::int64_t step_of(std::string_view name) {
  if (name.size() <= kPrefix.size() + kSuffix.size() || name.substr(0, 5) != kPrefix ||
      name.substr(name.size() - kSuffix.size()) != kSuffix) {
    return -1;
  }
  const std::string_view digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::int64_t step = -1;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  // Only the one way in which a step is written, so that no two files have the same step.
  return whole && step >= 0 && checkpoint_name(step) == name ? step : -1;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(ErrorKind::data, "{}: cannot list the folder: {}", folder, error.message());
  }
  return names;
}

/// What is wrong with a file, or empty.
std::string defect_of(const std::string& path) {
  try {
    switch (SafetensorsFile::open(path).check_integrity()) {
      case Integrity::good:
        return {};
      case Integrity::mismatch:
        return path + ": is damaged: its bytes do not match its checksum";
      case Integrity::absent:
        break;
    }
    return path + ": has no checksum 'dpt.integrity'";
  } catch (const Error& error) {
    return error.what();
  }
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  fail(ErrorKind::data, "{}: cannot remove it: {}", path, std::generic_category().message(errno));
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08d}.safetensors", step);
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    const std::int64_t step = step_of(name);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::string> paths;
  for (const std::int64_t step : steps) paths.push_back(folder + "/" + checkpoint_name(step));
  return paths;
}

std::string newest_good_checkpoint(const std::string& folder,
                                   const std::function<void(const std::string&)>& warn) {
  for (const std::string& path : list_checkpoints(folder)) {
    const std::string defect = defect_of(path);
    if (defect.empty()) return path;
    warn(defect + "; it is skipped");
  }
  return {};
}

void apply_retention(const std::string& folder, std::int64_t keep_last) {
  std::int64_t good = 0;
  for (const std::string& path : list_checkpoints(folder)) {
    if (good >= std::max<std::int64_t>(1, keep_last)) {
      remove_file(path);
    } else if (defect_of(path).empty()) {
      ++good;
    }
  }
  const std::string left_over = std::string(kSuffix) + kTemporarySuffix;
  for (const std::string& name : names_in(folder)) {
    if (name.size() > left_over.size() &&
        name.compare(name.size() - left_over.size(), left_over.size(), left_over) == 0) {
      remove_file(folder + "/" + name);
    }
  }
}

}  // namespace dpt
