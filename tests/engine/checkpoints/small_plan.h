// A hand-made plan with one parameter of every layout, and a checkpoint that fits it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/layers/param_spec.h"

namespace dpt {

inline void add_param(Plan& plan, const std::string& name, std::vector<std::int64_t> file_shape,
                      ParamLayout layout = ParamLayout::plain, SampleShape hwc = {}) {
  Param param;
  param.name = name;
  param.count = 1;
  for (const std::int64_t size : file_shape) param.count *= size;
  param.spec.file_shape = std::move(file_shape);
  param.spec.layout = layout;
  param.spec.hwc = hwc;
  param.offset = plan.param_floats;
  plan.param_floats += (param.count + 15) / 16 * 16;
  plan.param_count += param.count;
  plan.params.push_back(param);
}

inline Plan small_plan() {
  Plan plan;
  add_param(plan, "conv1.weight", {2, 3, 2, 2}, ParamLayout::ohwi);
  add_param(plan, "conv1.bias", {2});
  add_param(plan, "fc1.weight", {3, 12}, ParamLayout::linear_hwc, {2, 3, 2});
  plan.params.back().node = 1;
  plan.nodes.resize(2);
  plan.nodes[0].name = "conv1";
  plan.nodes[0].inputs = {0};
  plan.nodes[1].name = "fc1";
  plan.nodes[1].inputs = {1};
  plan.rows.resize(2);
  plan.rows[0].name = "conv1";
  plan.rows[0].type = "Conv2d";
  plan.rows[0].params = 26;
  plan.rows[1].name = "fc1";
  plan.rows[1].type = "Linear";
  plan.rows[1].params = 36;
  plan.rows[1].out.shape = {1, 1, 3};
  plan.classes = 3;
  return plan;
}

/// Returns a WeightsSpec that only names a file to start from.
inline WeightsSpec weights_of(const std::string& file) {
  WeightsSpec weights;
  weights.file = file;
  return weights;
}

/// Returns the values first, first + 1, ... for the parameters, and 0 for the padding.
inline std::vector<float> counting(const Plan& plan, float first) {
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats));
  for (const Param& param : plan.params) {
    for (std::int64_t i = 0; i < param.count; ++i) {
      flat[param.offset + i] = first++;
    }
  }
  return flat;
}

inline Checkpoint small_checkpoint(const Plan& plan, std::int64_t step = 17) {
  Checkpoint checkpoint;
  checkpoint.state.step = step;
  checkpoint.state.epoch = 2;
  checkpoint.state.position = 512;
  checkpoint.state.best = 0.1 + 0.2;
  checkpoint.state.best_step = std::min<std::int64_t>(15, step);
  checkpoint.state.early_best = 0.7;
  checkpoint.state.bad_evaluations = 2;
  checkpoint.state.epoch_loss_sum = 1.0 / 3.0;
  checkpoint.state.epoch_correct = 500.25;
  checkpoint.state.epoch_weight = 600.5;
  checkpoint.state.epoch_labelled = 501;
  checkpoint.state.epoch_sums = {3, 0.1 + 0.2};
  checkpoint.state.train_metrics = {{"accuracy_top5", 0.75}};
  checkpoint.state.val_metrics = {{"r2", -1.0 / 3.0}, {"accuracy_top5", 1}};
  checkpoint.state.device_weights = {9988, 12};
  checkpoint.state.best_monitor = "val/accuracy max";
  checkpoint.state.best_checksum = "0123456789abcdef0123456789abcdef";
  checkpoint.state.early_monitor = "val/loss min";
  checkpoint.state.train_loss = 0.25;
  checkpoint.state.train_accuracy = 2.0 / 3.0;
  checkpoint.state.val_loss = 1.5;
  checkpoint.state.val_accuracy = 0.1;
  checkpoint.state.val_n = 20;
  checkpoint.state.lr_scale = 0.125;
  checkpoint.state.rollbacks = 3;
  checkpoint.state.rollback_step = std::min<std::int64_t>(11, step);
  checkpoint.state.rollback_candidate = std::min<std::int64_t>(13, step);
  checkpoint.state.skipped_steps = std::min<std::int64_t>(5, step);
  checkpoint.state.skipped_in_row = std::min<std::int64_t>(4, step);
  checkpoint.state.epoch_skipped = 48;
  checkpoint.state.schedule_segments = {0, 4, 6, 0};
  checkpoint.state.best_average_of = "val/accuracy 0.6";
  checkpoint.state.best_sum = 0.1;
  checkpoint.state.best_weight = 0.2;
  checkpoint.state.early_sum = 0.3;
  checkpoint.state.early_weight = 0.4;
  checkpoint.state.plateau_sum = 0.7;
  checkpoint.state.plateau_weight = 0.8;
  checkpoint.state.plateau_scale = 1.0 / 3.0;
  checkpoint.state.plateau_best = 0.3 - 0.1;
  checkpoint.state.plateau_bad = 1;
  checkpoint.state.plateau_cooldown = 6;
  checkpoint.state.averaged = 3;
  checkpoint.params = counting(plan, static_cast<float>(step));
  checkpoint.optimizer = {{"exp_avg", counting(plan, 1000)}, {"exp_avg_sq", counting(plan, 2000)}};
  checkpoint.config = "version: 1\nname: \"x\"\n# \u20ac\n";
  checkpoint.classes = {"a", "b \"quoted\""};
  checkpoint.targets = TargetKind::multi_hot;
  checkpoint.features = {"width", "a \"height\""};
  checkpoint.sample_type = DType::u8;
  checkpoint.train_samples = 1797;
  checkpoint.dataset_fingerprint = "digits-123";
  checkpoint.test_fingerprint = "digits-45";
  checkpoint.val_fingerprint = "digits-67";
  checkpoint.shards = 8;
  checkpoint.devices = {"cpu", "cpu"};
  checkpoint.made_by = "dpt 0.1.0, oneDNN 2.6.3, avx512";
  return checkpoint;
}

}  // namespace dpt
