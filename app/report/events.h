// The events of a run, from the lines of its log.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "app/report/run_event.h"

namespace dpt {

/// Reader for the lines of metrics.jsonl, in order. For a frequent kind of event, reports the first
/// ones and the number of the others.
class EventReader {
 public:
  void add(const std::string& event, const nlohmann::ordered_json& line);
  std::vector<RunEvent> take();

 private:
  void tell(RunEvent::Weight weight, const nlohmann::ordered_json& line, std::string words);
  bool is_one_too_many(const std::string& event);

  std::vector<RunEvent> events_;
  std::vector<std::pair<std::string, std::int64_t>> counts_;
  std::int64_t last_step_ = -1;  ///< last step of any line so far
};

/// Adds the warnings of train.log, each text once.
void add_warnings(std::istream& messages, std::vector<RunEvent>& events);

}  // namespace dpt
