#include "app/config/starter_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/console.h"
#include "app/base/progress_line.h"
#include "app/config/starter_data.h"
#include "datasets/class_table.h"
#include "datasets/dataset.h"
#include "engine/config/model_source.h"
#include "engine/config/read_spec.h"
#include "engine/config/scalars.h"
#include "engine/config/suggest.h"
#include "engine/data/data_sets.h"
#include "engine/data/sample_survey.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/job/job.h"
#include "engine/zoo/pretrained.h"
#include "engine/zoo/zoo.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

/// Assumed name of the config, so that paths are relative to the working directory.
constexpr const char* kFile = "config.yaml";

/// Maximum number of images whose sizes and colours are examined.
constexpr std::int64_t kMaxLooked = 256;

/// Returns a preliminary config to open the data with: a network of one layer, and nothing that
/// depends on the samples.
std::string draft(const StarterData& data, const std::vector<std::int64_t>& input,
                  const std::string& more = "") {
  std::string text = "data:\n  batch_size: 1\n";
  for (const std::string& line : data.lines) text += "  " + line + "\n";
  text += fmt::format("model: {{zoo: logistic, input: [{}]}}\n", fmt::join(input, ", "));
  // A loss with sigmoids accepts any number of classes. A single class is refused later.
  const bool has_sigmoids =
      data.targets == StarterTargets::multi_hot || data.targets == StarterTargets::labels;
  if (has_sigmoids) text += "loss: {type: bce_with_logits}\n";
  if (data.targets == StarterTargets::values) text += "loss: {type: mse}\n";
  return text + "optimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\n" + more;
}

/// Returns the text of an error without its place in the draft, which is not a file.
std::string without_place(const std::string& text) {
  std::string rest = text;
  while (rest.starts_with(std::string(kFile) + ":")) {
    const std::size_t end = rest.find(": ");
    if (end == std::string::npos) break;
    rest.erase(0, end + 2);
  }
  // Drop the prefix about model.classes, because the user has not written a model.
  if (rest.starts_with(kClassesUnknown)) rest.erase(0, std::strlen(kClassesUnknown));
  return rest;
}

/// Returns true if a run on such targets may leave out unreadable samples.
bool can_skip(const StarterData& data) {
  return data.targets == StarterTargets::labels;
}

/// Spec of a draft, and its open data set.
struct Draft {
  TrainSpec spec;
  DataSets sets;
};

/// Opens a draft. If files are refused that a run could leave out, opens it again with an option to
/// leave them out, and adds the option to `data`.
Draft open_draft(StarterData& data, const std::vector<std::int64_t>& input) {
  static const std::string kSkip = "on_bad_sample: skip";
  const auto open = [&] {
    Draft made{load_spec_text(catalog(), draft(data, input), kFile), {}};
    made.sets =
        open_dataset(made.spec.data.dataset, data_requirements(made.spec, make_plan(made.spec)));
    return made;
  };
  try {
    return open();
  } catch (const Error& error) {
    const std::string text = without_place(error.what());
    if (error.kind() != ErrorKind::data || text.find(kSkip) == std::string::npos ||
        !can_skip(data)) {
      throw Error(error.kind(), text);
    }
    say("warning: " + text);
  }
  data.lines.push_back(kSkip + "   # leaves out what cannot be read");
  data.skips = true;
  return open();
}

void check_class_count(const std::string& path, const StarterData& data, const DataSets& sets) {
  const std::vector<std::string>& classes = sets.train->classes();
  if (data.targets != StarterTargets::labels || classes.size() != 1) return;
  fail(ErrorKind::data, "--data {}: expected samples of at least two classes, found one class: {}",
       path, printable(classes[0]));
}

// ---- Images ------------------------------------------------------------------------------------

/// Properties of some images of the training set.
struct Images {
  std::vector<Size2> sizes;  ///< size of each readable image
  bool are_grey = true;
};

bool is_grey(const std::vector<std::byte>& pixels) {
  for (std::size_t i = 0; i + 2 < pixels.size(); i += 3) {
    if (pixels[i] != pixels[i + 1] || pixels[i] != pixels[i + 2]) return false;
  }
  return true;
}

Images look_at_images(const DataSource& source) {
  Images images;
  const std::int64_t step = std::max<std::int64_t>(1, source.size() / kMaxLooked);
  std::vector<std::byte> pixels(static_cast<std::size_t>(source.shape().elements()));
  for (std::int64_t i = 0; i < source.size(); i += step) {
    Size2 size;
    std::int32_t label = 0;
    const ChoosePart note_size = [&](std::int64_t height, std::int64_t width) {
      size = {height, width};
      return whole_image(height, width, 1, 1);
    };
    try {
      source.read_part(i, note_size, label);
      source.read(i, pixels, label);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      continue;
    }
    images.sizes.push_back(size);
    images.are_grey = images.are_grey && is_grey(pixels);
  }
  return images;
}

