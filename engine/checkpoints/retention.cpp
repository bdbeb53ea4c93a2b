// Lists the checkpoints of a folder, finds the newest good one, and removes old ones.
#include "engine/checkpoints/retention.h"

#include <fcntl.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "engine/checkpoints/checkpoint.h"
#include "kernels/base/error.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";

/// Returns true for the name of a temporary file that a crash left while a checkpoint was written.
bool is_temporary(std::string_view name) {
  if (!name.ends_with(kTemporarySuffix)) return false;
  name.remove_suffix(std::string_view(kTemporarySuffix).size());
  return step_of_checkpoint(name) >= 0;
}

}  // namespace

std::int64_t step_of_checkpoint(std::string_view name) {
  if (name.size() <= kPrefix.size() + kSuffix.size() || name.substr(0, 5) != kPrefix ||
      name.substr(name.size() - kSuffix.size()) != kSuffix) {
    return -1;
  }
  const std::string_view digits =
      name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  std::int64_t step = -1;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  const bool whole = result.ec == std::errc() && result.ptr == digits.data() + digits.size();
  // Accept only the name that checkpoint_name returns, so that no two files have the same step.
  return whole && step >= 0 && checkpoint_name(step) == name ? step : -1;
}

std::string defect_of(const HeldPath& path, Integrity integrity) {
  switch (integrity) {
    case Integrity::good:
      return {};
    case Integrity::mismatch:
      return path.text() + ": the file is damaged: its bytes do not match its checksum";
    case Integrity::absent:
      break;
  }
  return path.text() + ": has no checksum 'dpt.integrity'";
}

std::string defect_of(const HeldPath& path) {
  try {
    return defect_of(path, SafetensorsFile::open(path).check_integrity());
  } catch (const Error& error) {
    return error.what();
  }
}

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("step-{:08d}.safetensors", step);
}

std::vector<std::int64_t> list_steps(const HeldPath& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : list_names(folder)) {
    const std::int64_t step = step_of_checkpoint(name);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> paths;
  for (const std::int64_t step : list_steps(folder)) {
    paths.push_back(folder + "/" + checkpoint_name(step));
  }
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

void Retention::note_good(const HeldPath& path) {
  const FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
  if (file.is_open()) written_.add_written(file.fd());
}

bool Retention::is_good(const HeldPath& path) const {
  const FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
  return (file.is_open() && written_.contains(file.fd())) || defect_of(path).empty();
}

void Retention::apply(std::int64_t newest, const std::function<bool(std::int64_t)>& is_needed,
                      const std::function<void(const std::string&)>& warn) {
  const auto remove = [&](const HeldPath& path) {
    try {
      remove_durably(path);
    } catch (const Error& error) {
      warn(error.what());
    }
  };
  std::vector<std::int64_t> steps = list_steps(folder_);
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  const std::int64_t kept = std::max<std::int64_t>(1, keep_last_);
  // If there is no checkpoint to remove, it does not matter which ones are good.
  if (static_cast<std::int64_t>(steps.size()) <= kept) steps.clear();
  std::int64_t good = 0;
  for (const std::int64_t step : steps) {
    const HeldPath path = folder_ / checkpoint_name(step);
    if (good < kept) {
      if (is_good(path)) ++good;
    } else if (pinned_.count(step) == 0 && !is_needed(step)) {
      remove(path);
    }
  }
  for (const std::string& name : list_names(folder_)) {
    if (is_temporary(name)) remove(folder_ / name);
  }
}

void apply_retention(const std::string& folder, std::int64_t keep_last) {
  Retention(folder, keep_last)
      .apply(
          std::numeric_limits<std::int64_t>::max(), [](std::int64_t) { return false; },
          [](const std::string& text) { fail(ErrorKind::data, "{}", text); });
}

}  // namespace dpt
