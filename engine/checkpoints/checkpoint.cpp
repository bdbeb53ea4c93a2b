// Checkpoints: tensors in files' layouts on one side, flat buffers on the other.
#include "engine/checkpoints/checkpoint.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <set>

#include "engine/checkpoints/file_io.h"
#include "engine/checkpoints/param_tensors.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/checkpoints/safetensors_header.h"
#include "engine/checkpoints/state_checks.h"
#include "kernels/error.h"

namespace dpt {
namespace {

std::string state_tensor_name(const std::string& state, const Param& param) {
  return fmt::format("optim.{}.{}", state, param.name);
}

/// Whether a state has a tensor for a parameter. Counters are not averaged.
bool is_kept(const std::string& state, const Param& param) {
  return param.is_trained() || (is_average(state) && param.spec.role != ParamRole::counter);
}

/// Counters are integers in files, as PyTorch writes num_batches_tracked.
const char* dtype_of(const Param& param) {
  return param.spec.role == ParamRole::counter ? "I64" : "F32";
}

void check_finite(const std::string& path, const std::string& name, const Param& param,
                  const float* values) {
  for (std::int64_t i = 0; i < param.count; ++i) {
    if (std::isfinite(values[i])) continue;
    fail(ErrorKind::diverged,
         "{}: not saved: '{}' has the value {} at element {}; training has diverged; the last good "
         "checkpoint is kept",
         path, name, values[i], i);
  }
}

/// The tensors of a file, with where their values lie in buffer layout.
struct FileTensors {
  std::vector<TensorView> views;
  std::vector<std::pair<const Param*, const float*>> sources;

  void add(const std::string& path, const std::string& name, const Param& param,
           const float* flat) {
    check_finite(path, name, param, flat + param.offset);
    views.push_back({name, dtype_of(param), param.spec.file_shape, nullptr});
    sources.emplace_back(&param, flat + param.offset);
  }
};

/// Reads a tensor of a checkpoint into its place; `seen` collects what the plan asked for.
void take(const SafetensorsFile& file, const std::string& name, const Param& param, float* flat,
          std::set<std::string>& seen) {
  const TensorEntry* entry = file.find(name);
  if (!entry) {
    fail(ErrorKind::data, "{}: expected tensor '{}' of the config's model, found none", file.path(),
         name);
  }
  if (entry->dtype != dtype_of(param)) {
    fail(ErrorKind::data, "{}: tensor '{}': expected {}, found {}", file.path(), name,
         dtype_of(param), entry->dtype);
  }
  check_shape(file, *entry, param);
  read_into(file, *entry, param, flat);
  seen.insert(name);
}

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

void check_undamaged(const SafetensorsFile& file) {
  const Integrity integrity = file.check_integrity();
  if (integrity == Integrity::good) return;
  // A file that is not of dpt, or of a later one, is called that.
  const bool says_version = file.metadata().contains("dpt.version");
  if (integrity == Integrity::absent || says_version) read_version(file.path(), file.metadata());
  const std::string good = newest_good_checkpoint(folder_of(file.path()), [](const auto&) {});
  fail(ErrorKind::data, "{}: {}; {}", file.path(),
       integrity == Integrity::mismatch
           ? "is damaged: its bytes do not match its checksum"
           : "expected a checkpoint with the checksum 'dpt.integrity', found none",
       good.empty() ? "there is no good checkpoint in its folder"
                    : fmt::format("the newest good one in its folder is {}", file_name(good)));
}

}  // namespace

bool is_average(const std::string& state) {
  return state == kEma || state == kSwa;
}

const std::pair<std::string, std::vector<float>>* average_of(const Checkpoint& checkpoint) {
  const auto& states = checkpoint.optimizer;
  const auto found = std::find_if(states.begin(), states.end(),
                                  [](const auto& state) { return is_average(state.first); });
  if (found != states.end() && found->first == kSwa && checkpoint.state.averaged == 0) {
    return nullptr;
  }
  return found == states.end() ? nullptr : &*found;
}

std::string save_checkpoint(const std::string& path, const Plan& plan,
                            const Checkpoint& checkpoint) {
  const auto floats = static_cast<std::size_t>(plan.param_floats);
  assert(checkpoint.params.size() == floats);
  // What could not be read again must not take the place of what can.
  CheckpointHeader header;
  header.state = checkpoint.state;
  header.shards = checkpoint.shards;
  header.devices = checkpoint.devices;
  check_state(path, header);
  FileTensors tensors;
  // Wide elements first, so that each tensor begins at a multiple of its element's size, as
  // PyTorch's reader of safetensors asks for.
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
  // One tensor at a time goes to the file's layout, so that no second copy of all is made.
  std::vector<float> file;
  std::vector<std::int64_t> integers;
  return write_safetensors(path, to_metadata(checkpoint), tensors.views,
                           [&](std::size_t i) -> const void* {
                             const auto& [param, values] = tensors.sources[i];
                             if (param->spec.role == ParamRole::counter) {
                               integers.assign(values, values + param->count);
                               return integers.data();
                             }
                             file.resize(static_cast<std::size_t>(param->count));
                             to_file_layout(*param, values, file.data());
                             return file.data();
                           });
}

Checkpoint load_checkpoint(const std::string& path, const Plan& plan) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  check_undamaged(file);
  const SchemaVersion version = read_version(path, file.metadata());
  CheckpointHeader header = from_metadata(path, file.metadata());

  Checkpoint checkpoint;
  checkpoint.state = header.state;
  checkpoint.config = std::move(header.config);
  checkpoint.classes = std::move(header.classes);
  checkpoint.targets = header.targets;
  checkpoint.features = std::move(header.features);
  checkpoint.sample_type = header.sample_type;
  checkpoint.train_samples = header.train_samples;
  checkpoint.dataset_fingerprint = std::move(header.dataset_fingerprint);
  checkpoint.test_fingerprint = std::move(header.test_fingerprint);
  checkpoint.val_fingerprint = std::move(header.val_fingerprint);
  checkpoint.shards = header.shards;
  checkpoint.devices = std::move(header.devices);
  checkpoint.made_by = std::move(header.made_by);
  checkpoint.checksum = file.stored_checksum();

  const auto floats = static_cast<std::size_t>(plan.param_floats);
  std::set<std::string> seen{kIntegrityName};
  checkpoint.params.assign(floats, 0.0F);
  for (const Param& param : plan.params) {
    take(file, param.name, param, checkpoint.params.data(), seen);
  }
  for (const std::string& state : optimizer_states(path, file.metadata())) {
    auto& [name, flat] = checkpoint.optimizer.emplace_back(state, std::vector<float>(floats));
    for (const Param& param : plan.params) {
      if (is_kept(name, param)) {
        take(file, state_tensor_name(name, param), param, flat.data(), seen);
      } else if (param.spec.role == ParamRole::counter) {
        const float* own = checkpoint.params.data() + param.offset;
        std::copy_n(own, param.count, flat.data() + param.offset);
      }
    }
  }
  for (const TensorEntry& entry : file.tensors()) {
    // A newer minor version may have added something that can be left out.
    if (version.minor > kSchemaMinor || seen.count(entry.name) > 0) continue;
    fail(ErrorKind::data, "{}: tensor '{}' is not in the config's model", path, entry.name);
  }
  return checkpoint;
}

CheckpointHeader read_checkpoint_header(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  check_undamaged(file);  // before a changed bit in it passes for another config
  CheckpointHeader header = from_metadata(path, file.metadata());
  header.checksum = file.stored_checksum();
  return header;
}

}  // namespace dpt
