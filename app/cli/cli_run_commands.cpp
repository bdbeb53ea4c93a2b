// Defines the commands that create and use runs, and their options.
#include <algorithm>
#include <utility>

#include "app/base/process_options.h"
#include "app/bench/bench_options.h"
#include "app/bench/command_bench.h"
#include "app/cli/cli_options.h"
#include "app/evaluate/command_eval.h"
#include "app/evaluate/command_predict.h"
#include "app/evaluate/predict_options.h"
#include "app/export/command_export.h"
#include "app/gate/gate.h"
#include "app/report/command_report.h"
#include "app/runs/command_compare.h"
#include "app/runs/command_runs.h"
#include "app/train/command_train.h"
#include "app/train/train_options.h"

namespace dpt {
namespace {

void add_process_options(CLI::App* command, ProcessOptions& options) {
  CLI::Option* nproc = command
                           ->add_option("--nproc", options.nproc,
                                        "Run the command as N processes on this machine, which "
                                        "share the work. The exit code is that of the process "
                                        "that failed first, or 0")
                           ->check(CLI::Range(1, 256));
  CLI::Option* rank = command
                          ->add_option("--rank", options.flags.rank,
                                       "Number of this process, from 0 to --world-size - 1, if no "
                                       "launcher (torchrun, mpirun, srun) sets it")
                          ->check(CLI::NonNegativeNumber);
  CLI::Option* size =
      command
          ->add_option("--world-size", options.flags.size,
                       "Number of processes that share the work, in total over all machines")
          ->check(CLI::PositiveNumber);
  CLI::Option* coordinator =
      command
          ->add_option("--coordinator", options.flags.coordinator,
                       "Address at which rank 0 listens for the other processes: its machine and a "
                       "free port on it. Must be the same for all processes")
          ->check(not_empty());
  for (CLI::Option* other : {rank, size, coordinator}) nproc->excludes(other);
  command
      ->add_option("--join-timeout", options.join_timeout,
                   "Time to wait for all processes to join at the start, e.g. 90s, up to 365d "
                   "(default: 5m). Exit code 6 if a process does not join in time")
      ->check(not_empty());
}

/// Adds the options of the gate. Returns --require, without which the others are not allowed.
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
                   "Write the outcome of each --require to this file, as a Markdown table")
      ->check(not_empty())
      ->needs(require);
  command
      ->add_option("--junit", options.junit,
                   "Write the outcome of each --require to this file, as a test case in JUnit XML")
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
              "The run or checkpoint to resume: auto (default), never, must, or a checkpoint. "
              "auto: the run in the run folder, if there is one. never: none; start a new run in a "
              "new folder. must: the run in the run folder; fail if there is none. A checkpoint: a "
              "file, a step of the run (28), best, or another run's folder; later checkpoints are "
              "moved to checkpoints/abandoned-N")
          ->check(not_empty());
  train
      ->add_option(
          "--weights", options->weights,
          "Start from the weights of a safetensors file (torchvision names and layouts), a PyTorch "
          "file (.pth), a run folder's best checkpoint, or a file that is downloaded once "
          "(https://... or hf://OWNER/REPO), instead of the config's weights.file")
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
      "Check the config, the data (for an image folder, decode some images of each class) and the "
      "weights or checkpoint to start from, print the plan, and exit without training");
  train
      ->add_option("--max-steps", options->max_steps,
                   "Stop with exit code 0 when the run has completed N steps in total")
      ->check(count());
  CLI::Option* max_time =
      train
          ->add_option(
              "--max-time", options->max_time,
              "Save a checkpoint and stop with exit code 75 after this time: 3h50m, 3:50:00 "
              "(hours:minutes:seconds), 1:30 (minutes:seconds), or a number of seconds; up to 365d")
          ->check(not_empty());
  CLI::Option* require = add_gate_options(train, options->gate);
  CLI::Option* overwrite = train->add_flag(
      "--overwrite", options->overwrite,
      "Replace the run in the folder; the old run is removed once the new one has "
      "saved a regular checkpoint, and dpt runs --restore brings it back until then");
  CLI::Option* overfit =
      train
          ->add_option(
              "--overfit", options->overfit,
              "Only test whether the model can learn: train on the same N batches "
              "repeatedly, without augmentation, until their loss is near zero. Exit code "
              "7 if the loss is still higher after --max-steps steps (default: 1000). Nothing is "
              "saved")
          ->check(count());
  CLI::Option* other_data =
      train->add_flag("--allow-other-data", options->allow_other_data,
                      "Resume even if the training data differs from the run's, e.g. because a "
                      "broken image was replaced. The classes and the number of samples must be "
                      "the same. Without this option: exit code 3");
  for (CLI::Option* other : {run_dir, resume, dry_run, max_time, require, overwrite, other_data}) {
    overfit->excludes(other);
  }
  add_process_options(train, options->processes);
  train->add_flag("--rank-logs", options->processes.rank_logs,
                  "Write the messages of ranks other than 0 to logs/rank-N.log in the run folder");
  CLI::Option* smoke = train->add_flag(
      "--smoke", options->smoke,
      "Only test whether everything fits together, in seconds and without the data: a few steps on "
      "synthetic samples of the config's shapes, evaluation, saving, resuming (compared bit by "
      "bit), export. Uses a temporary folder, which is kept if a stage fails. No other option is "
      "allowed except --devices");
  // --expect-missing and --expect-left-over take all words until the next option, including
  // overrides. Words with '=' are overrides, because no parameter has a '=' in its name.
  train->parse_complete_callback([options, train, smoke] {
    for (std::vector<std::string>* names : {&options->expect_missing, &options->expect_left_over}) {
      const auto overrides = std::stable_partition(
          names->begin(), names->end(),
          [](const std::string& word) { return word.find('=') == std::string::npos; });
      options->overrides.insert(options->overrides.end(), overrides, names->end());
      names->erase(overrides, names->end());
    }
    // Do not use `excludes` for this check: it would appear in the help of every other option.
    for (const CLI::Option* other : train->get_options()) {
      const bool may_stand = other == smoke || !other->nonpositional() ||
                             other->get_name() == "--devices" || other->get_name() == "--help";
      if (smoke->count() > 0 && other->count() > 0 && !may_stand) {
        throw CLI::ExcludesError("--smoke", other->get_name());
      }
    }
  });
  set_body_of_processes(train, body, options, run_train);
}

