#include "app/train/start_weights.h"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "app/train/train_options.h"
#include "engine/checkpoints/weights_advice.h"
#include "engine/checkpoints/weights_file.h"
#include "engine/config/name_patterns.h"
#include "engine/config/paths.h"
#include "engine/zoo/pretrained.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Returns the name of the dictionary that was read from a PyTorch file, and the names of the
/// others.
std::string key_text(const WeightsReport& report) {
  constexpr std::size_t kMax = 3;
  if (report.key.empty()) return {};
  std::string text = fmt::format(" ({}", report.key);
  for (std::size_t i = 0; i < std::min(report.other_keys.size(), kMax); ++i) {
    text += fmt::format("{}{}", i == 0 ? "; not " : ", ",
                        report.other_keys[i].empty() ? "the file's own" : report.other_keys[i]);
  }
  return text + (report.other_keys.size() > kMax ? ", ...)" : ")");
}

/// Returns the path of the file, or the source of a download.
std::string name_of(const WeightsSource& source) {
  if (source.url.empty()) return source.path;
  return fmt::format("{} (SHA-256 {})", source.url, source.sha256);
}

/// Returns a note on which weights of the file are used; empty if it has no averages.
std::string use_text(const WeightsReport& report) {
  if (!report.use) return {};
  switch (*report.use) {
    case WeightsUse::ema:
      return " (moving average)";
    case WeightsUse::swa:
      return " (average of epochs)";
    case WeightsUse::raw:
      break;
  }
  return " (raw, not the average)";
}

std::string head_line(const HeadReport& head) {
  if (head.is_new) {
    std::string line = fmt::format("  head '{}': new, with initial values", head.layer);
    if (!head.skipped.empty()) {
      line += fmt::format("; {} of the file: not read", fmt::join(head.skipped, ", "));
    }
    return line;
  }
  const std::size_t classes = head.copied.size() + head.fresh.size();
  std::string line = fmt::format("  head '{}': the rows of {} of {} classes, by name", head.layer,
                                 head.copied.size(), classes);
  if (!head.fresh.empty()) {
    line += fmt::format("; initial values for {}", fmt::join(head.fresh, ", "));
  }
  return line;
}

constexpr std::size_t kMaxNames = 10;  // per kind: a file of another model may have thousands

/// Formats a line for each name, up to kMaxNames, and the number of further ones.
std::vector<std::string> lines_of(const char* what, const std::vector<std::string>& names,
                                  const char* remark) {
  std::vector<std::string> lines;
  // Show one name more instead of "and 1 more".
  const std::size_t shown = names.size() <= kMaxNames + 1 ? names.size() : kMaxNames;
  for (std::size_t i = 0; i < shown; ++i) {
    lines.push_back(fmt::format("  {}: {}{}", what, names[i], remark));
  }
  if (shown < names.size()) {
    lines.push_back(fmt::format("  {}: and {} more{}", what, names.size() - shown, remark));
  }
  return lines;
}

/// Divides names into expected and unexpected ones.
class Expectation {
 public:
  Expectation(const char* what, const std::vector<std::string>& names,
              const std::vector<std::string>& patterns)
      : what_(what), names_(names), patterns_(patterns) {
    for (const std::string& name : names) {
      (matches_any(patterns, name) ? expected_ : surprises_).push_back(name);
    }
  }

  const std::vector<std::string>& surprises() const { return surprises_; }
  std::vector<std::string> expected_lines() const {
    return lines_of(what_, expected_, " (expected)");
  }
  std::string surprise_lines() const {
    std::string text;
    for (const std::string& line : lines_of(what_, surprises_, "")) text += "\n" + line;
    return text;
  }
  /// Returns a line for each pattern that matches no name.
  std::string idle_patterns(const char* field) const {
    std::string text;
    for (const std::string& pattern : patterns_) {
      const auto matches = [&](const std::string& name) { return matches_pattern(pattern, name); };
      if (std::any_of(names_.begin(), names_.end(), matches)) continue;
      text += fmt::format("\n  {}: '{}' matches no tensor that is {}", field, pattern, what_);
    }
    return text;
  }

 private:
  const char* what_;
  const std::vector<std::string>& names_;
  const std::vector<std::string>& patterns_;
  std::vector<std::string> expected_, surprises_;
};