/// Conversion of images to the model's input.
struct InputPlan {
  std::int64_t channels = 3, height = 0, width = 0;
  bool crops = false;  ///< true if images are cropped, because they are large or differ in size
};

/// Returns a plan that keeps small images if all have one size, and otherwise crops all to squares
/// of one size.
InputPlan input_of(const Images& images) {
  constexpr std::int64_t kMaxWhole = 96;
  InputPlan plan;
  plan.channels = images.are_grey ? 1 : 3;
  std::vector<std::int64_t> sides;
  for (const Size2& size : images.sizes) sides.push_back(std::min(size.h, size.w));
  std::sort(sides.begin(), sides.end());
  const Size2 first = images.sizes.front();
  const bool is_one_size = std::all_of(images.sizes.begin(), images.sizes.end(),
                                       [&](const Size2& size) { return size == first; });
  if (is_one_size && std::max(first.h, first.w) <= kMaxWhole) {
    plan.height = first.h;
    plan.width = first.w;
    return plan;
  }
  const std::int64_t side = sides[sides.size() / 2];
  plan.height = plan.width = side >= 160 ? 224 : side >= 96 ? 128 : side >= 48 ? 64 : 32;
  plan.crops = true;
  return plan;
}

// ---- The network -------------------------------------------------------------------------------

/// The model section for an input, without the number of outputs.
struct Network {
  std::string zoo, options;
};

void check_zoo(const std::string& zoo) {
  std::vector<std::string> names;
  for (const ObjectTable* net : zoo_nets().table().alternatives) names.push_back(net->name);
  if (std::find(names.begin(), names.end(), zoo) != names.end()) return;
  const std::string near = closest(zoo, names);
  fail(ErrorKind::usage, "--zoo {}: unknown network{} Known networks: {}", zoo,
       near.empty() ? "." : fmt::format(", did you mean '{}'?", near), fmt::join(names, ", "));
}

Network network_for(const std::string& zoo, bool is_features, std::int64_t side) {
  Network net{zoo, ""};
  if (zoo.empty()) {
    net.zoo = is_features || side < 8 ? "mlp" : side <= 64 ? "resnet20" : "resnet18";
  }
  if (net.zoo == "mlp") net.options = ", hidden: [64, 64]";
  const bool is_resnet = net.zoo == "resnet18" || net.zoo == "resnet34" || net.zoo == "resnet50";
  if (is_resnet && side <= 64) {
    net.options = ", stem: cifar   # for small images; ImageNet weights need imagenet";
  }
  return net;
}

std::string model_line(const Network& net, const InputPlan& input, std::int64_t outputs) {
  return fmt::format("  zoo: {}\n  input: [{}, {}, {}]\n  classes: {}\n", net.zoo, input.channels,
                     input.height, input.width, outputs) +
         (net.options.empty() ? "" : "  " + net.options.substr(2) + "\n");
}

/// Returns a suggestion to start from published weights, if they exist for the network and input.
std::string weights_text(const Network& net, const InputPlan& input) {
  const PretrainedWeights* weights = pretrained_weights(net.zoo);
  if (!weights || !net.options.empty() || input.channels != 3) return {};
  return fmt::format("# weights: pretrained   # better for few images: trained on ImageNet, {}\n",
                     weights->file);
}

// ---- The samples -------------------------------------------------------------------------------

/// Result of reading all training samples.
struct Samples {
  std::int64_t count = 0, unreadable = 0;
  std::string first_unreadable;
};

