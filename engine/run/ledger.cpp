#include "engine/run/ledger.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "engine/data/decoder_pool.h"
#include "engine/job/job.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/process_group.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

constexpr std::array<const char*, kLedgerParts> kLedgerNames = {
    "data",       "upload",  "forward", "backward",  "sum",  "update",
    "evaluation", "logging", "saving",  "launching", "other"};

/// Part of the ledger for each StepPhase.
constexpr std::array<LedgerPart, kStepPhases> kPartOfPhase = {
    LedgerPart::forward, LedgerPart::backward, LedgerPart::sum, LedgerPart::update};

bool is_computing(LedgerPart part) {
  return part == LedgerPart::forward || part == LedgerPart::backward || part == LedgerPart::update;
}

int cores_of_process(const Job& job) {
  const int cores = cpu_info().logical_allowed;
  return job.placement.processes ? own_part_of_cores(cores, job.placement.processes->world())
                                 : cores;
}

std::string advice_on(LedgerPart part, const Job& job) {
  switch (part) {
    case LedgerPart::data: {
      std::vector<std::string> ways;
      if (job.placement.decoders->threads() < cores_of_process(job))
        ways.emplace_back("raise data.workers");
      if (job.spec.data.cache.empty()) ways.emplace_back("keep decoded images (data.cache)");
      ways.emplace_back("see which stage is slow: dpt bench CONFIG --data");
      if (ways.size() > 1) ways.back() = "or " + ways.back();
      return fmt::format("{}", fmt::join(ways, ways.size() > 2 ? ", " : " "));
    }
    case LedgerPart::upload:
      return "send fewer bytes to the device: smaller samples, or u8 in place of f32";
    case LedgerPart::sum:
      return "the replicas add up their gradients after each step: give each more work per step "
             "(data.batch_size), or use fewer replicas; this time includes waiting for slower "
             "replicas "
             "(device_weights)";
    case LedgerPart::evaluation:
      if (job.data.splits.val.size() == 0) {
        return "it is the test at the end of the run, which takes a smaller share of a longer run";
      }
      return job.data.splits.has_own_val ? "validate on fewer samples (a smaller validation set)"
                                         : "validate on fewer samples (data.val_split)";
    case LedgerPart::logging:
      return "raise log.every";
    case LedgerPart::saving:
      return "save less often (checkpoint.every, checkpoint.every_steps)";
    case LedgerPart::launching:
      return "give each launch more work: raise data.batch_size";
    case LedgerPart::other:
      return "most of it is the start of the run, which takes a smaller share of a longer run";
    default:
      return {};
  }
}

/// Rounds to multiples of 1 / `parts`, so that JSON prints few decimals.
double rounded(double value, double parts) {
  return std::round(value * parts) / parts;
}

}  // namespace

const char* name_of(LedgerPart part) {
  return kLedgerNames[static_cast<std::size_t>(part)];
}

double LedgerTotals::sum() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::size_t Ledger::turn_to(std::size_t part) {
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - turned_).count();
  turned_ = now;
  interval_.seconds[part_] += seconds;
  whole_.seconds[part_] += seconds;
  return std::exchange(part_, part);
}

void Ledger::phases(const PhaseSeconds& seconds) {
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    interval_.phases[i] += seconds[i];
    whole_.phases[i] += seconds[i];
  }
}

void Ledger::waited_for_data_of_others(double seconds) {
  interval_.data_of_others += seconds;
  whole_.data_of_others += seconds;
}

LedgerTotals Ledger::totals(const Account& account) const {
  LedgerTotals totals = parts_of(account);
  const double moved = std::min(account.data_of_others, totals[LedgerPart::sum]);
  totals[LedgerPart::sum] -= moved;
  totals[LedgerPart::data] += moved;
  return totals;
}

LedgerTotals Ledger::parts_of(const Account& account) const {
  LedgerTotals totals;
  std::copy_n(account.seconds.begin(), kLedgerParts, totals.seconds.begin());
  // Divide an interval without a timed step like the whole run.
  const auto sum = [](const PhaseSeconds& each) {
    return std::accumulate(each.begin(), each.end(), 0.0);
  };
  const PhaseSeconds& phases = sum(account.phases) > 0 ? account.phases : whole_.phases;
  const double timed = sum(phases), device = account.seconds[kDevice];
  if (timed <= 0) {
    totals[LedgerPart::other] += device;
    return totals;
  }
  for (std::size_t i = 0; i < phases.size(); ++i) {
    totals[kPartOfPhase[i]] += device * phases[i] / timed;
  }
  return totals;
}

LedgerTotals Ledger::take_interval() {
  turn_to(part_);
  return totals(std::exchange(interval_, {}));
}

LedgerTotals Ledger::whole() {
  turn_to(part_);
  return totals(whole_);
}

LedgerVerdict verdict_of(const LedgerTotals& totals, const Job& job) {
  constexpr double kWorthAdvice = 0.1, kShortRun = 1;  // fraction of the time, seconds
  const double whole = totals.sum();
  LedgerVerdict verdict;
  if (whole <= 0) return verdict;
  double computing = 0, most = 0;
  LedgerPart largest = LedgerPart::other;
  for (int i = 0; i < kLedgerParts; ++i) {
    const auto part = static_cast<LedgerPart>(i);
    if (is_computing(part)) {
      computing += totals[part];
    } else if (totals[part] > most) {
      most = totals[part];
      largest = part;
    }
  }
  verdict.bound_by = most > computing ? name_of(largest) : "compute";
  verdict.share = std::max(most, computing) / whole;
  if (most >= kWorthAdvice * whole && whole >= kShortRun) {
    verdict.advice = advice_on(largest, job);
    if (verdict.bound_by != name_of(largest)) {
      verdict.advice = fmt::format("{} takes {:.0f} %: {}", name_of(largest), 100 * most / whole,
                                   verdict.advice);
    }
  }
  return verdict;
}

Json ledger_json(const LedgerTotals& totals, const Job& job) {
  const LedgerVerdict verdict = verdict_of(totals, job);
  Json parts;
  for (int i = 0; i < kLedgerParts; ++i) {
    const auto part = static_cast<LedgerPart>(i);
    parts[name_of(part)] = rounded(totals[part], 1e6);
  }
  Json json = {{"seconds", rounded(totals.sum(), 1e6)}, {"parts", std::move(parts)}};
  if (verdict.bound_by.empty()) return json;
  json["bound_by"] = verdict.bound_by;
  json["share"] = rounded(verdict.share, 1e4);
  if (!verdict.advice.empty()) json["advice"] = verdict.advice;
  return json;
}

std::string ledger_text(const LedgerTotals& totals, const Job& job) {
  constexpr double kWorthNaming = 0.005;
  const LedgerVerdict verdict = verdict_of(totals, job);
  if (verdict.bound_by.empty()) return {};
  std::vector<std::string> shares;
  for (int i = 0; i < kLedgerParts; ++i) {
    const auto part = static_cast<LedgerPart>(i);
    const double share = totals[part] / totals.sum();
    if (share >= kWorthNaming) {
      shares.push_back(fmt::format("{} {:.0f} %", name_of(part), 100 * share));
    }
  }
  return fmt::format("time: {}; bound by {}: {:.0f} %{}{}", fmt::join(shares, ", "),
                     verdict.bound_by, 100 * verdict.share, verdict.advice.empty() ? "" : "; ",
                     verdict.advice);
}

}  // namespace dpt
