// Everything that dpt defines with CLI11: options, help texts and exit codes. One file, because
// CLI11's headers are by far the slowest to compile.
#include "app/cli.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <system_error>

#include "app/command_support.h"
#include "app/command_tree.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/launch_processes.h"
#include "engine/spec/fields.h"
#include "kernels/error.h"

namespace dpt {
namespace {

/// A command's work; its result is the exit code.
using CommandBody = std::function<int()>;

constexpr const char* kConfigHelp = "Config file (YAML)";
constexpr const char* kOverridesHelp =
    "key=value: replaces a value of the config, e.g. optimizer.lr=0.1 or "
    "model.layers.conv1.out_channels=32";
constexpr const char* kDevicesHelp = "Devices to use instead of the config's, e.g. cpu,cpu or auto";
constexpr const char* kJsonHelp = "One JSON object on stdout";

/// A number of steps or rounds.
CLI::Range count() {
  return {std::int64_t{1}, std::int64_t{1'000'000'000}};
}

/// A value that is empty is that of a shell variable which is not set: not the same as no option.
CLI::Validator not_empty() {
  return {[](std::string& text) -> std::string {
            return text.empty() ? "expected a value, found an empty text" : "";
          },
          "", "not empty"};
}

/// Makes `command` run `run` with its options.
template <class Options>
void set_body(CLI::App* command, CommandBody& body, std::shared_ptr<Options> options,
              int (*run)(const Options&)) {
  command->callback([&body, options, run] { body = [options, run] { return run(*options); }; });
}

/// The same for a command that several processes may run together: with `--nproc`, starts these.
template <class Options>
void set_body_of_processes(CLI::App* command, CommandBody& body, std::shared_ptr<Options> options,
                           int (*run)(const Options&)) {
  command->callback([&body, options, run] {
    body = [options, run] {
      return must_launch(options->processes)
                 ? launch_processes(options->processes.nproc, options->command)
                 : run(*options);
    };
  });
}

void add_process_options(CLI::App* command, ProcessOptions& options) {
  CLI::Option* nproc =
      command
          ->add_option("--nproc", options.nproc,
                       "Start this many processes of the command on this machine, which share "
                       "the work; ends with the first exit code that is not 0")
          ->check(CLI::Range(1, 256));
  CLI::Option* rank =
      command
          ->add_option("--rank", options.flags.rank,
                       "Which of the --world-size processes this is, from 0, where no launcher "
                       "(torchrun, mpirun, srun) says so")
          ->check(CLI::NonNegativeNumber);
  CLI::Option* size = command
                          ->add_option("--world-size", options.flags.size,
                                       "How many processes share the work, on all machines")
                          ->check(CLI::PositiveNumber);
  CLI::Option* coordinator =
      command
          ->add_option("--coordinator", options.flags.coordinator,
                       "HOST:PORT where rank 0 listens for the others: its machine, and a free "
                       "port on it; the same for all processes")
          ->check(not_empty());
  for (CLI::Option* other : {rank, size, coordinator}) nproc->excludes(other);
  command
      ->add_option("--join-timeout", options.join_timeout,
                   "How long the processes wait for each other at the start, e.g. 90s (default: "
                   "5m); exit code 6")
      ->check(not_empty());
}

/// Returns --require, without which there is none of the others.
CLI::Option* add_gate_options(CLI::App* command, GateOptions& options) {
  CLI::Option* require =
      command
          ->add_option(
              "--require", options.requirements,
              "Exit with code 7 unless this condition holds at the end, e.g. 'val/accuracy>=0.90' "
              "or, with --baseline, 'test/accuracy>=baseline-0.005' (also baseline, baseline+N, "
              "baseline*F); may be given several times")
          ->allow_extra_args(false);
  command
      ->add_option("--baseline", options.baseline,
                   "The run that --require compares with: its folder, its summary.json, or a file "
                   "with the output of dpt eval --json")
      ->check(not_empty())
      ->needs(require);
  command
      ->add_option("--verdict", options.verdict,
                   "Write what became of each --require to this file, as a table in Markdown")
      ->check(not_empty())
      ->needs(require);
  command
      ->add_option("--junit", options.junit,
                   "Write it to this file as JUnit XML, with one test case for each --require")
      ->check(not_empty())
      ->needs(require);
  return require;
}

void add_train_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<TrainOptions>();
  options->command = std::move(command);
  CLI::App* train = app.add_subcommand(
      "train", "Train the model of a config; run the same command again to resume");
  train->add_option("config", options->config, kConfigHelp)->required();
  train->add_option("overrides", options->overrides, kOverridesHelp);
  train->add_option("--run-dir", options->run_dir, "Run folder (default: runs/NAME)")
      ->check(not_empty());
  CLI::Option* run_dir = train->get_option("--run-dir");
  CLI::Option* resume =
      train
          ->add_option(
              "--resume", options->resume,
              "auto (default): resume if the run folder holds a run; never: start a new run "
              "in a new folder; must: fail if there is nothing to resume; or a checkpoint "
              "file to resume from (later checkpoints are moved to checkpoints/abandoned-N)")
          ->check(not_empty());
  train
      ->add_option("--weights", options->weights,
                   "Start from the weights of a safetensors file (torchvision names and layouts), "
                   "in place of the config's weights.file")
      ->check(not_empty());
  train
      ->add_option("--expect-missing", options->expect_missing,
                   "Parameters that may be missing from the --weights file, e.g. fc2.*")
      ->delimiter(',');
  train
      ->add_option("--expect-left-over", options->expect_left_over,
                   "Tensors that the --weights file may have in addition to those of the model")
      ->delimiter(',');
  train->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  CLI::Option* dry_run = train->add_flag(
      "--dry-run", options->dry_run,
      "Check everything (for an image folder, decode images of each class; the weights or "
      "the checkpoint to start from), print the plan, and exit without training");
  train
      ->add_option("--max-steps", options->max_steps,
                   "Stop when the run has completed this many steps in total; exit code 0")
      ->check(count());
  CLI::Option* max_time =
      train
          ->add_option("--max-time", options->max_time,
                       "Stop after this time, e.g. 3h50m, and save a checkpoint; exit code 75")
          ->check(not_empty());
  CLI::Option* require = add_gate_options(train, options->gate);
  CLI::Option* overwrite =
      train->add_flag("--overwrite", options->overwrite,
                      "Replace the run in the folder; the old run is removed once the new one has "
                      "saved a checkpoint");
  CLI::Option* overfit =
      train
          ->add_option(
              "--overfit", options->overfit,
              "Only try whether the model can learn: train on this many batches, the same "
              "again and again, without augmentation, until their loss is near zero; exit "
              "code 7 if it is not after --max-steps steps (default 1000). Nothing is saved")
          ->check(count());
  for (CLI::Option* other : {run_dir, resume, dry_run, max_time, require, overwrite}) {
    overfit->excludes(other);
  }
  // These two options take words until the next option, so also the overrides after them. No
  // parameter has a '=' in its name.
  train->parse_complete_callback([options] {
    for (std::vector<std::string>* names : {&options->expect_missing, &options->expect_left_over}) {
      const auto overrides = std::stable_partition(
          names->begin(), names->end(),
          [](const std::string& word) { return word.find('=') == std::string::npos; });
      options->overrides.insert(options->overrides.end(), overrides, names->end());
      names->erase(overrides, names->end());
    }
  });
  add_process_options(train, options->processes);
  train->add_flag("--rank-logs", options->processes.rank_logs,
                  "Ranks other than 0 write logs/rank-N.log in the run folder");
  CLI::Option* smoke = train->add_flag(
      "--smoke", options->smoke,
      "Only try whether everything fits together, in seconds and without the data: a few steps on "
      "made-up samples of the config's shapes, evaluation, saving, resuming (compared bit by bit), "
      "export. Uses a temporary folder, which is kept if it fails");
  for (CLI::Option* other : train->get_options()) {
    const std::string name = other->get_name();
    if (name != "--smoke" && name != "--devices" && name != "--help" && other->nonpositional()) {
      smoke->excludes(other);
    }
  }
  set_body_of_processes(train, body, options, run_train);
}

void add_eval_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<EvalOptions>();
  options->command = std::move(command);
  CLI::App* eval =
      app.add_subcommand("eval", "Evaluate a run's best checkpoint, or a checkpoint file");
  eval->add_option("target", options->target, "Run folder or checkpoint file")->required();
  eval->add_option("overrides", options->overrides,
                   "key=value: replaces a value of the stored config, e.g. data.root=/elsewhere");
  eval->add_option("--split", options->split, "train, val or test (default: test if there is one)")
      ->check(CLI::IsMember({"train", "val", "test"}));
  eval->add_option("--predictions", options->predictions,
                   "Write a CSV file with one line per sample, in the order of the data set")
      ->check(not_empty());
  eval->add_flag("--probabilities", options->probabilities,
                 "The --predictions file has the outputs for all classes, not only that of the "
                 "predicted one")
      ->needs(eval->get_option("--predictions"));
  eval->add_option(
          "--use", options->use,
          "ema or swa: the average of the weights (train.ema, train.swa), the default where "
          "the run kept one; raw: the weights themselves")
      ->check(CLI::IsMember({"ema", "swa", "raw"}));
  eval->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  add_gate_options(eval, options->gate);
  eval->add_flag(
      "--allow-other-data", options->allow_other_data,
      "Evaluate even if the data differs from the run's (by the fingerprints of its "
      "training and test samples) or is split differently; without this option: exit code 3");
  eval->add_flag("--json", options->json, kJsonHelp);
  add_process_options(eval, options->processes);
  set_body_of_processes(eval, body, options, run_eval);
}

void add_predict_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<PredictOptions>();
  options->command = std::move(command);
  CLI::App* predict = app.add_subcommand(
      "predict",
      "Predict pictures that need no labels, with a run's best checkpoint or a checkpoint file; "
      "the training data need not be there. One line a picture, in the order given; exit code 3 "
      "if a picture could not be read");
  predict->add_option("target", options->target, "Run folder or checkpoint file")->required();
  predict
      ->add_option("pictures", options->pictures,
                   "JPEG or PNG files; of a folder all that are below it, sorted by path")
      ->required()
      ->check(not_empty());
  predict
      ->add_option("--top", options->top, "The K most probable classes instead of the first alone")
      ->check(count());
  predict->add_option("--format", options->format, "csv (default), or jsonl: a JSON object a line")
      ->check(CLI::IsMember({"csv", "jsonl"}));
  predict->add_option("--out", options->out, "Write to this file instead of stdout")
      ->check(not_empty());
  predict
      ->add_option("--use", options->use,
                   "ema or swa: the average of the weights (train.ema, train.swa), the default "
                   "where the run kept one; raw: the weights themselves")
      ->check(CLI::IsMember({"ema", "swa", "raw"}));
  predict->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  add_process_options(predict, options->processes);
  set_body_of_processes(predict, body, options, run_predict);
}

void add_export_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a run's best checkpoint, or a checkpoint file, for other programs");
  command->add_option("target", options->target, "Run folder or checkpoint file")->required();
  command->add_option(
      "overrides", options->overrides,
      "key=value: replaces a value of the stored config, e.g. data.root=/elsewhere");
  command
      ->add_option(
          "--torch", options->torch,
          "Write a safetensors file with a state_dict of PyTorch: names, layouts and types "
          "as torchvision has them, for load_state_dict(strict=True)")
      ->check(not_empty());
  CLI::Option* onnx =
      command
          ->add_option("--onnx", options->onnx,
                       "Write an ONNX model: network and weights, for batches of any size")
          ->check(not_empty());
  command
      ->add_flag("--include-normalisation", options->include_normalisation,
                 "The ONNX model takes raw samples (bytes 0 to 255) and begins with the division "
                 "by 255 and the Normalize of data.transforms.eval; without it, its input is "
                 "what they give")
      ->needs(onnx);
  command
      ->add_option(
          "--use", options->use,
          "ema or swa: the average of the weights (train.ema, train.swa), the default where "
          "the run kept one; raw: the weights themselves")
      ->check(CLI::IsMember({"ema", "swa", "raw"}));
  command->add_flag("--overwrite", options->overwrite, "Replace a file that exists");
  command->add_flag("--json", options->json, kJsonHelp);
  set_body(command, body, options, run_export);
}

