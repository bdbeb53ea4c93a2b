#include "app/config/lr_curve.h"

#include <algorithm>

namespace dpt {
namespace {

/// Maximum number of steps that are examined one by one, to limit the time for long runs.
constexpr std::int64_t kMaxWalked = 4'000'000;
/// Maximum number of steps that are examined for a column of a chart.
constexpr std::int64_t kMaxPerColumn = 64;

/// Returns the steps at which the rate changes; empty if there are more than `most` or the run is
/// too long to examine.
std::vector<std::int64_t> changes_of(const LrCurve& curve, std::int64_t most) {
  std::vector<std::int64_t> changes = {0};
  if (curve.steps() > kMaxWalked) return {};
  double before = curve.schedule(0);
  for (std::int64_t step = 1; step < curve.steps(); ++step) {
    const double lr = curve.schedule(step);
    if (lr == before) continue;
    if (static_cast<std::int64_t>(changes.size()) == most) return {};
    changes.push_back(step);
    before = lr;
  }
  return changes;
}

}  // namespace

std::pair<double, double> LrCurve::range(std::int64_t begin, std::int64_t end) const {
  std::pair<double, double> found = {schedule(begin), schedule(begin)};
  const std::int64_t seen = std::min(end - begin, kMaxPerColumn);
  for (std::int64_t i = 1; i < seen; ++i) {
    const double lr = schedule(begin + i * (end - begin - 1) / (seen - 1));
    found = {std::min(found.first, lr), std::max(found.second, lr)};
  }
  return found;
}

std::vector<std::int64_t> rows_of(const LrCurve& curve, std::int64_t most) {
  const std::int64_t last = curve.steps() - 1;
  std::vector<std::int64_t> rows = changes_of(curve, most - 1);
  if (rows.empty()) {
    const std::int64_t count = std::min(most, curve.steps());
    const std::int64_t gaps = std::max<std::int64_t>(1, count - 1);
    for (std::int64_t i = 0; i < count; ++i) {
      rows.push_back(last / gaps * i + last % gaps * i / gaps);  // last * i may overflow
    }
    if (curve.warmup_steps > 0 && curve.warmup_steps < last) rows.push_back(curve.warmup_steps);
  }
  rows.push_back(last);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace dpt
