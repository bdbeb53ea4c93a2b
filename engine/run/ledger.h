// A ledger of a run's time: it divides the wall time of rank 0's thread completely into parts. It
// never makes the thread wait for a device.
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
  data,        ///< waiting for samples: this rank's or a slower rank's
  upload,      ///< handing a batch to the device
  forward,     ///< including the loss
  backward,    ///< including the sums of a rank's own gradients
  sum,         ///< the sum over the ranks, including waiting for ranks that compute longer
  update,      ///< update of the weights
  evaluation,  ///< validation and test
  logging,     ///< the log, the progress bar, TensorBoard
  saving,      ///< the part for which steps wait; a separate thread writes
  launching,   ///< queueing work for a device
  other
};
inline constexpr int kLedgerParts = 11;
/// Returns the name of a part: "data", "upload", ...
const char* name_of(LedgerPart part);

struct LedgerTotals {
  std::array<double, kLedgerParts> seconds{};  ///< by LedgerPart
  double& operator[](LedgerPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double operator[](LedgerPart part) const { return seconds[static_cast<std::size_t>(part)]; }
  double sum() const;
};

/// Used by one thread. Its clock starts when it is constructed.
class Ledger {
 public:
  /// Assigns its lifetime to `part`, except for the time of scopes inside it. Does nothing if the
  /// ledger is null.
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
  /// Scope of the time in which the device works and this thread works with the device or waits for
  /// it. phases() divides that time.
  class DeviceScope : public Scope {
   public:
    explicit DeviceScope(Ledger* ledger) : Scope(ledger, Device{}) {}
  };

  /// Adds the phases of a timed step of the device. The device's time is divided in proportion to
  /// them.
  void phases(const PhaseSeconds& seconds);
  /// Moves `seconds` from the part `sum` to the part `data`: they were spent waiting for ranks that
  /// waited for samples.
  void waited_for_data_of_others(double seconds);

  /// Returns the times since the last call, or since the beginning if there was none.
  LedgerTotals take_interval();
  /// Returns the times since the beginning.
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

  /// Books the time until now to the current part, and makes `part` the current one. Returns the
  /// former part.
  std::size_t turn_to(std::size_t part);
  LedgerTotals totals(const Account& account) const;
  /// Returns the times with the device's time divided into phases.
  LedgerTotals parts_of(const Account& account) const;

  Clock::time_point turned_ = Clock::now();
  std::size_t part_ = static_cast<std::size_t>(LedgerPart::other);
  Account interval_, whole_;
};

/// Bottleneck of a run, and advice about the largest part other than computing.
struct LedgerVerdict {
  std::string bound_by;  ///< a part's name, or "compute": forward, backward and update
  double share = 0;      ///< fraction of the whole time
  /// Advice about that part. Begins with the part's name unless `bound_by` names it. Empty if the
  /// part takes less than a tenth of the time, or the whole time is less than 1 s.
  std::string advice;
};
LedgerVerdict verdict_of(const LedgerTotals& totals, const Job& job);

/// Returns the ledger as {"seconds": ..., "parts": {...}, "bound_by": ..., "share": ..., "advice":
/// ...}; see docs/reference/log-format.md.
Json ledger_json(const LedgerTotals& totals, const Job& job);

/// Returns "time: data 62 %, forward 10 %, ...; bound by data: 62 %; raise data.workers, ...".
/// Empty if no time has passed.
std::string ledger_text(const LedgerTotals& totals, const Job& job);

}  // namespace dpt