void add_runs_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<RunsOptions>();
  CLI::App* runs = app.add_subcommand(
      "runs", "List the runs in a folder: status, steps, best value, when they last logged");
  runs->add_option("folder", options->folder, "Folder of run folders")->capture_default_str();
  runs->add_flag("--json", options->json, kJsonHelp);
  set_body(runs, body, options, run_runs);
}

void add_compare_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* compare = app.add_subcommand(
      "compare",
      "Compare runs: where their configs differ, their results, and mean and standard deviation "
      "over runs that differ in the seed or fold only");
  compare->add_option("runs", options->runs, "Run folders, at least two")
      ->required()
      ->expected(2, -1);
  compare->add_flag("--json", options->json, kJsonHelp);
  set_body(compare, body, options, run_compare);
}

void add_report_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* report = app.add_subcommand(
      "report",
      "Write one HTML file about runs, which needs no other file and no network: curves, confusion "
      "matrix, worst mistakes, differences of the configs, where the time went. The best "
      "checkpoint of each run is evaluated for it, on its test split (else val)");
  report
      ->add_option("runs", options->words,
                   "Run folders; and key=value, which replaces a value of their configs for the "
                   "evaluation, e.g. data.root=/elsewhere")
      ->required()
      ->check(not_empty());
  report
      ->add_option("-o,--out", options->out,
                   "The file (default: report.html in the run's folder, of several runs in the "
                   "current one). A report is replaced, any other file is not")
      ->option_text("FILE")
      ->check(not_empty());
  report
      ->add_option("--mistakes", options->mistakes,
                   "The most certain mistakes and the largest losses, so many of each (default: "
                   "12); 0: evaluate nothing, read the logs only")
      ->option_text("N")
      ->check(CLI::Range(0, 1000));
  report->add_option("--devices", options->devices, kDevicesHelp)
      ->option_text("DEVICES")
      ->check(not_empty());
  set_body(report, body, options, run_report);
}

