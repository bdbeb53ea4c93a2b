// The registry of metrics, and the construction of a run's metrics.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "engine/metrics/averaging.h"
#include "engine/metrics/kinds.h"

namespace dpt {
namespace {

std::string name_of_metric(const Variant& options) {
  const MetricKind& kind = metric_kinds().at(options.type);
  return (kind.average ? kind.average(options) + "_" : std::string()) + kind.stem +
         (kind.suffix ? kind.suffix(options) : std::string());
}

/// Returns true if the fields of two metrics of one type are equal.
bool have_equal_options(const Variant& a, const Variant& b) {
  return std::all_of(a.table->fields.begin(), a.table->fields.end(), [&](const Field& field) {
    return field.get(a.options.get()) == field.get(b.options.get());
  });
}

/// Removes an average such as "macro_" from the beginning of a metric's name. Returns true if the
/// name had one.
bool take_average(std::string& name) {
  for (const auto& average : enum_names(Average{})) {
    const std::string prefix = std::string(average.name) + "_";
    if (!name.starts_with(prefix)) continue;
    name.erase(0, prefix.size());
    return true;
  }
  return false;
}

/// Throws unless the metric supports the kind of targets that the data has.
void check_targets(const Variant& options, const MetricContext& context) {
  const MetricKind& kind = metric_kinds().at(options.type);
  if (takes(kind.targets, context.targets)) return;
  std::vector<std::string> names;
  for (const MetricKind& each : metric_kinds()) {
    if (takes(each.targets, context.targets)) names.push_back(each.table->name);
  }
  fail(ErrorKind::usage,
       "metrics: the data's targets are {}: expected one of {}, found {}, which is for {}",
       text_of(context.targets), fmt::join(names, ", "), options.type, text_of(kind.targets));
}

/// Returns the accuracy metric. It is measured whenever it is defined, because the log and the
/// checkpoints have a field for it.
Variant accuracy() {
  return metric_kinds().with_defaults("accuracy");
}

}  // namespace

const Registry<MetricKind>& metric_kinds() {
  static const Registry<MetricKind> registry("metric", all_metrics(),
                                             {{"topk", "top_k"},
                                              {"top5", "top_k"},
                                              {"balanced_accuracy", "per_class_accuracy"},
                                              {"mae", "mean_absolute_error"},
                                              {"R2Score", "r2"},
                                              {"f1_score", "f1"},
                                              {"macro_f1", "f1"},
                                              {"auc", "auroc"},
                                              {"roc_auc", "auroc"},
                                              {"ap", "average_precision"},
                                              {"map", "average_precision"},
                                              {"mAP", "average_precision"}});
  return registry;
}

Measured MetricSet::of(std::size_t metric, Measured measured) const {
  measured.sums = measured.sums.subspan(first[metric], metrics[metric].sums.size());
  return measured;
}

bool MetricSet::needs_outputs() const {
  return std::any_of(metrics.begin(), metrics.end(),
                     [](const Metric& metric) { return metric.needs_outputs; });
}

NamedValues MetricSet::values(const Measured& measured, bool all) const {
  NamedValues values;
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    if (!all && !metrics[i].in_training) continue;
    // A metric is NaN if no sample counts.
    values.emplace_back(metrics[i].name,
                        measured.samples > 0 ? metrics[i].value(of(i, measured)) : NAN);
  }
  return values;
}

std::optional<double> take_accuracy(NamedValues& values) {
  if (values.empty() || values.front().first != metric_kinds().at("accuracy").stem)
    return std::nullopt;
  const double accuracy = values.front().second;
  values.erase(values.begin());
  return accuracy;
}

bool has_accuracy(TargetKind targets) {
  return takes(metric_kinds().at("accuracy").targets, targets);
}

MetricSet make_metrics(const std::vector<Variant>& metrics, const MetricContext& context) {
  std::vector<Variant> all;
  MetricSet set;
  if (has_accuracy(context.targets)) {
    all.push_back(accuracy());
  } else {
    set.sums.push_back({SampleSum::none});
  }
  all.insert(all.end(), metrics.begin(), metrics.end());
  std::vector<const Variant*> made;
  for (const Variant& options : all) {
    check_targets(options, context);
    const std::string name = name_of_metric(options);
    const auto same = std::find_if(set.metrics.begin(), set.metrics.end(),
                                   [&](const Metric& each) { return each.name == name; });
    if (same != set.metrics.end()) {
      const auto at = static_cast<std::size_t>(same - set.metrics.begin());
      if (have_equal_options(options, *made[at])) continue;
      fail(ErrorKind::usage,
           "metrics: expected metrics of different names, found two with the name {} that differ "
           "in their options: remove one",
           name);
    }
    made.push_back(&options);
    Metric metric = metric_kinds().at(options.type).make(options, context);
    metric.name = name;
    set.first.push_back(set.sums.size());
    set.sums.insert(set.sums.end(), metric.sums.begin(), metric.sums.end());
    set.metrics.push_back(std::move(metric));
  }
  if (set.sums.size() > kMaxMetricSums) {
    fail(ErrorKind::usage,
         "metrics: expected metrics with at most {} sums in all, accuracy included, found {}",
         kMaxMetricSums, set.sums.size());
  }
  return set;
}

std::vector<std::string> measured_names(const std::vector<Variant>& metrics) {
  std::vector<std::string> names = {"loss", name_of_metric(accuracy())};
  for (const Variant& options : metrics) {
    const std::string name = name_of_metric(options);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::optional<Direction> better_direction(const std::string& monitor) {
  constexpr std::string_view kSplit = "val/";
  if (!monitor.starts_with(kSplit)) return std::nullopt;
  std::string name = monitor.substr(kSplit.size());
  if (name == "loss") return Direction::min;
  const std::string whole = name;
  const bool has_average = take_average(name);
  // Find the longest matching stem, because the stem of accuracy is a prefix of others.
  const MetricKind* best = nullptr;
  for (const MetricKind& kind : metric_kinds()) {
    if (kind.average && !has_average) continue;
    const std::string& rest = kind.average ? name : whole;
    const bool fits = kind.suffix ? rest.starts_with(kind.stem) : rest == kind.stem;
    if (fits && (!best || kind.stem.size() > best->stem.size())) {
      best = &kind;
    }
  }
  return best ? std::optional(best->better) : std::nullopt;
}

}  // namespace dpt
