#include "engine/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/metrics/averaging.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

Ranking::Ranking(std::vector<float> positives) : positive_count_(positives.size()) {
  has_nan_ = std::any_of(positives.begin(), positives.end(), [](float x) { return std::isnan(x); });
  if (has_nan_) return;
  std::sort(positives.begin(), positives.end());
  for (const float score : positives) {
    if (steps_.empty() || steps_.back().score != score) steps_.push_back({score, 0, 0, 0, 0});
    ++steps_.back().positives;
  }
}

void Ranking::add_negative(float score) {
  ++negative_count_;
  has_nan_ = has_nan_ || std::isnan(score);
  if (has_nan_) return;
  const auto step =
      std::lower_bound(steps_.begin(), steps_.end(), score,
                       [](const Step& each, float value) { return each.score < value; });
  if (step == steps_.end()) {
    ++above_;
  } else if (step->score == score) {
    ++step->tied;
  } else {
    step->next_below = step->below == 0 ? score : std::max(step->next_below, score);
    ++step->below;
  }
}

double Ranking::area() const {
  if (has_nan_ || positive_count_ == 0 || negative_count_ == 0) return NAN;
  // Count in halves, because a tie counts half. The number of halves is at most samples * samples /
  // 2, which fits into 64 bits.
  std::uint64_t below = 0, halves = 0;
  for (const Step& step : steps_) {
    below += step.below;
    halves += step.positives * (2 * below + step.tied);
    below += step.tied;
  }
  return static_cast<double>(halves) /
         (2 * static_cast<double>(positive_count_) * static_cast<double>(negative_count_));
}

double Ranking::average_precision() const {
  if (has_nan_) return NAN;
  double sum = 0;
  std::uint64_t right = 0, wrong = above_;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    right += step.positives;
    wrong += step.tied;
    sum += static_cast<double>(step.positives) *
           (static_cast<double>(right) / static_cast<double>(right + wrong));
    wrong += step.below;
  }
  return positive_count_ == 0 ? 0 : sum / static_cast<double>(positive_count_);
}

Ranking::Threshold Ranking::best_threshold() const {
  if (has_nan_ || positive_count_ == 0) return {NAN, NAN};
  Threshold best{NAN, -1};
  std::uint64_t right = 0, wrong = above_;
  for (std::size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    right += step.positives;
    wrong += step.tied;
    const double f1 =
        2 * static_cast<double>(right) / static_cast<double>(right + wrong + positive_count_);
    if (f1 > best.f1) best = {threshold_under(i), f1};
    wrong += step.below;
  }
  return best;
}

/// Returns a threshold between the score of a step and the next lower score.
double Ranking::threshold_under(std::size_t step) const {
  const Step& of = steps_[step];
  float lower = of.score > 0 ? 0 : of.score - 1;
  if (of.below > 0) {
    lower = of.next_below;
  } else if (step > 0) {
    lower = steps_[step - 1].score;
  }
  const double middle = (static_cast<double>(lower) + static_cast<double>(of.score)) / 2;
  // Thresholds are compared in fp32, so take the lower score if the middle rounds to the upper one.
  const auto rounded = static_cast<float>(middle);
  return lower <= rounded && rounded < of.score ? middle : static_cast<double>(lower);
}

Ranking rank_outputs(const Measured& of, std::size_t begin, std::size_t end) {
  const auto classes = static_cast<std::size_t>(of.classes);
  const std::size_t samples = of.labels.size();
  std::vector<float> positives;
  for (std::size_t i = 0; i < samples; ++i) {
    for (std::size_t c = begin; c < end; ++c) {
      if (is_positive(of, i, c)) positives.push_back(of.outputs[i * classes + c]);
    }
  }
  Ranking ranking(std::move(positives));
  constexpr std::size_t kBetweenBeats = 1024;
  for (std::size_t i = 0; i < samples; ++i) {
    if (i % kBetweenBeats == 0) beat("ranking outputs");
    for (std::size_t c = begin; c < end; ++c) {
      if (!is_positive(of, i, c)) ranking.add_negative(of.outputs[i * classes + c]);
    }
  }
  return ranking;
}

}  // namespace dpt
