// The job of `dpt train --smoke`: the config's model, loss, optimizer and transforms on a few
// synthetic samples.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"

namespace dpt {

struct SmokeJob {
  Job job;
  std::string samples;             ///< description of the samples
  std::vector<std::string> notes;  ///< parts of the config that are left out
};

/// Number of steps per epoch of a smoke test.
inline constexpr std::int64_t kSmokeSteps = 2;

/// Makes the job. Files that the config requests are created in `folder`. Opens no file of the data
/// set or of weights. Throws as load_spec and make_job do.
SmokeJob make_smoke_job(const std::string& config, const std::vector<std::string>& overrides,
                        const std::string& folder);

}  // namespace dpt
