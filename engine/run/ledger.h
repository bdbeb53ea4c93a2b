// A ledger of a run's time: the wall time of rank 0's thread, in which every moment belongs to one
// part. Nothing waits for a device on its account.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/job/step.h"
#include "engine/run/run_log.h"

namespace dpt {

struct Job;

enum class LedgerPart : std::uint8_t {
  data,        ///< waiting for samples, the own ones or a slower rank's
  upload,      ///< handing a batch to the device
  forward,     ///< including the loss
  backward,    ///< including the sums of a rank's own gradients
  sum,         ///< over the ranks; with waiting for those that compute longer
  update,      ///< update of the weights
  evaluation,  ///< validation and test
  logging,     ///< the log, the progress bar, TensorBoard
  saving,      ///< the part for which steps wait: a thread of its own writes
  launching,   ///< queueing work for a device
  other
};
inline constexpr int kLedgerParts = 11;
/// "data", "upload", ...
const char* name_of(LedgerPart part);

struct LedgerTotals {
  std::array<double, kLedgerParts> seconds{};  ///< by LedgerPart
  double& operator[](LedgerPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double operator[](LedgerPart part) const { return seconds[static_cast<std::size_t>(part)]; }
  double sum() const;
};

/// Used by one thread. Its clock starts when it is made.
class Ledger {
 public:
  /// The time of its life belongs to `part`, but for that of scopes inside it. Null: does nothing.
  class Scope {
   public:
    Scope(Ledger* ledger, LedgerPart part) : ledger_(ledger) {
      if (ledger_) outer_ = ledger_->turn_to(static_cast<std::size_t>(part));
    }
    ~Scope() {
      if (ledger_) ledger_->turn_to(outer_);
    }
    Scope(const Scope&) = delete;

   protected:
    struct Device {};
    Scope(Ledger* ledger, Device) : ledger_(ledger) {
      if (ledger_) outer_ = ledger_->turn_to(kDevice);
    }

   private:
    Ledger* ledger_;
    std::size_t outer_ = 0;
  };
  /// The device works, and this thread with it or waiting for it: phases() tell what on.
  class DeviceScope : public Scope {
   public:
    explicit DeviceScope(Ledger* ledger) : Scope(ledger, Device{}) {}
  };

  /// Adds the phases of a timed step of the device, whose time is divided in proportion.
  void phases(const PhaseSeconds& seconds);
  /// Moves this part of the time of sums to data: it was waiting for ranks that waited for samples.
  void waited_for_data_of_others(double seconds);

  /// Since the last call, or the beginning.
  LedgerTotals take_interval();
  /// Since the beginning.
  LedgerTotals whole();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kDevice = kLedgerParts;
  using Seconds = std::array<double, kLedgerParts + 1>;
  struct Account {
    Seconds seconds{};
    PhaseSeconds phases{};
    double data_of_others = 0;
  };

  /// Books the time until now and returns the part to which it was booked.
  std::size_t turn_to(std::size_t part);
  LedgerTotals totals(const Account& account) const;
  /// Returns the time as this thread and the device have spent it.
  LedgerTotals parts_of(const Account& account) const;

  Clock::time_point turned_ = Clock::now();
  std::size_t part_ = static_cast<std::size_t>(LedgerPart::other);
  Account interval_, whole_;
};

/// Bottleneck of a run, and advice about the largest part that is not computing.
struct LedgerVerdict {
  std::string bound_by;  ///< a part's name, or "compute": forward, backward and update
  double share = 0;      ///< fraction of the whole time
  /// Begins with the part where that is not `bound_by`; empty where nothing but computing takes a
  /// tenth of the time.
  std::string advice;
};
LedgerVerdict verdict_of(const LedgerTotals& totals, const Job& job);

/// {"seconds": ..., "parts": {...}, "bound_by": ..., "share": ..., "advice": ...}:
/// docs/reference/log-format.md
Json ledger_json(const LedgerTotals& totals, const Job& job);

/// "time: data 62 %, forward 10 %, ...; bound by data: 62 %; raise data.workers, ...". Empty where
/// no time passed.
std::string ledger_text(const LedgerTotals& totals, const Job& job);

}  // namespace dpt