Samples read_samples(const TrainSpec& spec, const DataSets& sets) {
  std::vector<SurveyedSplit> splits = {
      {"train",
       make_splits(sets, spec.data.val_split, static_cast<std::uint64_t>(spec.seed)).train,
       {},
       {},
       {}}};
  for (const auto& [name, source] : {std::pair("val", sets.val), std::pair("test", sets.test)}) {
    if (!source) continue;
    Split split{source, std::vector<std::int64_t>(static_cast<std::size_t>(source->size()))};
    std::iota(split.indices.begin(), split.indices.end(), 0);
    splits.push_back({name, std::move(split), {}, {}, {}});
  }
  ProgressLine progress;
  SurveyOptions survey;
  survey.workers = cpu_info().logical_allowed;
  survey.records = false;
  survey.on_progress = [&](std::int64_t done, std::int64_t total) {
    progress.update("read", done, total, "samples");
  };
  survey_samples(splits, survey);
  const SurveyedSplit& train = splits[0];
  Samples samples;
  samples.count = train.split.size();
  for (const SurveyedSplit& split : splits) {
    samples.unreadable += static_cast<std::int64_t>(split.unreadable.size());
    if (samples.first_unreadable.empty() && !split.unreadable.empty()) {
      samples.first_unreadable = split.unreadable[0].second;
    }
  }
  if (train.statistics.samples == 0) {
    fail(ErrorKind::data, "none of the {} training samples can be read{}", samples.count,
         samples.unreadable > 0 ? ": " + samples.first_unreadable : "");
  }
  return samples;
}

/// Returns a warning about targets far from 0: a new network, whose outputs are near 0, would need
/// too many steps to reach them. Empty for other targets.
std::string far_targets(const DataSource& train) {
  constexpr double kFar = 10;
  const TargetShape shape = train.targets();
  if (shape.kind != TargetKind::values) return {};
  const auto width = static_cast<std::size_t>(shape.floats());
  std::vector<float> row(width);
  std::vector<double> sums(width), squares(width);
  for (std::int64_t i = 0; i < train.size(); ++i) {
    train.read_targets(i, row);
    for (std::size_t k = 0; k < width; ++k) {
      sums[k] += row[k];
      squares[k] += static_cast<double>(row[k]) * row[k];
    }
  }
  const auto count = static_cast<double>(train.size());
  for (std::size_t k = 0; k < width; ++k) {
    const double mean = sums[k] / count;
    const double spread = std::sqrt(std::max(0.0, squares[k] / count - mean * mean));
    if (std::abs(mean) + spread <= kFar) continue;
    return fmt::format(
        "the numbers to predict are far from 0 (mean {:.6g}, standard deviation {:.6g}{}), but the "
        "outputs of a new network are near 0: training may fail. Store (number - {:.6g}) / {:.6g} "
        "in the data instead, and convert predictions back",
        mean, spread, width == 1 ? "" : fmt::format(", number {} of {}", k + 1, width), mean,
        spread > 0 ? spread : 1);
  }
  return {};
}

// ---- The text ----------------------------------------------------------------------------------

/// Returns a power of two that gives an epoch at least two batches.
std::int64_t batch_size_for(std::int64_t samples) {
  std::int64_t batch = samples >= 5000 ? 128 : samples >= 1000 ? 64 : samples >= 200 ? 32 : 16;
  while (batch > 1 && 2 * batch > samples) batch /= 2;
  return batch;
}

std::string val_split_text(const StarterData& data) {
  return fmt::format(
      "  val_split: {{fraction: 0.1{}}}   # held out of the training samples, since "
      "there is no validation set\n",
      data.targets == StarterTargets::labels ? ", stratify: true" : "");
}

std::string transforms_text(const StarterData& data, const InputPlan& input) {
  std::string train, eval;
  if (input.crops) {
    train += fmt::format(
        "      - {{type: RandomResizedCrop, size: {}}}   # a random crop of the image\n",
        input.height);
    eval += fmt::format("      - {{type: Resize, size: {}}}   # size of the shorter side\n",
                        input.height * 8 / 7);
    eval += fmt::format("      - {{type: CenterCrop, size: {}}}\n", input.height);
  } else if (!data.is_features && input.height >= 16 && input.width >= 16) {
    train += fmt::format("      - {{type: RandomCrop, size: [{}, {}], padding: {}}}\n",
                         input.height, input.width, std::min(input.height, input.width) / 8);
  }
  if (!data.is_features && !train.empty()) {
    // Grey images often show digits or letters, which should not be flipped.
    train +=
        input.channels == 3
            ? "      - {type: RandomHorizontalFlip}   # remove it if left and right matter\n"
            : "      # - {type: RandomHorizontalFlip}   # enable it unless left and right matter\n";
  }
  std::string text = "  normalize: auto   # mean and standard deviation of the training samples\n";
  if (train.empty()) return text;
  text += "  transforms:\n    train:\n" + train;
  return eval.empty() ? text : text + "    eval:   # validation, test and predict\n" + eval;
}

std::string loss_text(const StarterData& data) {
  switch (data.targets) {
    case StarterTargets::values:
      return "loss: {type: mse}\nmetrics: [{type: mean_absolute_error}, {type: r2}]\n";
    case StarterTargets::multi_hot:
      return "loss: {type: bce_with_logits}   # one sigmoid for each output\n";
    default:
      return "loss: {type: cross_entropy}\n";
  }
}

