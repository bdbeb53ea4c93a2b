// Converts checkpoints between tensors in the file's layouts and flat buffers.
#include "engine/checkpoints/checkpoint.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>

#include "engine/checkpoints/param_tensors.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/checkpoints/safetensors_header.h"
#include "engine/checkpoints/state_checks.h"
#include "engine/checkpoints/tensor_view.h"
#include "engine/graph/layouts.h"
#include "engine/layers/param_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace {

constexpr std::string_view kStatePrefix = "optim.";

std::string state_tensor_name(const std::string& state, const Param& param) {
  return fmt::format("{}{}.{}", kStatePrefix, state, param.name);
}

/// Returns true if a state has a tensor for a parameter. Counters are not averaged.
bool is_kept(const std::string& state, const Param& param) {
  return param.is_trained() || (is_average(state) && param.spec.role != ParamRole::counter);
}

/// Returns the dtype of a parameter in files. Counters are integers, as in PyTorch's
/// num_batches_tracked.
const char* dtype_of(const Param& param) {
  return param.spec.role == ParamRole::counter ? "I64" : "F32";
}

/// Returns the index of the first non-finite value of a parameter, or param.count if there is none.
std::int64_t find_nonfinite(const Param& param, const float* values) {
  if (param.spec.role == ParamRole::counter) return param.count;
  const auto is_bad = [](float value) { return !std::isfinite(value); };
  return std::find_if(values, values + param.count, is_bad) - values;
}

void check_may_save(const std::string& path, const std::string& name, const Param& param,
                    const float* values) {
  const std::int64_t i = find_nonfinite(param, values);
  if (i == param.count) return;
  fail(ErrorKind::diverged,
       "{}: not saved: '{}' has the value {} at element {}; training has diverged; the last good "
       "checkpoint is kept",
       path, name, values[i], i);
}

/// Throws for values that dpt never saves: another program must have changed the file.
void check_loaded(const std::string& path, const std::string& name, const Param& param,
                  const float* values) {
  const std::int64_t i = find_nonfinite(param, values);
  if (i == param.count) return;
  fail(ErrorKind::data,
       "{}: tensor '{}': expected finite numbers, found {}: the checkpoint itself has non-finite "
       "values; choose an older one",
       path, name, std::isnan(values[i]) ? "nan" : fmt::format("{}", values[i]));
}

/// Tensors to write to a file. `sources` has each tensor's parameter, and the tensor's values in
/// buffer layout.
struct FileTensors {
  std::vector<TensorView> views;
  std::vector<std::pair<const Param*, const float*>> sources;

  void add(const std::string& path, const std::string& name, const Param& param,
           const float* flat) {
    check_may_save(path, name, param, flat + param.offset);
    views.push_back({name, dtype_of(param), param.spec.file_shape, nullptr});
    sources.emplace_back(&param, flat + param.offset);
  }
};

/// Receiver of a plan's tensors and of its parameters' states while their file is verified. Ignores
/// tensors that do not fit: VerifiedCheckpoint::take reports them.
class PlanReceiver : public TensorReceiver {
 public:
  PlanReceiver(const Plan& plan, std::vector<float>& params,
               std::map<std::string, std::vector<float>, std::less<>>& states)
      : params_(params), states_(states), floats_(static_cast<std::size_t>(plan.param_floats)) {
    for (const Param& param : plan.params) by_name_.emplace(param.name, &param);
    params_.assign(floats_, 0.0F);
  }

  std::span<std::byte> place_for(const TensorEntry& entry) override {
    param_ = nullptr;
    flat_ = &params_;
    if (const auto found = by_name_.find(entry.name); found != by_name_.end()) {
      param_ = found->second;
    } else if (entry.name.starts_with(kStatePrefix)) {
      find_state(std::string_view(entry.name).substr(kStatePrefix.size()));
    }
    if (!param_ || entry.dtype != dtype_of(*param_) || entry.shape != param_->spec.file_shape) {
      return {};
    }
    if (param_->spec.role == ParamRole::counter) {
      integers_.resize(static_cast<std::size_t>(param_->count));
      return std::as_writable_bytes(std::span(integers_));
    }
    values_.resize(static_cast<std::size_t>(param_->count));
    return std::as_writable_bytes(std::span(values_));
  }

  void received(const TensorEntry&) override {
    flat_->resize(floats_);
    float* to = flat_->data() + param_->offset;
    if (param_->spec.role == ParamRole::counter) {
      put_counts(*param_, integers_, to);
    } else {
      from_file_layout(*param_, values_.data(), to);
    }
  }

