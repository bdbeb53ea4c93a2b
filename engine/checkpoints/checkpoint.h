// A run on disk: weights, optimizer state and counters. See docs/guide/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/checkpoints/checkpoint_content.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/graph/plan.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Writes a checkpoint with torchvision's names and layouts, and optimizer state as
/// "optim.STATE.PARAM". Throws ErrorKind::diverged for non-finite weights, and ErrorKind::data for
/// counters that load_checkpoint would refuse. Returns the new file's checksum.
std::string save_checkpoint(const HeldPath& path, const Plan& plan, const Checkpoint& checkpoint);

/// Reads the header of a checkpoint, without a plan. Verifies the file as load_checkpoint does.
CheckpointHeader read_checkpoint_header(const HeldPath& path);

/// Checkpoint whose file was read completely, once, and verified during the read.
class VerifiedCheckpoint {
 public:
  /// Keeps the tensors that fit `plan`, which must outlive this object. Throws ErrorKind::data for
  /// a damaged file, naming the newest good one next to it.
  VerifiedCheckpoint(const HeldPath& path, const Plan& plan);
  /// Returns the newest good checkpoint of a folder; nothing if there is none. `warn` receives a
  /// line for each newer checkpoint that is bad.
  static std::optional<VerifiedCheckpoint> newest_good(
      const std::string& folder, const Plan& plan,
      const std::function<void(const std::string&)>& warn);

  const std::string& path() const { return file_.path(); }
  const CheckpointHeader& header() const { return header_; }
  /// Returns the checkpoint. Throws ErrorKind::data, naming the tensor, if a tensor does not fit
  /// the plan. REQUIRES: called once.
  Checkpoint take();

 private:
  VerifiedCheckpoint(SafetensorsFile file, const Plan& plan);
  void read_header();
  void check_param(const std::string& name, const Param& param, std::set<std::string>& seen) const;

  const Plan* plan_;
  SafetensorsFile file_;
  Integrity integrity_ = Integrity::absent;
  CheckpointHeader header_;
  std::vector<float> params_;
  std::map<std::string, std::vector<float>, std::less<>> states_;
};

/// Reads and verifies a checkpoint as VerifiedCheckpoint does.
Checkpoint load_checkpoint(const HeldPath& path, const Plan& plan);

/// Returns the name of a step's checkpoint: "step-00001234.safetensors".
std::string checkpoint_name(std::int64_t step);

/// Returns the paths of the checkpoints of a folder, newest step first, recognised by their names
/// only. Empty if the folder is missing.
std::vector<std::string> list_checkpoints(const std::string& folder);
/// Returns the steps of a folder's checkpoints, newest first.
std::vector<std::int64_t> list_steps(const HeldPath& folder);

/// Returns the path of the newest good checkpoint; empty if there is none. `warn` receives a line
/// for each newer checkpoint that is bad.
std::string newest_good_checkpoint(const std::string& folder,
                                   const std::function<void(const std::string&)>& warn);

/// Returns the reason why a file is not a good checkpoint; empty if it is. Reads the whole file
/// unless this process has verified it before.
std::string defect_of(const HeldPath& path);
/// Returns the same for a file whose integrity is already known.
std::string defect_of(const HeldPath& path, Integrity integrity);

/// Returns the step of "step-00001234.safetensors", or -1 for another name.
std::int64_t step_of_checkpoint(std::string_view name);

/// Removes checkpoints older than the newest `keep_last` (at least 1) good ones, and temporary
/// files that a crash left. Reads all files that it keeps; Retention (retention.h) avoids that.
void apply_retention(const std::string& folder, std::int64_t keep_last);

}  // namespace dpt