void add_eval_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<EvalOptions>();
  options->command = std::move(command);
  CLI::App* eval =
      app.add_subcommand("eval", "Evaluate a run's best checkpoint, or a checkpoint file");
  eval->add_option("target", options->target, "Run folder or checkpoint file")->required();
  eval->add_option("overrides", options->overrides,
                   "Replaces a value of the stored config that says where the data is or how it is "
                   "evaluated, e.g. data.root=/elsewhere; or a config (.yaml) whose data section "
                   "names the samples to evaluate instead of the run's");
  eval->add_option("--split", options->split,
                   "The split to evaluate (default: test if there is one, else val)")
      ->check(CLI::IsMember({"train", "val", "test"}));
  eval->add_option("--predictions", options->predictions,
                   "Write a CSV file with one line per sample, in the order of the data set")
      ->check(not_empty());
  eval->add_flag("--probabilities", options->probabilities,
                 "Write the outputs of all classes to the --predictions file, not only that of the "
                 "predicted class")
      ->needs(eval->get_option("--predictions"));
  eval->add_option("--use", options->use, kUseHelp)->check(CLI::IsMember({"ema", "swa", "raw"}));
  eval->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  add_gate_options(eval, options->gate);
  eval->add_flag(
      "--allow-other-data", options->allow_other_data,
      "Evaluate even if the data differs from the run's (by the fingerprints of its "
      "training and test samples) or is split differently; without this option: exit code 3");
  eval->add_flag(
      "--allow-other-model", options->allow_other_model,
      "Evaluate even if overrides change the network, the loss or the transforms "
      "from those that the weights were trained with. The results record this. Without this "
      "option, such overrides give exit code 2");
  CLI::Option* json = eval->add_flag("--json", options->json, kJsonHelp);
  eval->add_flag(
          "--table", options->table,
          "Print the tables of classes (precision, recall, F1, confusions, calibration) even "
          "if stdout is not a terminal")
      ->excludes(json);
  eval->add_flag("--best-thresholds", options->best_thresholds,
                 "For multi_hot targets: add the best threshold of each label (the one with the "
                 "largest F1 on this split) to the table of labels");
  add_process_options(eval, options->processes);
  set_body_of_processes(eval, body, options, run_eval);
}