 private:
  /// Finds the parameter of a state "STATE.PARAM"; names of states have no dots.
  void find_state(std::string_view name) {
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return;
    const std::string state(name.substr(0, dot));
    const auto found = by_name_.find(name.substr(dot + 1));
    if (found == by_name_.end() || !is_kept(state, *found->second)) return;
    param_ = found->second;
    flat_ = &states_[state];
  }

  std::vector<float>& params_;
  std::map<std::string, std::vector<float>, std::less<>>& states_;
  std::size_t floats_;
  std::map<std::string_view, const Param*> by_name_;
  const Param* param_ = nullptr;  ///< parameter of the tensor that is being read
  std::vector<float>* flat_ = nullptr;
  std::vector<float> values_;
  std::vector<std::int64_t> integers_;
};

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

/// Returns a sentence that names a good checkpoint next to a damaged one, or an empty string.
std::string good_neighbour(const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string good = newest_good_checkpoint(folder, [](const auto&) {});
  if (!good.empty()) {
    return fmt::format("the newest good checkpoint in its folder is {}", file_name(good));
  }
  const std::string best =
      std::filesystem::path(folder + "/../best.safetensors").lexically_normal().string();
  if (!defect_of(best).empty()) return {};
  return fmt::format("there is no good checkpoint in its folder, but {} is good", best);
}

/// Opens a checkpoint. The error about a damaged header names a good checkpoint next to it.
SafetensorsFile open_checkpoint(const HeldPath& place) {
  try {
    return SafetensorsFile::open(place);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    const std::string good = good_neighbour(place.text());
    if (good.empty()) throw;
    fail(ErrorKind::data, "{}; {}", error.what(), good);
  }
}

void check_undamaged(const SafetensorsFile& file, Integrity integrity) {
  if (integrity == Integrity::good) return;
  // read_version throws a clearer error if the file is not dpt's, or is from a later version.
  const bool says_version = file.metadata().contains("dpt.version");
  if (integrity == Integrity::absent || says_version) read_version(file.path(), file.metadata());
  const std::string good = good_neighbour(file.path());
  fail(ErrorKind::data, "{}: {}; {}", file.path(),
       integrity == Integrity::mismatch
           ? "the file is damaged: its bytes do not match its checksum"
           : "expected the checksum tensor 'dpt.integrity', found none",
       good.empty() ? "there is no good checkpoint in its folder" : good);
}

}  // namespace

void check_tensor_names(const Plan& plan, const std::vector<std::string>& states) {
  for (const Param& param : plan.params) {
    std::vector<std::string> names = {param.name};
    for (const std::string& state : states) {
      if (is_kept(state, param)) names.push_back(state_tensor_name(state, param));
    }
    for (const std::string& name : names) {
      const std::string defect = name_defect(name);
      if (defect.empty()) continue;
      fail(ErrorKind::usage,
           "layer '{}...': a checkpoint could not hold its tensor '{}...': {}; shorten the name of "
           "the layer",
           param.name.substr(0, 40), name.substr(0, 60), defect);
    }
  }
}

std::string save_checkpoint(const HeldPath& place, const Plan& plan, const Checkpoint& checkpoint) {
  const std::string& path = place.text();
  const auto floats = static_cast<std::size_t>(plan.param_floats);
  assert(checkpoint.params.size() == floats);
  // Check that the checkpoint can be read back, before it replaces one that can.
  CheckpointHeader header;
  header.state = checkpoint.state;
  header.shards = checkpoint.shards;
  header.devices = checkpoint.devices;
  check_state(path, header);
  FileTensors tensors;
  // Add wide elements first, so that each tensor begins at a multiple of its element's size, as
  // PyTorch's reader of safetensors requires.
  for (const bool counters : {true, false}) {
    for (const Param& param : plan.params) {
      if ((param.spec.role == ParamRole::counter) != counters) continue;
      tensors.add(path, param.name, param, checkpoint.params.data());
    }
  }
  for (const auto& [state, flat] : checkpoint.optimizer) {
    assert(flat.size() == floats && state.find('.') == std::string::npos);
    for (const Param& param : plan.params) {
      if (is_kept(state, param)) {
        tensors.add(path, state_tensor_name(state, param), param, flat.data());
      }
    }
  }
  (void)floats;
  // Convert one tensor at a time to the file's layout, to avoid a second copy of all tensors.
  std::vector<float> file;
  std::vector<std::int64_t> integers;
  return write_safetensors(place, to_metadata(checkpoint), tensors.views,
                           [&](std::size_t i) -> const void* {
                             const auto& [param, values] = tensors.sources[i];
                             if (param->spec.role == ParamRole::counter) {
                               integers = counts_of(*param, values);
                               return integers.data();
                             }
                             file.resize(static_cast<std::size_t>(param->count));
                             to_file_layout(*param, values, file.data());
                             return file.data();
                           });
}