void add_bench_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<BenchOptions>();
  options->command = std::move(command);
  CLI::App* bench = app.add_subcommand("bench", "Time the training loop of a config");
  bench->add_option("config", options->config, kConfigHelp)->required();
  bench->add_option("overrides", options->overrides, kOverridesHelp);
  bench->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  CLI::Option* weights =
      bench->add_option("--weights", options->weights, "Start from these weights (safetensors)")
          ->check(not_empty());
  CLI::Option* steps =
      bench->add_option("--steps", options->steps, "Steps per round")->check(count());
  bench->add_option("--rounds", options->rounds, "Number of rounds")->check(count());
  CLI::Option* calls = bench->add_flag(
      "--calls", options->calls,
      "Time each call of a step (input, layers, loss, update) separately, on the first device");
  CLI::Option* losses =
      bench->add_flag("--losses", options->losses, "Print the loss of every step");
  bench->add_flag("--json", options->json, kJsonHelp);
  CLI::Option* serve = bench->add_flag(
      "--serve", options->serve,
      "Read 'run N' lines from stdin and answer each with the duration of N steps in seconds");
  add_process_options(bench, options->processes);
  CLI::Option* nproc = bench->get_option("--nproc");
  CLI::Option* data = bench->add_flag(
      "--data", options->data,
      "Time the reading, decoding and transforming of samples on the host instead, by stage");
  std::vector<CLI::Option*> of_processes = {nproc};
  for (const char* name : {"--rank", "--world-size", "--coordinator"}) {
    of_processes.push_back(bench->get_option(name));
  }
  for (CLI::Option* other : of_processes) {
    calls->excludes(other);
    data->excludes(other);
  }
  for (CLI::Option* other : {weights, steps, losses, serve}) calls->excludes(other);
  for (CLI::Option* other : {weights, calls, losses, serve}) data->excludes(other);
  set_body_of_processes(bench, body, options, run_bench);
}

