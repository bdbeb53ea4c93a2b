// Defines the commands for configs, data, devices and files, and their options.
#include "app/cli/cli_options.h"
#include "app/config/command_config.h"
#include "app/config/command_config_check.h"
#include "app/config/command_lr.h"
#include "app/config/config_options.h"
#include "app/inspect/command_data.h"
#include "app/inspect/command_data_show.h"
#include "app/inspect/command_devices.h"
#include "app/inspect/command_gradcheck.h"
#include "app/inspect/command_inspect.h"
#include "app/inspect/command_model.h"

namespace dpt {
namespace {

void add_config_lr_command(CLI::App& config, CommandBody& body) {
  auto options = std::make_shared<LrOptions>();
  CLI::App* lr = config.add_subcommand(
      "lr", "Print or plot the learning rate over the course of a run, without training");
  lr->add_option("config", options->config, kConfigHelp)->required();
  lr->add_option("overrides", options->overrides, kOverridesHelp);
  lr->add_option("--samples", options->samples,
                 "Number of samples in the training files, including those of data.val_split. The "
                 "data is then not read")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000'000}));
  CLI::Option* rows =
      lr->add_option("--rows", options->rows,
                     "Show up to N rows of the table (plus the end of the warm-up). If the rate "
                     "changes more than N times, the rows are for evenly spaced steps")
          ->check(CLI::Range(std::int64_t{2}, std::int64_t{10'000'000}));
  CLI::Option* plot =
      lr->add_flag("--plot", options->plot, "Draw a text chart instead of the table");
  refuse_removed(lr, "--png", "use --plot, or dpt report");
  CLI::Option* json = lr->add_flag("--json", options->json, kJsonHelp);
  plot->excludes(json)->excludes(rows);
  set_body(lr, body, options, run_config_lr);
}

void add_config_init_command(CLI::App& config, CommandBody& body) {
  auto options = std::make_shared<ConfigInitOptions>();
  CLI::App* init = config.add_subcommand(
      "init",
      "Print a commented config to start from: for your own data with --data, else for the "
      "built-in digits");
  CLI::Option* data =
      init->add_option(
              "--data", options->data,
              "Print a complete config for this data: a folder with train/CLASS/*.jpg, a "
              "CSV file, a .npy or .npz file, a folder of tar shards, or a pattern of their "
              "names, such as 'train-*.tar'")
          ->check(not_empty());
  init->add_option(
          "--zoo", options->zoo,
          "Network of the zoo, e.g. lenet or resnet18 (default: one that suits the size of the "
          "images, or mlp for a table)")
      ->check(not_empty())
      ->needs(data);
  set_body(init, body, options, run_config_init);
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
  show->add_flag("--expand", options->expand,
                 "Expand blocks and networks of the zoo into their layers");
  add_config_lr_command(*config, body);
  without_file("schema", "Print the JSON Schema (2020-12) of config files", run_config_schema);
  without_file("reference", "Print the reference of all config fields (Markdown)",
               run_config_reference);
  add_config_init_command(*config, body);
}

void add_data_check_command(CLI::App& data, CommandBody& body) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* check = data.add_subcommand(
      "check",
      "Read every sample once and report all problems. Errors (exit code 3): samples that cannot "
      "be read, NaN or infinite values, equal samples with different labels or in several splits, "
      "classes that only val or test has. Warnings: duplicates, near duplicates, constant images, "
      "rare and missing classes");
  check->add_option("config", options->config, kConfigHelp)->required();
  check->add_option("overrides", options->overrides, kOverridesHelp);
  check
      ->add_option("--allow", options->allowed,
                   "Report findings of these kinds as warnings instead of errors, e.g. "
                   "duplicate_across_splits for a published data set")
      ->delimiter(',')
      ->allow_extra_args(false);
  check
      ->add_option("--workers", options->workers,
                   "Number of threads that read samples (default: one per core)")
      ->check(CLI::Range(1, 1024));
  check->add_flag("--json", options->json, kJsonHelp);
  set_body(check, body, options, run_data_check);
}

void add_data_show_command(CLI::App& data, CommandBody& body) {
  auto options = std::make_shared<DataShowOptions>();
  CLI::App* show = data.add_subcommand(
      "show",
      "Write a PNG image of samples after the transforms of training (or evaluation), but before "
      "normalisation, and print which samples it shows");
  show->add_option("config", options->config, kConfigHelp)->required();
  show->add_option("overrides", options->overrides, kOverridesHelp);
  show->add_option("--out", options->out, "Write the image to this PNG file")
      ->required()
      ->check(not_empty());
  show->add_option("--split", options->split,
                   "Split to show: train (default; the first samples of the epoch), val or test "
                   "(evenly spaced samples)")
      ->check(CLI::IsMember({"train", "val", "test"}));
  const CLI::Range small(std::int64_t{1}, std::int64_t{10'000});
  show->add_option("--samples", options->samples,
                   "Number of samples (default: 32, or 8 with --versions)")
      ->check(small);
  show->add_option("--epoch", options->epoch, "The epoch whose random draws are shown (default: 1)")
      ->check(count());
  show->add_option(
          "--versions", options->versions,
          "Show each sample as transformed in N consecutive epochs, side by side (default: 1)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{64}));
  show->add_option("--columns", options->columns, "Images per row (default: 8)")->check(small);
  show->add_flag("--overwrite", options->overwrite, "Replace the file if it exists");
  set_body(show, body, options, run_data_show);
}

void add_data_command(CLI::App& app, CommandBody& body) {
  CLI::App* data = app.add_subcommand("data", "Check, describe and show the samples of a config");
  data->require_subcommand(1);
  add_data_check_command(*data, body);
  auto options = std::make_shared<DataOptions>();
  CLI::App* stats = data->add_subcommand("stats",
                                         "Print the mean and standard deviation of each channel of "
                                         "the training samples, as a Normalize transform");
  stats->add_option("config", options->config, kConfigHelp)->required();
  stats->add_option("overrides", options->overrides, kOverridesHelp);
  stats
      ->add_option("--workers", options->workers,
                   "Number of threads that read samples (default: one per core)")
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
      "summary",
      "Print layers, output shapes, parameters, FLOPs, activation bytes and memory per replica");
  summary->add_option("config", options->config, kConfigHelp)->required();
  summary->add_option("overrides", options->overrides, kOverridesHelp);
  summary->add_flag("--json", options->json, kJsonHelp);
  set_body(summary, body, options, run_model_summary);
  auto check = std::make_shared<GradcheckOptions>();
  CLI::App* gradcheck = model->add_subcommand(
      "gradcheck", "Check the gradient of every parameter against finite differences of the loss");
  gradcheck->add_option("config", check->config, kConfigHelp)->required();
  gradcheck->add_option("overrides", check->overrides, kOverridesHelp);
  gradcheck
      ->add_option("--samples", check->samples,
                   "Number of training samples in the loss (default: 8, or all if there are fewer)")
      ->check(CLI::Range(1, 1024));
  gradcheck
      ->add_option("--device", check->device,
                   "Device whose kernels are checked: cpu (default), or a GPU such as cuda:0")
      ->capture_default_str();
  gradcheck->add_flag("--random", check->random, "Use random images instead of the data");
  gradcheck->add_flag("--json", check->json, kJsonHelp);
  set_body(gradcheck, body, check, run_model_gradcheck);
}

void add_devices_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<DevicesOptions>();
  CLI::App* devices =
      app.add_subcommand("devices", "List the devices that this process can use, or check them");
  devices->add_flag("--json", options->json, kJsonHelp);
  CLI::Option* check = devices->add_flag(
      "--check", options->check,
      "Compare the kernels of each device with a reference, for the layers of seven networks, in "
      "every precision that the device supports. Exit code 4 if one is wrong");
  devices
      ->add_option(
          "--seconds", options->seconds,
          "Repeat the check for this many seconds, in at least two passes, on all cores and GPUs "
          "at once, and compare the bits of each pass: a test under load")
      ->check(CLI::Range(0.001, 1e7))
      ->needs(check);
  devices
      ->add_option("--devices", options->devices,
                   "Devices to check, e.g. cpu or cuda:1 (default: the CPU and every GPU)")
      ->check(not_empty())
      ->needs(check);
  set_body(devices, body, options, run_devices);
}

void add_inspect_command(CLI::App& app, CommandBody& body) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show the contents of a safetensors or PyTorch file and verify its checksum");
  inspect
      ->add_option("file", options->file,
                   "A checkpoint, any safetensors file, a PyTorch file (.pth), a run folder (its "
                   "best checkpoint), or a file to download (https://... or hf://OWNER/REPO)")
      ->required();
  inspect->add_flag("--json", options->json, kJsonHelp);
  set_body(inspect, body, options, run_inspect);
}

}  // namespace

void add_config_commands(CLI::App& app, CommandBody& body) {
  add_config_command(app, body);
  add_data_command(app, body);
  add_model_command(app, body);
  add_devices_command(app, body);
  add_inspect_command(app, body);
}

}  // namespace dpt
