#include "app/world_run.h"

#include <poll.h>
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
  group_options.end_process = [](const std::string& text, int exit_code) {
    // Not through the stream, which the thread that hangs may hold; nor for long.
    const std::string line = fmt::format("dpt: error: {}\n", text);
    pollfd messages = {2, POLLOUT, 0};
    [[maybe_unused]] ssize_t written = 0;
    if (poll(&messages, 1, 100) == 1) written = write(2, line.data(), line.size());
    _exit(exit_code);
  };
  ProcessGroup processes(world, group_options);
  return processes.guard([&] {
    const int code = body(&processes);
    processes.leave();
    return code;
  });
}

}  // namespace dpt