void add_config_lr_command(CLI::App& config, CommandBody& body) {
  auto options = std::make_shared<LrOptions>();
  CLI::App* lr = config.add_subcommand(
      "lr", "Print or draw the learning rate over the run of a config, without training");
  lr->add_option("config", options->config, kConfigHelp)->required();
  lr->add_option("overrides", options->overrides, kOverridesHelp);
  lr->add_option("--samples", options->samples,
                 "Number of samples in the training files, data.val_split included; the data is "
                 "then not read")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}));
  CLI::Option* rows =
      lr->add_option("--rows", options->rows,
                     "Rows of the table: if the rate changes more often, evenly spread steps")
          ->check(CLI::Range(std::int64_t{2}, std::int64_t{10'000'000}));
  CLI::Option* plot = lr->add_flag("--plot", options->plot,
                                   "Draw a chart of plain characters instead of the table");
  lr->add_option("--png", options->png, "Also write a chart to this PNG file")->check(not_empty());
  CLI::Option* json = lr->add_flag("--json", options->json, kJsonHelp);
  plot->excludes(json)->excludes(rows);
  set_body(lr, body, options, run_config_lr);
}

void add_config_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ConfigOptions>();
  CLI::App* config = app.add_subcommand("config", "Check, show and describe configs");
  config->require_subcommand(1);
  const auto with_file = [&](const char* name, const char* doc, int (*run)(const ConfigOptions&)) {
    CLI::App* command = config->add_subcommand(name, doc);
    command->add_option("config", options->config, kConfigHelp)->required();
    command->add_option("overrides", options->overrides, kOverridesHelp);
    set_body(command, body, options, run);
    return command;
  };
  const auto without_file = [&](const char* name, const char* doc, int (*run)()) {
    config->add_subcommand(name, doc)->callback([&body, run] { body = run; });
  };
  with_file("check",
            "Read a config strictly and report every error in it, shapes included; for an image "
            "folder, also list the files and decode images of each class",
            run_config_check);
  CLI::App* show = with_file("show", "Print the resolved config, which is a valid config itself",
                             run_config_show);
  show->add_flag("--origins", options->origins, "Show where each value came from");
  show->add_flag("--expand", options->expand, "Print the layers that blocks and the zoo stand for");
  add_config_lr_command(*config, body);
  without_file("schema", "Print the JSON Schema (2020-12) of config files", run_config_schema);
  without_file("reference", "Print the reference of all config fields (Markdown)",
               run_config_reference);
  without_file("init", "Print a commented config to start from", run_config_init);
}

