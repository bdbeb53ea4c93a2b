// dpt export RUN|CKPT: writes the weights and the network in formats of other programs.
#include "app/export/command_export.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/evaluate/checkpoint_choice.h"
#include "app/evaluate/model_changes.h"
#include "app/export/export_facts.h"
#include "datasets/dataset.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/config/read_spec.h"
#include "engine/export/onnx.h"
#include "engine/export/torch_state.h"
#include "engine/graph/make_plan.h"
#include "engine/job/job.h"
#include "engine/run/run_folder.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

constexpr CheckpointUse kToExport{"export", "export", "exported"};

/// Throws if `path` is a folder, the checkpoint or another file of a run, or if it exists and
/// `overwrite` is false.
void check_target(const std::string& path, const std::string& checkpoint, bool overwrite) {
  std::error_code error;  // ignored: writing to a path that cannot be examined reports the reason
  const bool exists = fs::exists(path, error);
  if (exists && fs::equivalent(path, checkpoint, error)) {
    fail(ErrorKind::usage,
         "{}: expected a file to write, found the checkpoint itself: name another file", path);
  }
  if (is_file_of_run(path)) {
    fail(ErrorKind::usage, "{}: a run uses this name for its own files: choose another", path);
  }
  if (!exists) return;
  if (fs::is_directory(path, error)) {
    fail(ErrorKind::usage, "{}: expected a file to write or to replace, found a folder", path);
  }
  if (!overwrite) {
    fail(ErrorKind::usage, "{}: already exists: name another file, or replace it with --overwrite",
         path);
  }
}

/// Returns the path that a rename replaces: the file itself, or the target of a link. Throws for a
/// device, pipe or socket, which must not be replaced. REQUIRES: check_target has refused folders.
std::string file_to_replace(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return path;
  if (!fs::is_regular_file(path, error)) {
    fail(ErrorKind::usage, "{}: expected a file to replace, found a device, pipe or socket", path);
  }
  return fs::canonical(path, error).string();
}

/// Returns the type of raw samples. It is bytes, except for arrays and tables, whose type is in the
/// checkpoint or, for checkpoints from before 1.7, in the data files.
DType raw_type_of(const TrainSpec& spec, const Plan& plan, const CheckpointHeader& header) {
  if (!dataset_kind(spec.data.dataset).any_type) return DType::u8;
  if (header.sample_type) return *header.sample_type;
  return open_dataset(spec.data.dataset, data_requirements(spec, plan)).train->type();
}

/// Returns the options of the ONNX model. Throws for samples that are not images.
OnnxOptions onnx_options_of(const ExportOptions& options, const ExportFacts& facts,
                            DType raw_type) {
  OnnxOptions onnx;
  onnx.include_normalisation = options.include_normalisation;
  onnx.raw_type = raw_type;
  onnx.include_softmax = options.softmax;
  if (options.preprocessing.empty()) return onnx;
  const std::int64_t channels = facts.input[0];
  if (raw_type != DType::u8 || (channels != 1 && channels != 3)) {
    fail(ErrorKind::usage,
         "--include-preprocessing: expected a model for 8-bit images with 1 or 3 channels, found "
         "one for {} samples with {} channel{}: leave this option out",
         name_of(raw_type), channels, channels == 1 ? "" : "s");
  }
  onnx.preprocessing = options.preprocessing == "nchw" ? ImageLayout::nchw : ImageLayout::nhwc;
  return onnx;
}

