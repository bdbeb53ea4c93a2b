#include "kernels/base/message_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

using dpt::MessageWriter;

namespace {

/// A pipe whose write end blocks and whose read end does not.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  }
  ~Pipe() {
    close_reader();
    close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) close(ends[0]);
    ends[0] = -1;
  }
  std::string read_all() const {
    std::string text, piece(1 << 16, '\0');
    for (ssize_t got; (got = read(ends[0], piece.data(), piece.size())) > 0;) {
      text.append(piece, 0, static_cast<std::size_t>(got));
    }
    return text;
  }
  void fill() const {
    REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
    const std::string page(4096, 'x');
    while (write(ends[1], page.data(), page.size()) > 0) {
    }
    REQUIRE(fcntl(ends[1], F_SETFL, 0) == 0);
  }
};

constexpr std::chrono::milliseconds kShort{20};

}  // namespace

TEST_CASE("messages that nobody takes are dropped, counted, and reported with the next") {
  const Pipe pipe;
  MessageWriter writer(pipe.ends[1], kShort);
  writer.write("first\n");
  CHECK(pipe.read_all() == "first\n");
  pipe.fill();
  writer.write("lost\n");
  writer.write("lost too\n");
  writer.write_if_ready("a bar");
  CHECK(pipe.read_all().find("lost") == std::string::npos);
  writer.write_if_ready("a bar");  // not written: it would hide that lines are missing
  writer.write("shown\n");
  CHECK(pipe.read_all() ==
        "dpt: 2 messages before this line are not shown: nobody read stderr for 0.02 s\nshown\n");
  writer.write("next\n");
  writer.write_if_ready("a bar");
  CHECK(pipe.read_all() == "next\na bar");
}

TEST_CASE("a message longer than a pipe takes at once arrives whole while it is read") {
  const Pipe pipe;
  MessageWriter writer(pipe.ends[1], kShort);
  std::string text(50000, 'a');
  text.back() = '\n';
  writer.write(text);
  CHECK(pipe.read_all() == text);
}

TEST_CASE("a message is waited for again once its reader reads the notice before it") {
  Pipe pipe;
  // The pipe takes one part of a message at a time.
  REQUIRE(fcntl(pipe.ends[1], F_SETPIPE_SZ, 4096) >= 0);
  MessageWriter writer(pipe.ends[1], std::chrono::seconds(3));
  pipe.fill();
  writer.write("lost\n");
  CHECK(pipe.read_all().find("lost") == std::string::npos);
  REQUIRE(fcntl(pipe.ends[0], F_SETFL, 0) == 0);
  std::string text;
  std::thread reader([&] {
    for (char c = 0; text.find("shown\n") == std::string::npos && read(pipe.ends[0], &c, 1) == 1;) {
      text += c;
    }
  });
  writer.write("shown\n");
  writer.write("shown\n");
  reader.join();
  CHECK(text ==
        "dpt: 1 message before this line is not shown: nobody read stderr for 3 s\nshown\n");
}

TEST_CASE("a reader that is gone costs nothing") {
  Pipe pipe;
  MessageWriter writer(pipe.ends[1], std::chrono::hours(1));
  pipe.close_reader();
  const auto before = signal(SIGPIPE, SIG_IGN);
  writer.write("nobody\n");
  writer.write("nobody\n");
  signal(SIGPIPE, before);
  MessageWriter closed(-1, std::chrono::hours(1));
  closed.write_if_ready("nobody");
}