void add_predict_command(CLI::App& app, CommandBody& body, std::vector<std::string> command) {
  auto options = std::make_shared<PredictOptions>();
  options->command = std::move(command);
  CLI::App* predict = app.add_subcommand(
      "predict",
      "Predict images, or the samples of any data set, with a run's best checkpoint or a "
      "checkpoint file; neither labels nor the training data are needed. Writes one line per "
      "sample, in the order given; exit code 3 if a sample could not be read");
  predict->add_option("target", options->target, "Run folder or checkpoint file")->required();
  predict
      ->add_option("inputs", options->inputs,
                   "Image files, and folders (all images in or below them, sorted by path); - "
                   "reads paths from stdin, one per line. Or a config (.yaml) whose data section "
                   "names the samples. data.KEY=VALUE replaces a value of that config or, without "
                   "one, of the run's own, e.g. data.test.images=new.npy")
      ->check(not_empty());
  predict
      ->add_option("--split", options->split,
                   "Samples of the data set to predict: train, val, test or all (default: test if "
                   "there is one, otherwise all)")
      ->check(CLI::IsMember({"train", "val", "test", "all"}));
  predict
      ->add_option("--top", options->top, "Write the K most probable classes, not only the first")
      ->check(count());
  predict
      ->add_option("--format", options->format,
                   "The format: csv (default), or jsonl, one JSON object per line")
      ->check(CLI::IsMember({"csv", "jsonl"}));
  predict->add_option("--out", options->out, "Write to this file instead of stdout")
      ->check(not_empty());
  predict->add_option("--use", options->use, kUseHelp)->check(CLI::IsMember({"ema", "swa", "raw"}));
  predict->add_option("--devices", options->devices, kDevicesHelp)->check(not_empty());
  add_process_options(predict, options->processes);
  set_body_of_processes(predict, body, options, run_predict);
}

void add_export_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand(
      "export", "Write a run's best checkpoint, or a checkpoint file, for other programs");
  command->add_option("target", options->target, "Run folder or checkpoint file")->required();
  command->add_option("overrides", options->overrides,
                      "Replaces a value of the stored config that says where the data is, e.g. "
                      "data.root=/elsewhere");
  command
      ->add_option("--torch", options->torch,
                   "Write a safetensors file with a PyTorch state_dict: torchvision's names, "
                   "layouts and types, for load_state_dict(strict=True)")
      ->check(not_empty());
  CLI::Option* onnx =
      command
          ->add_option("--onnx", options->onnx,
                       "Write an ONNX model: network and weights, for batches of any size")
          ->check(not_empty());
  CLI::Option* normalisation =
      command
          ->add_flag("--include-normalisation", options->include_normalisation,
                     "The ONNX model takes raw samples (bytes 0 to 255) and begins with the "
                     "division by 255 and the Normalize of data.transforms.eval; without it, the "
                     "input is the normalised samples")
          ->needs(onnx);
  command
      ->add_option("--include-preprocessing", options->preprocessing,
                   "The ONNX model takes upright images of any size as bytes, (N, height, width, "
                   "channels) or with nchw (N, channels, height, width), and begins with the "
                   "transforms of data.transforms.eval: resizing, cropping, normalisation")
      ->expected(0, 1)
      ->default_str("nhwc")
      ->check(CLI::IsMember({"nhwc", "nchw"}))
      ->needs(onnx)
      ->excludes(normalisation);
  command
      ->add_flag("--softmax", options->softmax,
                 "The ONNX model outputs probabilities: the softmax of the outputs "
                 "(cross_entropy), or the sigmoid of each (bce_with_logits)")
      ->needs(onnx);
  command->add_option("--use", options->use, kUseHelp)->check(CLI::IsMember({"ema", "swa", "raw"}));
  command->add_flag("--overwrite", options->overwrite, "Replace an existing file");
  command->add_flag(
      "--allow-other-model", options->allow_other_model,
      "Export even if overrides change the network, the loss or the transforms "
      "from those that the weights were trained with. The files record this in their metadata. "
      "Without this option, such overrides give exit code 2");
  command->add_flag("--json", options->json, kJsonHelp);
  set_body(command, body, options, run_export);
}

