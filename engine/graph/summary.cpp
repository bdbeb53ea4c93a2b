// `dpt model summary`: the plan as a table and as JSON.
#include "engine/graph/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "engine/graph/memory_schedule.h"
#include "engine/graph/param_places.h"
#include "engine/layers/activation_shape.h"
#include "kernels/base/divide.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

/// Formats a number with separators: "129,068".
std::string grouped(std::int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

/// Formats a number of operations: "4.50 M", "243.4 k".
std::string flops_text(double flops) {
  if (flops == 0) return "-";
  constexpr std::array<const char*, 5> kUnits = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  while (flops >= 999.95 && unit + 1 < kUnits.size()) {
    flops /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", flops, unit == 0 ? 0 : (flops < 10 ? 2 : 1), kUnits[unit]);
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<const char*, 3> kUnits = {"KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

constexpr std::size_t kColumns = 8;
using Cells = std::array<std::string, kColumns>;

/// True for the columns that are aligned left: texts, but not numbers.
constexpr std::array<bool, kColumns> kLeft = {true, true, true, false, false, false, false, false};

std::string table_text(const std::vector<Cells>& lines) {
  std::array<std::size_t, kColumns> width{};
  for (const Cells& line : lines) {
    for (std::size_t c = 0; c < kColumns; ++c) width[c] = std::max(width[c], line[c].size());
  }
  std::string text;
  for (const Cells& line : lines) {
    std::string row;
    for (std::size_t c = 0; c < kColumns; ++c) {
      if (c > 0) row += "  ";
      row += kLeft[c] ? fmt::format("{:<{}}", line[c], width[c])
                      : fmt::format("{:>{}}", line[c], width[c]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

/// Returns the memory of each layer's output, or the reason why it needs none.
std::vector<std::string> memory_texts(const Plan& plan) {
  std::vector<std::string> texts(plan.rows.size());
  for (const Node& node : plan.nodes) {
    for (const int layer : node.source_layers) {
      const std::int64_t bytes = plan.rows[layer].activation_bytes;
      if (bytes > 0) {
        texts[layer] = bytes_text(bytes);
      } else if (node.is_view) {
        texts[layer] = "view";
      } else {
        texts[layer] = node.source_layers.size() > 1 ? "fused" : "in place";
      }
    }
  }
  return texts;
}

struct Totals {
  double forward = 0, backward = 0;
  std::int64_t activation_bytes = 0;
};

Totals totals_of(const Plan& plan) {
  Totals totals;
  for (const LayerRow& row : plan.rows) {
    totals.forward += row.forward_flops;
    totals.backward += row.backward_flops;
    totals.activation_bytes += row.activation_bytes;
  }
  return totals;
}

/// Returns the size of a step that runs a whole batch without a limit on micro-batches.
StepSize whole_batch(const TrainSpec& spec, int replicas) {
  const std::int64_t batch = spec.data.batch_size;
  return step_size(spec, replicas, batch, batch);
}

/// Estimates the memory of a step. One of the `optimizer_buffers` may be an average of the weights,
/// which covers all parameters.
MemoryEstimate memory_of_step(const TrainSpec& spec, const Plan& plan, const StepSize& size,
                              int optimizer_buffers) {
  MemoryEstimate memory = estimate_memory(plan, size.at_once, optimizer_buffers, size.pieces);
  if (optimizer_buffers > 0 && (spec.train.ema || spec.train.swa)) {
    memory.optimizer += gradient_begin(plan) * static_cast<std::int64_t>(sizeof(float));
  }
  return memory;
}

}  // namespace

StepSize step_size(const TrainSpec& spec, int replicas, std::int64_t samples, std::int64_t limit) {
  StepSize step;
  step.batch = std::min(spec.data.batch_size, samples);
  const std::int64_t parts = spec.train.shards > 0 ? spec.train.shards : replicas;
  const std::int64_t part = ceil_div(step.batch, parts);
  // A shard is divided evenly into micro-batches.
  step.pieces = std::max(std::min(spec.train.accumulate, part), ceil_div(part, limit));
  step.at_once = ceil_div(part, step.pieces);
  return step;
}

std::int64_t step_bytes(const TrainSpec& spec, const Plan& plan, const StepSize& step,
                        int optimizer_buffers) {
  return memory_of_step(spec, plan, step, optimizer_buffers).total();
}

std::string summary_text(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers, std::optional<StepSize> step) {
  std::vector<Cells> lines;
  lines.push_back({"layer", "type", "detail", "output", "parameters", "FLOP forward",
                   "FLOP backward", "activation"});
  const std::vector<std::string> memory_of = memory_texts(plan);
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    const LayerRow& row = plan.rows[i];
    lines.push_back({row.name, row.type, row.detail, row.out.text(),
                     row.params > 0 ? grouped(row.params) : "-", flops_text(row.forward_flops),
                     flops_text(row.backward_flops), memory_of[i]});
  }
  const Totals totals = totals_of(plan);
  lines.push_back({"total", "", "", "", grouped(plan.param_count), flops_text(totals.forward),
                   flops_text(totals.backward), bytes_text(totals.activation_bytes)});

  std::int64_t frozen = 0, frozen_tensors = 0, tensors = 0;
  for (const Param& param : plan.params) {
    if (!param.is_trained()) continue;
    ++tensors;
    if (!param.is_frozen) continue;
    frozen += param.count;
    ++frozen_tensors;
  }

  const StepSize size = step.value_or(whole_batch(spec, replicas));
  const MemoryEstimate memory = memory_of_step(spec, plan, size, optimizer_buffers.value_or(0));
  const std::string per_image = flops_text(totals.forward + totals.backward);
  std::string text = fmt::format("{}: input {}, {} classes, {}\n\n{}", spec.name, plan.input.text(),
                                 plan.classes, name_of(plan.type), table_text(lines));
  if (frozen > 0) {
    text += fmt::format("\n{} of the parameters are frozen ({} of {} tensors).\n", grouped(frozen),
                        frozen_tensors, tensors);
  }
  text += fmt::format(
      "\nPer image: {}{}FLOP forward and backward (2 per multiply-add); sizes of activations "
      "exclude their gradients.\nPer replica ({} of {} images on {}, {} at once): parameters {}, "
      "gradients {}, optimizer {}, activations {}: {} in total for training, excluding the "
      "kernels' workspaces, the data and evaluation.\n",
      per_image, per_image.find(' ') == std::string::npos ? " " : "",
      ceil_div(size.batch, replicas), size.batch, counted(replicas, "replica"), size.at_once,
      bytes_text(memory.params), bytes_text(memory.grads),
      optimizer_buffers ? bytes_text(memory.optimizer) : "not counted",
      bytes_text(memory.activations), bytes_text(memory.total()));
  return text;
}

std::string summary_json(const TrainSpec& spec, const Plan& plan, int replicas,
                         std::optional<int> optimizer_buffers, std::optional<StepSize> step) {
  using Json = nlohmann::ordered_json;
  const auto shape_json = [](const ActivationShape& shape) {
    return shape.flat ? Json{shape.elements()} : Json{shape.shape.c, shape.shape.h, shape.shape.w};
  };
  Json layers = Json::array();
  for (const LayerRow& row : plan.rows) {
    layers.push_back({{"name", row.name},
                      {"type", row.type},
                      {"detail", row.detail},
                      {"output", shape_json(row.out)},
                      {"parameters", row.params},
                      {"shares", row.shares.empty() ? Json() : Json(row.shares)},
                      {"forward_flops", row.forward_flops},
                      {"backward_flops", row.backward_flops},
                      {"activation_bytes", row.activation_bytes},
                      {"fused_into", row.fused_into.empty() ? Json() : Json(row.fused_into)}});
  }
  Json params = Json::array();
  for (const Param& param : plan.params) {
    params.push_back(
        {{"name", param.name}, {"shape", param.spec.file_shape}, {"frozen", param.is_frozen}});
  }
  const Totals totals = totals_of(plan);
  const StepSize size = step.value_or(whole_batch(spec, replicas));
  const MemoryEstimate memory = memory_of_step(spec, plan, size, optimizer_buffers.value_or(0));
  const Json all = {{"name", spec.name},
                    {"input", shape_json(plan.input)},
                    {"classes", plan.classes},
                    {"precision", name_of(plan.type)},
                    {"layers", layers},
                    {"tensors", params},
                    {"parameters", plan.param_count},
                    {"forward_flops", totals.forward},
                    {"backward_flops", totals.backward},
                    {"replicas", replicas},
                    {"batch_per_replica", ceil_div(size.batch, replicas)},
                    {"samples_at_once", size.at_once},
                    {"memory_per_replica",
                     {{"parameters", memory.params},
                      {"gradients", memory.grads},
                      {"optimizer", optimizer_buffers ? Json(memory.optimizer) : Json()},
                      {"activations", memory.activations},
                      {"total", memory.total()}}}};
  return json_text(all, 2);
}

}  // namespace dpt