std::string training_text(bool is_simple, std::int64_t batch) {
  if (is_simple) {
    return "optimizer: {type: AdamW, lr: 0.002, weight_decay: 0.01}\n"
           "lr_schedule: {type: cosine}\n"
           "train: {epochs: 100}\n";
  }
  return fmt::format(
      "optimizer: {{type: SGD, lr: {:.4g}, momentum: 0.9, weight_decay: 0.0005}}\n"
      "lr_schedule: {{type: cosine, warmup: {{epochs: 1}}}}\n"
      "train: {{epochs: 30}}\n",
      0.1 * static_cast<double>(batch) / 128);
}

std::string outputs_comment(const StarterData& data, const DataSource& train) {
  switch (data.targets) {
    case StarterTargets::values:
      return "one output for each number to predict";
    case StarterTargets::multi_hot:
      return "one output for each label: " + printable(some_of(train.classes()));
    default:
      return printable(some_of(train.classes()));
  }
}

/// Content of the config.
struct Starter {
  StarterData data;
  InputPlan input;
  Network net;
  std::int64_t outputs = 0;
};

std::string text_of(const Starter& starter, const std::string& path, const DataSets& sets,
                    const Samples& samples) {
  const StarterData& data = starter.data;
  const std::int64_t batch = batch_size_for(samples.count);
  std::string text = fmt::format(
      "# For {}: {}, {} training samples{}{}.\n"
      "# Try it:  dpt config check THIS.yaml;  dpt train THIS.yaml --smoke;  dpt train THIS.yaml\n"
      "# `dpt config reference` describes every field. Relative paths are relative to this file.\n"
      "version: 1\nseed: 1\ndata:\n",
      printable(path), data.summary, samples.count,
      sets.val ? fmt::format(", {} for validation", sets.val->size()) : "",
      sets.test ? fmt::format(", {} for testing", sets.test->size()) : "");
  for (const std::string& line : data.lines) text += "  " + line + "\n";
  if (!sets.val) text += val_split_text(data);
  text += fmt::format("  batch_size: {}   # total over all devices\n", batch);
  if (samples.unreadable > 0 && !data.skips) {
    text +=
        fmt::format("  {}on_bad_sample: skip   # {} of the samples cannot be read{}\n",
                    can_skip(data) ? "" : "# ", samples.unreadable,
                    can_skip(data) ? "" : "; remove the files: skip works only with class labels");
  }
  text += transforms_text(data, starter.input);
  text += fmt::format("model:   # classes: {}\n", outputs_comment(data, *sets.train));
  text += model_line(starter.net, starter.input, starter.outputs) +
          weights_text(starter.net, starter.input);
  text += loss_text(data) +
          training_text(starter.net.zoo == "mlp" || starter.net.zoo == "logistic", batch);
  return text + "devices: auto\n";
}

/// Refuses a network that cannot take the input. `text` is the config with this network.
void check_text(const std::string& text, const std::string& zoo) {
  try {
    make_plan(load_spec_text(catalog(), text, kFile));
  } catch (const Error& error) {
    if (zoo.empty()) throw;
    fail(error.kind(), "--zoo {}: {}", zoo, error.what());
  }
}

}  // namespace

std::string starter_config(const std::string& path, const std::string& zoo) {
  if (!zoo.empty()) check_zoo(zoo);
  Starter starter;
  starter.data = find_starter_data(path);
  std::vector<std::int64_t> input = starter.data.input;
  if (input.empty()) {
    const Images images = look_at_images(*open_draft(starter.data, {3, 32, 32}).sets.train);
    if (images.sizes.empty()) fail(ErrorKind::data, "{}: none of its images can be read", path);
    starter.input = input_of(images);
    input = {starter.input.channels, starter.input.height, starter.input.width};
  } else {
    starter.input.channels = input[0];
    starter.input.height = input[1];
    starter.input.width = input[2];
  }
  const auto [spec, sets] = open_draft(starter.data, input);
  check_class_count(path, starter.data, sets);
  for (const std::string& note : sets.notes) say("note: " + note);
  starter.outputs = make_plan(spec).classes;
  starter.net = network_for(zoo, starter.data.is_features, std::min(input[1], input[2]));
  const Samples samples = read_samples(spec, sets);
  if (const std::string text = far_targets(*sets.train); !text.empty()) say("warning: " + text);
  std::string text = text_of(starter, path, sets, samples);
  check_text(text, zoo);
  return text;
}

}  // namespace dpt