void add_data_check_command(CLI::App& data, CommandBody& body) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* check = data.add_subcommand(
      "check",
      "Read every sample once and report what is wrong with them. Errors (exit code 3): samples "
      "that cannot be read, NaN or infinite values, equal samples with different labels or in "
      "several splits, classes that only val or test has. Warnings: duplicates, near duplicates, "
      "constant pictures, rare and missing classes");
  check->add_option("config", options->config, kConfigHelp)->required();
  check->add_option("overrides", options->overrides, kOverridesHelp);
  check
      ->add_option(
          "--allow", options->allowed,
          "Findings of this kind are warnings, e.g. duplicate_across_splits of a published "
          "data set; several: --allow A,B")
      ->delimiter(',')
      ->allow_extra_args(false);
  check->add_option("--workers", options->workers, "Threads that read (default: one for each core)")
      ->check(CLI::Range(1, 1024));
  check->add_flag("--json", options->json, kJsonHelp);
  set_body(check, body, options, run_data_check);
}

void add_data_show_command(CLI::App& data, CommandBody& body) {
  auto options = std::make_shared<DataShowOptions>();
  CLI::App* show = data.add_subcommand(
      "show",
      "Write a PNG file of samples under the transforms of training (or evaluation), before they "
      "are normalised, and print which samples they are");
  show->add_option("config", options->config, kConfigHelp)->required();
  show->add_option("overrides", options->overrides, kOverridesHelp);
  show->add_option("--out", options->out, "The PNG file")->required()->check(not_empty());
  show->add_option(
          "--split", options->split,
          "train (default): the first samples of the epoch; val or test: evenly spread ones")
      ->check(CLI::IsMember({"train", "val", "test"}));
  const CLI::Range small(std::int64_t{1}, std::int64_t{10'000});
  show->add_option("--samples", options->samples,
                   "Number of samples (default: 32, 8 of --versions)")
      ->check(small);
  show->add_option("--epoch", options->epoch, "The epoch whose random draws are shown (default: 1)")
      ->check(count());
  show->add_option("--versions", options->versions,
                   "Show each sample in this many epochs side by side (default: 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{64}));
  show->add_option("--columns", options->columns, "Pictures in a row (default: 8)")->check(small);
  show->add_flag("--overwrite", options->overwrite, "Replace the file if it exists");
  set_body(show, body, options, run_data_show);
}

void add_data_command(CLI::App& app, CommandBody& body) {
  CLI::App* data = app.add_subcommand("data", "Check, describe and show the samples of a config");
  data->require_subcommand(1);
  add_data_check_command(*data, body);
  auto options = std::make_shared<DataOptions>();
  CLI::App* stats = data->add_subcommand(
      "stats",
      "Print mean and standard deviation of each channel of the training samples, as a Normalize "
      "transform");
  stats->add_option("config", options->config, kConfigHelp)->required();
  stats->add_option("overrides", options->overrides, kOverridesHelp);
  stats->add_option("--workers", options->workers, "Threads that read (default: one for each core)")
      ->check(CLI::Range(1, 1024));
  stats->add_flag("--json", options->json, kJsonHelp);
  set_body(stats, body, options, run_data_stats);
  add_data_show_command(*data, body);
}

void add_model_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ModelOptions>();
  CLI::App* model = app.add_subcommand("model", "Describe a model without training it");
  model->require_subcommand(1);
  CLI::App* summary = model->add_subcommand(
      "summary", "Layers, output shapes, parameters, FLOPs, activation bytes, memory per replica");
  summary->add_option("config", options->config, kConfigHelp)->required();
  summary->add_option("overrides", options->overrides, kOverridesHelp);
  summary->add_flag("--json", options->json, kJsonHelp);
  set_body(summary, body, options, run_model_summary);
  auto check = std::make_shared<GradcheckOptions>();
  CLI::App* gradcheck = model->add_subcommand(
      "gradcheck", "Check the gradient of every parameter against differences of the loss");
  gradcheck->add_option("config", check->config, kConfigHelp)->required();
  gradcheck->add_option("overrides", check->overrides, kOverridesHelp);
  gradcheck
      ->add_option("--samples", check->samples,
                   "Training samples whose loss is taken; default: 8, or all where there are fewer")
      ->check(CLI::Range(1, 1024));
  gradcheck
      ->add_option("--device", check->device, "The device whose kernels are checked: cpu, cuda:0")
      ->capture_default_str();
  gradcheck->add_flag("--random", check->random, "Random images in place of the data");
  gradcheck->add_flag("--json", check->json, kJsonHelp);
  set_body(gradcheck, body, check, run_model_gradcheck);
}

void add_devices_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* devices = app.add_subcommand("devices", "List the devices that this process can use");
  devices->add_flag("--json", options->json, kJsonHelp);
  set_body(devices, body, options, run_devices);
}

void add_inspect_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show the contents of a safetensors file and verify its checksum");
  inspect->add_option("file", options->file, "A checkpoint or any safetensors file")->required();
  inspect->add_flag("--json", options->json, kJsonHelp);
  set_body(inspect, body, options, run_inspect);
}

