// metrics.jsonl and summary.json: what a script reads. Formats: docs/log-format.md.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace dpt {

using Json = nlohmann::ordered_json;

/// Appends one object a line. Numbers that are not finite become null and are named in
/// `nonfinite`. Each line is written whole, so that a crash shards whole lines.
class RunLog {
 public:
  /// Without a path, writes nothing.
  explicit RunLog(const std::string& path = {});
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  /// {"v":1,"event":EVENT, fields...}
  void event(const char* name, const Json& fields);

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace dpt