VerifiedCheckpoint::VerifiedCheckpoint(SafetensorsFile file, const Plan& plan)
    : plan_(&plan), file_(std::move(file)) {
  PlanReceiver receiver(plan, params_, states_);
  integrity_ = file_.check_integrity(receiver);
}

VerifiedCheckpoint::VerifiedCheckpoint(const HeldPath& path, const Plan& plan)
    : VerifiedCheckpoint(open_checkpoint(path), plan) {
  // A changed bit must not be taken for a changed config.
  check_undamaged(file_, integrity_);
  read_header();
}

void VerifiedCheckpoint::read_header() {
  header_ = from_metadata(path(), file_.metadata());
  header_.checksum = file_.stored_checksum();
}

std::optional<VerifiedCheckpoint> VerifiedCheckpoint::newest_good(
    const std::string& folder, const Plan& plan,
    const std::function<void(const std::string&)>& warn) {
  for (const std::string& path : list_checkpoints(folder)) {
    std::optional<VerifiedCheckpoint> found;
    std::string defect;
    try {
      found = VerifiedCheckpoint(SafetensorsFile::open(path), plan);
      defect = defect_of(path, found->integrity_);
    } catch (const Error& error) {
      defect = error.what();
    }
    if (defect.empty()) {
      found->read_header();
      return found;
    }
    warn(defect + "; it is skipped");
  }
  return std::nullopt;
}

/// Throws unless the tensor `name` fits the parameter. Adds the name to `seen`.
void VerifiedCheckpoint::check_param(const std::string& name, const Param& param,
                                     std::set<std::string>& seen) const {
  const TensorEntry* entry = file_.find(name);
  if (!entry) {
    fail(ErrorKind::data, "{}: expected tensor '{}' of the config's model, found none", path(),
         name);
  }
  if (entry->dtype != dtype_of(param)) {
    fail(ErrorKind::data, "{}: tensor '{}': expected {}, found {}", path(), name, dtype_of(param),
         entry->dtype);
  }
  check_shape(file_, *entry, param);
  seen.insert(name);
}

Checkpoint VerifiedCheckpoint::take() {
  Checkpoint checkpoint;
  checkpoint.state = header_.state;
  checkpoint.config = header_.config;
  checkpoint.classes = header_.classes;
  checkpoint.targets = header_.targets;
  checkpoint.features = header_.features;
  checkpoint.sample_type = header_.sample_type;
  checkpoint.train_samples = header_.train_samples;
  checkpoint.dataset_fingerprint = header_.dataset_fingerprint;
  checkpoint.test_fingerprint = header_.test_fingerprint;
  checkpoint.val_fingerprint = header_.val_fingerprint;
  checkpoint.shards = header_.shards;
  checkpoint.devices = header_.devices;
  checkpoint.made_by = header_.made_by;
  checkpoint.checksum = header_.checksum;

  std::set<std::string> seen{kIntegrityName};
  for (const Param& param : plan_->params) {
    check_param(param.name, param, seen);
    check_loaded(path(), param.name, param, params_.data() + param.offset);
  }
  checkpoint.params = std::move(params_);
  for (const std::string& state : optimizer_states(path(), file_.metadata())) {
    std::vector<float> flat;
    if (const auto found = states_.find(state); found != states_.end()) {
      flat = std::move(found->second);
    }
    flat.resize(checkpoint.params.size());
    for (const Param& param : plan_->params) {
      if (is_kept(state, param)) {
        const std::string name = state_tensor_name(state, param);
        check_param(name, param, seen);
        check_loaded(path(), name, param, flat.data() + param.offset);
      } else if (param.spec.role == ParamRole::counter) {
        const float* own = checkpoint.params.data() + param.offset;
        std::copy_n(own, param.count, flat.data() + param.offset);
      }
    }
    checkpoint.optimizer.emplace_back(state, std::move(flat));
  }
  const SchemaVersion version = read_version(path(), file_.metadata());
  for (const TensorEntry& entry : file_.tensors()) {
    // A newer minor version may have added tensors that can be ignored.
    if (version.minor > kSchemaMinor || seen.count(entry.name) > 0) continue;
    fail(ErrorKind::data, "{}: tensor '{}' is not in the config's model", path(), entry.name);
  }
  return checkpoint;
}

Checkpoint load_checkpoint(const HeldPath& path, const Plan& plan) {
  return VerifiedCheckpoint(path, plan).take();
}

CheckpointHeader read_checkpoint_header(const HeldPath& place) {
  const std::string& path = place.text();
  const SafetensorsFile file = open_checkpoint(place);
  // A changed bit must not be taken for a changed config.
  check_undamaged(file, file.check_integrity());
  CheckpointHeader header = from_metadata(path, file.metadata());
  header.checksum = file.stored_checksum();
  return header;
}

}  // namespace dpt