/// What describes the commands themselves; `app` must outlive the body.
void add_completion_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<CompletionOptions>();
  CLI::App* completion = app.add_subcommand(
      "completion", "Print a script with which a shell completes the commands and options of dpt");
  completion->add_option("shell", options->shell, "The shell that runs the script")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&app, &body, options] {
    body = [&app, options] { return run_completion(*options, command_tree(app)); };
  });
}

/// For the build, not for users.
void add_man_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ManOptions>();
  CLI::App* man = app.add_subcommand("man", "Write the manual pages of all commands into a folder");
  man->group("");
  man->add_option("folder", options->folder, "The folder, which is made if it is not there")
      ->required()
      ->check(not_empty());
  man->add_option("--prose", options->prose, "Folder of what the pages say beside the options")
      ->required()
      ->check(not_empty());
  man->callback([&app, &body, options] {
    body = [&app, options] { return run_man(*options, command_tree(app)); };
  });
}

/// Runs `work`, whose result is the exit code; an exception becomes a message and its exit code.
int run_guarded(const std::function<int()>& work) {
  try {
    return work();
  } catch (const Error& error) {
    say(fmt::format("error: {}", error.what()));
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    say("error: out of memory: try a smaller data.batch_size or fewer devices");
    return static_cast<int>(ErrorKind::device);
  } catch (const std::exception& error) {
    // What fmt throws when a print fails: flush_results says it better.
    if (dynamic_cast<const std::system_error*>(&error) && results_are_lost()) return 0;
    say(fmt::format("unexpected failure: {}", error.what()));
    return static_cast<int>(ErrorKind::unexpected);
  }
}