void add_runs_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<RunsOptions>();
  CLI::App* runs = app.add_subcommand(
      "runs",
      "List the runs in a folder: status, last change, best value, test result, learning rate, "
      "time, steps");
  runs->add_option("folder", options->folder,
                   "Folder to search for runs, including its subfolders (default: runs); or the "
                   "folder of one run")
      ->capture_default_str();
  runs->add_option(
      "--restore", options->restore,
      "Bring back the run that train --overwrite replaced in this run folder; possible as long as "
      "replaced/ holds it. The new run moves to checkpoints/abandoned-N");
  runs->add_option("--sort", options->sort,
                   "Sort the runs by run, status, changed or best, by a result, e.g. test/accuracy "
                   "(best first), or by a field of the configs, e.g. optimizer.lr (default: run)")
      ->check(not_empty());
  CLI::Option* json = runs->add_flag("--json", options->json, kJsonHelp);
  runs->add_flag("--csv", options->csv,
                 "Print CSV: one line per run, with all results in full precision")
      ->excludes(json);
  set_body(runs, body, options, run_runs);
}

void add_compare_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* compare =
      app.add_subcommand("compare",
                         "Compare runs: differences of their configs, results, and mean and "
                         "standard deviation over runs that differ only in the seed or fold");
  compare->add_option("runs", options->runs, "The folders of two or more runs")
      ->required()
      ->expected(2, -1);
  compare
      ->add_option("--sort", options->sort,
                   "Sort the runs by a result, e.g. test/accuracy (best first), by a field of the "
                   "configs, e.g. optimizer.lr, or by run, status or best")
      ->check(not_empty());
  CLI::Option* json = compare->add_flag("--json", options->json, kJsonHelp);
  compare
      ->add_flag("--csv", options->csv,
                 "Print CSV: one line per run, with the differences of the configs and all results "
                 "in full precision")
      ->excludes(json);
  set_body(compare, body, options, run_compare);
}

void add_report_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* report = app.add_subcommand(
      "report",
      "Write a self-contained HTML report on runs, which needs no network: curves, confusion "
      "matrix, worst mistakes, differences of the configs, where the time went. Evaluates the best "
      "checkpoint of each run on the test split (else val)");
  report
      ->add_option("runs", options->words,
                   "Run folders; and key=value, which replaces a value of their configs for the "
                   "evaluation, e.g. data.root=/elsewhere")
      ->required()
      ->check(not_empty());
  report
      ->add_option(
          "-o,--out", options->out,
          "Write the page to this file (default: report.html in the run's folder, or for several "
          "runs in the current folder). An existing report is replaced, any other file is not")
      ->option_text("FILE")
      ->check(not_empty());
  report
      ->add_option(
          "--mistakes", options->mistakes,
          "Show up to N of the most confident mistakes and of the largest losses (default: "
          "12). 0 skips the evaluation and uses only the logs")
      ->option_text("N")
      ->check(CLI::Range(0, 1000));
  report->add_option("--devices", options->devices, kDevicesHelp)
      ->option_text("DEVICES")
      ->check(not_empty());
  set_body(report, body, options, run_report);
}

}  // namespace

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
      bench->add_option("--steps", options->steps, "Steps per round (default: 200)")
          ->check(count());
  bench->add_option("--rounds", options->rounds, "Number of rounds (default: 9)")->check(count());
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

void add_run_commands(CLI::App& app, CommandBody& body, const std::vector<std::string>& command) {
  add_train_command(app, body, command);
  add_eval_command(app, body, command);
  add_predict_command(app, body, command);
  add_export_command(app, body);
  add_runs_command(app, body);
  add_compare_command(app, body);
  add_report_command(app, body);
}

}  // namespace dpt