/// Reports what was written, for people or for programs.
void report_files(const ExportOptions& options, const std::string& checkpoint, const Plan& plan,
                  const ExportFacts& facts, const WeightsChoice& chosen, const OnnxOptions& onnx,
                  const std::vector<std::string>& changes) {
  if (options.json) {
    nlohmann::ordered_json out = {{"checkpoint", checkpoint},
                                  {"step", facts.step},
                                  {"weights", facts.weights},
                                  {"params", plan.param_count}};
    if (!changes.empty()) out["other_model"] = changes;
    if (!options.torch.empty()) out["torch"] = options.torch;
    if (!options.onnx.empty()) out["onnx"] = options.onnx;
    fmt::print("{}\n", json_text(out));
    return;
  }
  fmt::print("{}{}: step {}, {}\n", checkpoint, chosen.words(), facts.step,
             counted(plan.param_count, "parameter"));
  if (!options.torch.empty()) {
    fmt::print("{}: {}, a state_dict of PyTorch in a safetensors file\n", options.torch,
               counted(plan.params.size(), "tensor"));
  }
  if (!options.onnx.empty()) {
    const std::string input =
        onnx.preprocessing ? fmt::format("images of any size as input, {}", options.preprocessing)
                           : fmt::format("{}input of N x {}",
                                         onnx.include_normalisation ? "raw "
                                         : facts.mean.empty()       ? ""
                                                                    : "normalised ",
                                         fmt::join(facts.input, " x "));
    fmt::print("{}: ONNX, opset {}, {}{}\n", options.onnx, kOnnxOpset, input,
               onnx.include_softmax ? ", probabilities as output" : "");
  }
}

}  // namespace

int run_export(const ExportOptions& options) {
  std::vector<std::string> targets;
  for (const std::string& target : {options.torch, options.onnx}) {
    if (target == "-") {
      fail(ErrorKind::usage,
           "-: expected a file to write, found '-': the model is not written to stdout; write ./- "
           "for a file of that name");
    }
    if (!target.empty()) targets.push_back(target);
  }
  if (targets.empty()) {
    fail(ErrorKind::usage,
         "expected a file to write: --onnx FILE or --torch FILE. See dpt export --help");
  }
  for (const char* pickle : {".pth", ".pt", ".bin"}) {
    if (!options.torch.ends_with(pickle)) continue;
    fail(ErrorKind::usage,
         "--torch {}: expected a name that ends in .safetensors (dpt writes safetensors, which "
         "safetensors.torch.load_file reads and torch.load does not), found {}",
         options.torch, pickle);
  }
  if (options.torch == options.onnx) {
    fail(ErrorKind::usage, "--torch and --onnx: expected two files, found {} twice", options.onnx);
  }
  const std::string path = find_checkpoint(options.target, kToExport);
  for (const std::string& target : targets) check_target(target, path, options.overwrite);
  const std::string torch = options.torch.empty() ? "" : file_to_replace(options.torch);
  const CheckpointHeader header = read_checkpoint_header(path);
  const std::vector<std::string> overrides = without_known_numbers(header, path, options.overrides);
  const TrainSpec spec = load_stored_spec(catalog(), header.config, path, overrides);
  const std::vector<std::string> changes = changes_of_model(header, path, overrides);
  check_model_changes(path, changes, "export", options.allow_other_model,
                      ", or export the weights in this model with --allow-other-model");
  const Plan plan = make_plan(spec);
  const Checkpoint checkpoint = load_checkpoint(path, plan);
  const WeightsChoice chosen = choose_weights(checkpoint, options.use, spec, path);
  // Open the data files only if the model depends on them: they may be on another machine.
  std::optional<DType> raw_type;
  if (options.include_normalisation || !options.preprocessing.empty() ||
      !dataset_kind(spec.data.dataset).any_type) {
    raw_type = raw_type_of(spec, plan, header);
  }
  ExportFacts facts = export_facts_of(spec, header, chosen.name, raw_type);
  facts.other_model = text_of_changes(changes);
  if (!changes.empty()) say(fmt::format("warning: {}: {}", path, facts.other_model));

  // Make all checks before writing anything.
  const OnnxOptions onnx = onnx_options_of(options, facts, raw_type.value_or(DType::f32));
  std::string model;
  if (!options.onnx.empty()) model = onnx_model(spec, plan, *chosen.params, facts, onnx);
  if (!options.torch.empty()) write_torch_state(torch, plan, *chosen.params, facts);
  if (!options.onnx.empty()) write_results(options.onnx, std::as_bytes(std::span(model)));

  report_files(options, path, plan, facts, chosen, onnx, changes);
  return 0;
}

}  // namespace dpt
