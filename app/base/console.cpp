#include "app/base/console.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "engine/config/secrets.h"
#include "kernels/base/error.h"
#include "kernels/base/message_writer.h"
#include "kernels/base/terminal.h"

namespace dpt {

void prepare_standard_streams() {
  // Turn a closed pipe and a file size limit into errors of write(2), which are handled.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // Check in ascending order, because open() returns the lowest free descriptor.
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // Writes to the null device fail if it is opened for reading.
    if (open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) != stream) {
      fail(ErrorKind::unexpected, "cannot open /dev/null: {}", std::strerror(errno));
    }
  }
}

void say(const std::string& text) noexcept {
  try {
    stderr_writer().write("dpt: " + with_coloured_kind(hide_secrets(text)) + "\n");
  } catch (const std::bad_alloc&) {
    stderr_writer().write("dpt: out of memory\n");
  }
}

bool results_are_lost() {
  return std::ferror(stdout) != 0 || !std::cout.good();
}

void flush_results() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && !results_are_lost()) return;
  fail(ErrorKind::data, "cannot write the results to stdout: {}",
       errno != 0 ? std::strerror(errno) : "a write failed");
}

}  // namespace dpt
