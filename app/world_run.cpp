#include "app/world_run.h"

#include <unistd.h>

#include "app/command_support.h"
#include "app/console.h"
#include "kernels/error.h"

namespace dpt {

int run_in_world(const ProcessOptions& options, const std::function<int(ProcessGroup*)>& body) {
  const World world = detect_world(options.flags);
  if (world.alone()) return body(nullptr);
  ProcessGroup::Options group_options;
  group_options.join_timeout = std::chrono::seconds(parse_duration(options.join_timeout));
  group_options.warn = [](const std::string& text) { say(text); };
  group_options.end_process = [](const WorldFailure& failure) {
    say(fmt::format("error: {}", failure.text));
    _exit(static_cast<int>(ErrorKind::peer));
  };
  ProcessGroup processes(world, group_options);
  return processes.guard([&] {
    const int code = body(&processes);
    processes.leave();
    return code;
  });
}

}  // namespace dpt
