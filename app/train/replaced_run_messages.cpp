#include "app/train/replaced_run_messages.h"

#include <exception>

#include "app/train/train_report.h"
#include "engine/checkpoints/checkpoint.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Returns the place of the new run's files after the previous run was restored: "; its best
/// weights ... are in r/checkpoints/abandoned-1". Returns an empty string if none are kept.
std::string kept_text(const RunFolder& folder) {
  if (folder.kept_of_new().empty()) return {};
  return fmt::format("; its best weights, metrics.jsonl and train.log are in {}",
                     folder.kept_of_new());
}

}  // namespace

std::string restored_text(const RunFolder& folder) {
  return fmt::format(
      "restored the previous run in {}: the run that was to replace it had saved no checkpoint{}",
      folder.path(), kept_text(folder));
}

std::string replaced_text(const RunFolder& folder) {
  const std::string path = folder.current_path();
  return fmt::format(
      "the run that this one replaces is in {}/replaced until the next regular checkpoint; to "
      "bring it back: {}",
      path, shell_command({"dpt", "runs", "--restore", path}));
}

bool is_held(RunFolder& folder) {
  try {
    folder.check_held();
    return true;
  } catch (const Error&) {
    return false;
  }
}

Replacement::~Replacement() {
  try {
    if (!is_held(folder_) || !list_steps(folder_.at("checkpoints")).empty()) return;
    if (folder_.put_back()) {
      progress_.info(
          fmt::format("restored the previous run in {}: the new run saved no checkpoint{}",
                      folder_.path(), kept_text(folder_)));
    }
  } catch (const std::exception& error) {
    progress_.warn(fmt::format("{}; the old run is in {}/replaced", error.what(), folder_.path()));
  }
}

}  // namespace dpt