/// Returns the advice to add an entry to `weights.map` that makes the names fit; empty if no entry
/// does.
std::string map_advice(const StartWeights& weights, const Expectation& missing,
                       const Expectation& left_over) {
  const std::string entry = map_entry_for(missing.surprises(), left_over.surprises());
  if (entry.empty()) return {};
  if (weights.is_strict) {
    return fmt::format(
        " its names differ by a prefix. To map them, add to the config's `weights`:\n  map: {}",
        entry);
  }
  return fmt::format(
      " its names differ by a prefix. To map them, add to the config:\n  weights: "
      "{{file: {}, map: {}}}",
      weights.spec.file, entry);
}

/// Returns the advice to accept a file that does not fit, with the patterns to write.
std::string pattern_advice(const StartWeights& weights, const WeightsReport& report,
                           const Expectation& missing, const Expectation& left_over) {
  if (!weights.is_strict) {
    return "\nIf this is intended, name these tensors with --expect-missing and --expect-left-over "
           "(patterns such as fc.*; a star matches any number of characters)";
  }
  std::string text = "\nIf this is intended, add to the config's `weights`:";
  if (!missing.surprises().empty()) {
    text += fmt::format("\n  expect_missing: {}", patterns_for(missing.surprises(), report.loaded));
  }
  if (!left_over.surprises().empty()) {
    text +=
        fmt::format("\n  expect_left_over: {}", patterns_for(left_over.surprises(), report.used));
  }
  return text;
}

}  // namespace

void replace_weights_file(const std::string& file, TrainSpec& spec) {
  if (!spec.weights || file.empty()) return;
  spec.weights->file = resolve_path(file, {});
  spec.weights->sha256.reset();
}

std::optional<StartWeights> start_weights(const TrainOptions& options, const TrainSpec& spec) {
  if (options.weights.empty() && !spec.weights) return std::nullopt;
  StartWeights weights;
  weights.is_strict = spec.weights.has_value();
  if (spec.weights) {
    weights.spec = *spec.weights;
    weights.source = "weights.file " + spec.weights->file;
    std::error_code error;
    const std::string hint = hint_of_default(spec.weights->file);
    if (options.weights.empty() && !hint.empty() &&
        !std::filesystem::exists(spec.weights->file, error)) {
      fail(ErrorKind::data, "{}: no such file{}", weights.source, hint);
    }
  }
  if (!options.weights.empty()) {
    weights.spec.file = options.weights;
    weights.source = "--weights " + options.weights;
  }
  const auto append = [](std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  append(weights.spec.expect_missing, options.expect_missing);
  append(weights.spec.expect_left_over, options.expect_left_over);
  resolve_pretrained(spec.model, weights.spec);
  weights.spec.takes_other_shapes = is_pretrained_file(weights.spec.file);
  return weights;
}

AppliedWeights apply_start_weights(const StartWeights& weights, const Plan& plan,
                                   const std::vector<std::string>* classes, float* flat) {
  WeightsSpec spec = weights.spec;
  WeightsSource source = weights_source(spec);
  spec.file = source.path;
  const WeightsReport report = load_weights(spec, plan, classes, flat);
  std::vector<std::string> lines = {fmt::format(
      "weights from {}{}{}: {} loaded, {} missing, {} left over", name_of(source), key_text(report),
      use_text(report), report.loaded.size(), report.missing.size(), report.left_over.size())};
  if (report.head && (classes || report.head->is_new)) lines.push_back(head_line(*report.head));
  if (!report.zeroed.empty()) {
    lines.push_back(fmt::format(
        "  missing from the file: {}",
        report.zeroed.size() == 1
            ? std::string("1 counter of batches, which starts at 0")
            : fmt::format("{} counters of batches, which start at 0", report.zeroed.size())));
  }
  const Expectation missing("missing from the file", report.missing, spec.expect_missing);
  const Expectation left_over("left over in the file", report.left_over, spec.expect_left_over);
  for (const Expectation* each : {&missing, &left_over}) {
    const std::vector<std::string> expected = each->expected_lines();
    lines.insert(lines.end(), expected.begin(), expected.end());
  }
  const std::string surprises = missing.surprise_lines() + left_over.surprise_lines();
  if (!surprises.empty()) {
    const std::string map = map_advice(weights, missing, left_over);
    fail(ErrorKind::data, "{} does not fit the model:{}{}{}", weights.source, map, surprises,
         map.empty() ? pattern_advice(weights, report, missing, left_over) : "");
  }
  if (!weights.is_strict) return {std::move(source), std::move(lines)};
  const std::string idle = missing.idle_patterns("weights.expect_missing") +
                           left_over.idle_patterns("weights.expect_left_over");
  if (!idle.empty()) {
    fail(ErrorKind::data, "{}: patterns that match nothing:{}\nCorrect or remove them",
         weights.source, idle);
  }
  return {std::move(source), std::move(lines)};
}

}  // namespace dpt