/// Throws if a word in the place of a command is not a command.
void check_command(const CLI::App& app, int argc, const char* const* argv, int at) {
  const std::vector<const CLI::App*> commands = app.get_subcommands({});
  if (commands.empty() || at >= argc || argv[at][0] == '-') return;
  std::vector<std::string> names;
  for (const CLI::App* command : commands) {
    if (command->get_name() == argv[at]) return check_command(*command, argc, argv, at + 1);
    if (command->get_group().empty()) continue;
    names.push_back(command->get_name());
  }
  const std::string near = closest(argv[at], names);
  const std::string owner = at > 1 ? fmt::format(" of dpt {}", app.get_name()) : "";
  fail(ErrorKind::usage, "unknown command '{}'{}{} Commands{}: {}. See dpt --help", argv[at], owner,
       near.empty() ? "." : fmt::format(", did you mean '{}'?", near), owner,
       fmt::join(names, ", "));
}

/// Throws the usage error: a word that the chosen command has no use for comes first, since what
/// CLI11 says (`why`) may follow from it.
[[noreturn]] void fail_usage(const CLI::App& app, const std::string& why) {
  const CLI::App* command = &app;
  std::string called = app.get_name();
  while (command->remaining().empty() && !command->get_subcommands().empty()) {
    command = command->get_subcommands()[0];
    called += " " + command->get_name();
  }
  const std::vector<std::string> extras = command->remaining();
  if (extras.empty()) fail(ErrorKind::usage, "{}. See {} --help", why, called);
  const std::string& word = extras[0];
  std::vector<std::string> names;
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string near =
      word[0] == '-' ? closest(word.substr(0, word.find('=')), names) : std::string();
  fail(ErrorKind::usage, "unexpected argument '{}' of {}{} See {} --help", word, called,
       near.empty() ? "." : fmt::format(", did you mean '{}'?", near), called);
}

/// Defines everything. `app` and `body` must outlive the call of the body.
void define_commands(CLI::App& app, CommandBody& body, const std::vector<std::string>& command) {
  app.name("dpt");
  app.require_subcommand(1);
  app.set_version_flag("--version", version_text());
  app.footer(
      "Exit codes: 0 done, 1 unexpected failure, 2 usage or config, 3 data or checkpoint, 4 device "
      "or memory,\n5 diverged, 6 another replica failed or stalled, 7 --require not met,\n"
      "75 stopped on request (run the same command again to resume),\n"
      "129 SIGHUP, 130 SIGINT, 143 SIGTERM (checkpoint saved).");
  add_train_command(app, body, command);
  add_eval_command(app, body, command);
  add_predict_command(app, body, command);
  add_export_command(app, body);
  add_runs_command(app, body);
  add_compare_command(app, body);
  add_report_command(app, body);
  add_config_command(app, body);
  add_data_command(app, body);
  add_model_command(app, body);
  add_devices_command(app, body);
  add_inspect_command(app, body);
  add_bench_command(app, body, command);
  add_completion_command(app, body);
  add_man_command(app, body);
  name_values(app);
}

constexpr const char* kAppHelp =
    "dpt trains image classifiers from one YAML file, data-parallel over CPU cores and GPUs. In "
    "exact mode\n(train.shards) the weights are bit-identical for any number of replicas.\n\n"
    "  dpt config init > config.yaml     write a config to start from\n"
    "  dpt train config.yaml             train it; run the same command again to resume\n"
    "  dpt eval runs/NAME                evaluate its best checkpoint";

}  // namespace

Command all_commands() {
  CLI::App app{kAppHelp};
  CommandBody body;
  define_commands(app, body, {});
  return command_tree(app);
}

int run_cli(int argc, const char* const* argv) {
  CLI::App app{kAppHelp};
  CommandBody body;
  define_commands(app, body, {argv, argv + argc});
  const int code = run_guarded([&] {
    prepare_standard_streams();
    try {
      check_command(app, argc, argv, 1);
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
      fail_usage(app, error.what());
    }
    return body();
  });
  // A result that did not arrive is none, whatever the command thinks of it.
  const int lost = run_guarded([] {
    flush_results();
    return 0;
  });
  return code != 0 ? code : lost;
}

}  // namespace dpt
