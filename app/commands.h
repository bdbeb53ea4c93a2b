// The commands of `dpt`: the options of each, and the function that runs it. Results are exit
// codes; failures are Errors. Only cli.cpp turns a command line into these structs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/processes/world.h"

namespace dpt {

struct Command;

/// Of a command that several processes may run together.
struct ProcessOptions {
  int nproc = 0;  ///< processes to start on this machine; 0 = none, this is one itself
  WorldFlags flags;
  std::string join_timeout = "5m";
  bool rank_logs = false;
};

/// What the results must meet, and where the verdict goes (app/gate.h).
struct GateOptions {
  std::vector<std::string> requirements;
  std::string baseline, verdict, junit;
};

struct TrainOptions {
  std::string config, run_dir, resume = "auto", weights, devices, max_time;
  std::vector<std::string> overrides, expect_missing, expect_left_over;
  GateOptions gate;
  std::int64_t max_steps = 0;  ///< 0 = no limit
  std::int64_t overfit = 0;    ///< batches to learn by heart, without a run folder; 0 = train
  bool dry_run = false, overwrite = false, smoke = false, allow_other_data = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< the words of the whole command line
};
int run_train(const TrainOptions& options);
/// `train --smoke`: the whole way on a few made-up samples.
int run_smoke(const TrainOptions& options);

struct EvalOptions {
  std::string target, split, predictions, devices, use;
  std::vector<std::string> overrides;
  GateOptions gate;
  bool allow_other_data = false, allow_other_model = false, probabilities = false, json = false;
  bool table = false;  ///< tables of classes, even if stdout is not a terminal
  bool best_thresholds = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< as in TrainOptions
};
int run_eval(const EvalOptions& options);

struct PredictOptions {
  std::string target, split, out, devices, use, format = "csv";
  /// Pictures and folders; or a config, and overrides of its data section or of the run's.
  std::vector<std::string> inputs;
  std::int64_t top = 1;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< as in TrainOptions
};
int run_predict(const PredictOptions& options);

struct ExportOptions {
  std::string target, torch, onnx, use;
  std::string preprocessing;  ///< layout of the images, "nhwc" or "nchw"; empty: not included
  std::vector<std::string> overrides;
  bool include_normalisation = false, softmax = false, overwrite = false, allow_other_model = false,
       json = false;
};
int run_export(const ExportOptions& options);

struct RunsOptions {
  std::string folder = "runs";
  std::string restore;  ///< run folder to restore, instead of printing a list
  std::string sort;     ///< as in CompareOptions; empty: by folder
  bool json = false, csv = false;
};
int run_runs(const RunsOptions& options);

struct CompareOptions {
  std::vector<std::string> runs;
  std::string sort;  ///< name of a result or a config key; empty: as given
  bool json = false, csv = false;
};
int run_compare(const CompareOptions& options);

struct ReportOptions {
  std::vector<std::string> words;  ///< run folders, and overrides of their configs
  std::string out, devices;        ///< `out` is empty: where it is expected
  std::int64_t mistakes = 12;      ///< the most in each list; 0: nothing is evaluated
};
int run_report(const ReportOptions& options);

struct ConfigOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool origins = false;
  bool expand = false;  ///< show: the layers that blocks stand for
};
int run_config_check(const ConfigOptions& options);
int run_config_show(const ConfigOptions& options);
int run_config_schema();
int run_config_reference();

struct ConfigInitOptions {
  std::string data, zoo;  ///< empty: a config for the digits
};
int run_config_init(const ConfigInitOptions& options);

struct LrOptions {
  std::string config, png;
  std::vector<std::string> overrides;
  std::int64_t samples = 0;  ///< of the training files; 0 = of the data set
  std::int64_t rows = 20;
  bool plot = false, json = false;
};
int run_config_lr(const LrOptions& options);

struct DataOptions {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<std::string> allowed;  ///< check: kinds of findings that are no errors
  int workers = 0;                   ///< 0: one for each core
  bool json = false;
};
int run_data_check(const DataOptions& options);
int run_data_stats(const DataOptions& options);

struct DataShowOptions {
  std::string config, out, split = "train";
  std::vector<std::string> overrides;
  std::int64_t samples = 0, columns = 0;  ///< 0: what is easy to look at
  std::int64_t epoch = 1, versions = 1;
  bool overwrite = false;
};
int run_data_show(const DataShowOptions& options);

struct ModelOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool json = false;
};
int run_model_summary(const ModelOptions& options);

struct GradcheckOptions {
  std::string config, device = "cpu";
  std::vector<std::string> overrides;
  std::int64_t samples = 0;  ///< 0: 8, or all where there are fewer
  bool random = false, json = false;
};
int run_model_gradcheck(const GradcheckOptions& options);

struct DevicesOptions {
  bool json = false;
};
int run_devices(const DevicesOptions& options);

struct InspectOptions {
  std::string file;
  bool json = false;
};
int run_inspect(const InspectOptions& options);

struct BenchOptions {
  std::string config, devices, weights;
  std::vector<std::string> overrides;
  std::int64_t steps = 200, rounds = 9;
  bool serve = false, losses = false, calls = false, data = false, json = false;
  ProcessOptions processes;
  std::vector<std::string> command;  ///< as in TrainOptions
};
int run_bench(const BenchOptions& options);
/// `bench --calls`: times each call of a step on the first device separately.
int run_bench_calls(const BenchOptions& options);
/// `bench --data`: times the reading, decoding and transforming of the training samples.
int run_bench_data(const BenchOptions& options);

struct CompletionOptions {
  std::string shell;
};
/// Prints the completion script of `root` (command_tree.h) and all commands below it.
int run_completion(const CompletionOptions& options, const Command& root);

struct ManOptions {
  std::string folder, prose;
  bool markdown = false;
};
/// Writes a manual page for each command, or the pages of docs/reference about them.
int run_man(const ManOptions& options, const Command& root);

}  // namespace dpt
