// History of a run from its log, for dpt report, whether or not the run finished.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/report/run_event.h"
#include "app/runs/run_facts.h"

namespace dpt {

struct CurvePoint {
  std::int64_t step = 0;
  double epoch = 0;  ///< epochs so far, with the fraction of the current one
  double value = 0;  ///< NaN for a non-finite number
};

/// One value over the run, in the order of steps.
struct Curve {
  std::string name;  ///< field of the log: "loss", "accuracy", "lr", ...
  std::string of;    ///< "train" (means of epochs), "val", "test", or "step" (of logged steps)
  std::vector<CurvePoint> points;
};

struct EpochEnd {
  std::int64_t step = 0, epoch = 0;
};

/// Time spent by activity; without parts if the log has none.
struct TimeLedger {
  std::vector<std::pair<std::string, double>> parts;  ///< seconds, in the order of the log
  double seconds = 0;
  std::string bound_by, advice;
  double share = 0;
  /// True if summed over the lines of the log: the run had several processes, or no summary.
  bool is_of_log = false;
};

struct RunHistory {
  RunFacts facts;
  std::string name;  ///< name in the config
  std::vector<std::string> devices;
  std::int64_t epochs = 0, epochs_planned = 0;  ///< completed and configured epochs; 0: unknown
  std::int64_t parameters = 0, train_samples = 0, val_samples = 0, test_samples = 0, batch_size = 0;
  std::int64_t starts = 0;       ///< number of processes that trained
  double seconds = 0;            ///< total, as far as the log states it; 0 = unknown
  double rate = 0;               ///< images/s of the last epoch, or of the last step; 0: unknown
  std::vector<Curve> curves;     ///< points of "test" are at the epoch whose weights were measured
  std::optional<EpochEnd> best;  ///< best epoch; unset if no best is kept
  std::vector<RunEvent> events;
  TimeLedger ledger;
  std::int64_t unreadable_lines = 0;  ///< lines of the log that could not be read
};

/// Throws ErrorKind::data if the folder cannot be read. REQUIRES: is_run_folder(folder).
RunHistory read_history(const std::string& folder);

}  // namespace dpt
