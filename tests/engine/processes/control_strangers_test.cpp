// Connections that a world refuses: its own processes with settings that do not fit, and anything
// else that connects to its port.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "engine/processes/control.h"
#include "engine/processes/world.h"
#include "tests/engine/processes/control_world.h"

namespace dpt::testing {
namespace {

/// A client that connects but is not dpt.
class Stranger {
 public:
  explicit Stranger(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  Stranger(const Stranger&) = delete;
  ~Stranger() { ::close(socket_); }

  bool is_connected() const { return is_connected_; }
  void send(const std::string& bytes) const {
    ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Sends a message: its length and its text.
  void send_message(const std::string& text) const {
    const std::uint32_t size = htonl(static_cast<std::uint32_t>(text.size()));
    std::string bytes(sizeof size, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    send(bytes + text);
  }
  /// Returns true if the other end closes the connection; appends the text received until then to
  /// `said`.
  bool ends(std::string* said = nullptr) const {
    pollfd one{socket_, POLLIN, 0};
    char bytes[4096];
    while (::poll(&one, 1, 1000 * static_cast<int>(kLong.count())) > 0) {
      const ssize_t count = ::recv(socket_, bytes, sizeof bytes, 0);
      if (count <= 0) return true;
      if (said) said->append(bytes, static_cast<std::size_t>(count));
    }
    return false;
  }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool is_connected_ = false;
};

/// A server that never answers, or always gives the same answer.
class OtherServer {
 public:
  OtherServer(int port, std::string answer) : socket_(listening_socket(port)) {
    if (answer.empty()) return;
    thread_ = std::thread([this, answer] {
      for (;;) {
        const int one = ::accept(socket_, nullptr, nullptr);
        if (one < 0) return;
        ::send(one, answer.data(), answer.size(), MSG_NOSIGNAL);
        ::close(one);
      }
    });
  }
  OtherServer(const OtherServer&) = delete;
  ~OtherServer() {
    ::shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(socket_);
  }

 private:
  int socket_;
  std::thread thread_;
};

/// Collects the warnings for the user.
class Warnings {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  int count(const std::string& part) const {
    int found = 0;
    for (const std::string& line : lines()) found += contains(line, part) ? 1 : 0;
    return found;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::function<std::string()> joins(const World& world, const ControlOptions& options) {
  return [world, options] {
    const auto channel = ControlChannel::join(world, options);
    channel->leave();
    return "left";
  };
}

ControlOptions impatient(std::chrono::milliseconds join_timeout) {
  ControlOptions options = quick_options();
  options.join_timeout = join_timeout;
  return options;
}

}  // namespace

TEST_CASE("those that did not join in time are named, with those that came") {
  const std::vector<int> ports = free_ports(2);
  std::vector<std::function<std::string()>> bodies;
  for (const int rank : {0, 1, 5}) {
    // The other ranks wait until rank 0 gives up, although their own limit is longer.
    bodies.push_back(joins(local_world(rank, 6, ports), impatient(rank == 0 ? 700ms : 60s)));
  }
  for (const Outcome& outcome : run_all(bodies)) {
    CAPTURE(outcome.text);
    CHECK(outcome.kind == kPeer);
    CHECK(contains(outcome.text,
                   "ranks 2 to 4 did not join within 0.7 s; 3 of 6 processes joined: "
                   "rank 0 (host host0), rank 1 (host host1), rank 5 (host host5)"));
  }
}

TEST_CASE("without rank 0, the addresses that were tried are named") {
  const std::vector<int> ports = free_ports(2);
  World elsewhere = local_world(1, 2, ports);
  elsewhere.local_size = 1;
  elsewhere.coordinator = "no-such-machine.invalid";
  const auto outcomes = run_all(
      {joins(local_world(1, 2, ports), impatient(300ms)), joins(elsewhere, impatient(300ms))});
  CHECK(outcomes[0].kind == kPeer);
  CHECK(contains(outcomes[0].text, "rank 1 (host host1) did not reach rank 0 at this machine"));
  for (const int port : ports) {
    CHECK(contains(outcomes[0].text, "127.0.0.1:" + std::to_string(port) + ": Connection refused"));
  }
  CHECK(outcomes[1].kind == kPeer);
  CHECK(contains(outcomes[1].text, "the name 'no-such-machine.invalid' of rank 0's machine: "));
}

TEST_CASE("rank 0 that cannot listen says where it tried") {
  const std::vector<int> ports = free_ports(2);
  const OtherServer one(ports[0], ""), two(ports[1], "");
  const auto outcomes = run_all({joins(local_world(0, 2, ports), quick_options())});
  CHECK(outcomes[0].kind == kUsage);
  for (const int port : ports) {
    CHECK(contains(outcomes[0].text,
                   "127.0.0.1:" + std::to_string(port) + ": Address already in use"));
  }
}

TEST_CASE("processes find rank 0 even if other programs listen on their ports") {
  const std::vector<int> ports = free_ports(4);
  const OtherServer silent(ports[0], ""), talks(ports[1], "SSH-2.0-OpenSSH_9.2p1\r\n"),
      json(ports[2], std::string("\0\0\0\x0d{\"type\":\"no\"}", 17));
  ControlOptions options = impatient(16s);
  std::vector<std::function<std::string()>> bodies;
  for (int rank = 0; rank < 3; ++rank) {
    options.join_timeout = rank == 1 ? 4s : 60s;  // rank 1 does not wait long for the silent server
    World world = local_world(rank, 3, ports);
    if (rank == 2) std::rotate(world.ports.begin(), world.ports.begin() + 1, world.ports.end());
    bodies.push_back(joins(world, options));
  }
  for (const Outcome& outcome : run_all(bodies)) {
    CAPTURE(outcome.text);
    CHECK(outcome.kind == 0);
    CHECK(outcome.text == "left");
  }
}

TEST_CASE("rank 0 is found by an address and by a name") {
  for (const std::string coordinator : {"127.0.0.1", "localhost"}) {
    const std::vector<int> ports = free_ports(2);
    Warnings warnings;
    ControlOptions options = quick_options();
    options.warn = warnings.sink();
    std::vector<std::function<std::string()>> bodies;
    for (int rank = 0; rank < 2; ++rank) {
      World world = local_world(rank, 2, ports);
      world.local_rank = 0;
      world.local_size = 1;
      world.coordinator = coordinator;
      bodies.push_back(joins(world, options));
    }
    for (const Outcome& outcome : run_all(bodies)) {
      CAPTURE(outcome.text);
      CHECK(outcome.text == "left");
    }
    CHECK(warnings.lines().empty());
  }
}

TEST_CASE("two jobs on the same ports find their own rank 0") {
  const std::vector<int> ports = free_ports(3);
  std::vector<std::function<std::string()>> bodies;
  for (const std::string job : {"one", "other"}) {
    for (int rank = 0; rank < 3; ++rank) {
      World world = local_world(rank, 3, ports);
      world.job = job;
      bodies.emplace_back([world]() -> std::string {
        const auto channel = ControlChannel::join(world, quick_options());
        std::string jobs;
        for (const std::string& its : channel->all_gather("jobs", world.job)) jobs += its + " ";
        channel->leave();
        return jobs;
      });
    }
  }
  const auto outcomes = run_all(bodies);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(outcomes[i].text == (i < 3 ? "one one one " : "other other other "));
  }
}

TEST_CASE("two processes of one rank: both are named to all") {
  const std::vector<int> ports = free_ports(2);
  std::vector<std::function<std::string()>> bodies;
  for (int rank = 0; rank < 3; ++rank) {
    World world = local_world(rank == 2 ? 1 : rank, 3, ports);
    world.host = "machine" + std::to_string(rank);
    bodies.push_back(joins(world, quick_options()));
  }
  for (const Outcome& outcome : run_all(bodies)) {
    CAPTURE(outcome.text);
    CHECK(outcome.kind == kUsage);
    CHECK(contains(outcome.text, "two processes claim to be rank 1: pid "));
    CHECK(contains(outcome.text, " on host machine1"));
    CHECK(contains(outcome.text, " on host machine2"));
  }
}

TEST_CASE("another size, and a rank outside of it: both sides are named to all") {
  for (const bool other_size : {true, false}) {
    const std::vector<int> ports = free_ports(2);
    World wrong = local_world(1, 3, ports);
    if (other_size) {
      wrong.size = wrong.local_size = 4;
    } else {
      wrong.rank = 3;
    }
    const auto outcomes =
        run_all({joins(local_world(0, 3, ports), quick_options()), joins(wrong, quick_options())});
    for (const Outcome& outcome : outcomes) {
      CAPTURE(outcome.text);
      CHECK(outcome.kind == kUsage);
      CHECK(contains(outcome.text, other_size ? "rank 1 (host host1, pid " : "rank 3 (host host1"));
      CHECK(contains(outcome.text, "rank 0 (host host0, pid "));
      CHECK(contains(outcome.text, other_size ? "was started in a world of 4 processes"
                                              : "the ranks of a world of 3 are 0 to 2"));
    }
  }
}

TEST_CASE("another token or job is refused with a warning, and the run continues") {
  const std::vector<int> ports = free_ports(2);
  Warnings warnings;
  ControlOptions options = quick_options();
  options.warn = warnings.sink();
  World other_token = local_world(1, 2, ports), other_job = other_token;
  other_token.token = "a secreT";
  other_job.job = "job 8";
  std::atomic<int> refused{0};
  const auto strange = [&](const World& world) {
    return [&, world]() -> std::string {
      try {
        ControlChannel::join(world, impatient(700ms));
      } catch (...) {
        ++refused;
        throw;
      }
      return "joined";
    };
  };
  const auto outcomes = run_all(
      {joins(local_world(0, 2, ports), options), strange(other_token), strange(other_job), [&] {
         while (refused < 2) std::this_thread::sleep_for(1ms);
         return joins(local_world(1, 2, ports), quick_options())();
       }});
  CHECK(outcomes[0].text == "left");
  CHECK(outcomes[3].text == "left");
  CHECK(outcomes[1].kind == kUsage);
  CHECK(contains(outcomes[1].text,
                 "refused: the job that listens there has another token (DPT_TOKEN)"));
  CHECK(!contains(outcomes[1].text, "a secre"));
  CHECK(outcomes[2].kind == kUsage);
  CHECK(contains(outcomes[2].text, "refused: another job runs there"));
  CHECK(warnings.count("127.0.0.1:") >= 2);
  CHECK(warnings.count("it is a dpt process with another token (DPT_TOKEN)") >= 1);
  CHECK(warnings.count("it is a dpt process of another job") >= 1);
  CHECK(warnings.count("a secre") == 0);
}

TEST_CASE("the reason of a refusal is kept after rank 0 has gone") {
  const std::vector<int> ports = free_ports(1);
  World other_token = local_world(1, 2, ports);
  other_token.token = "a secreT";
  std::atomic<bool> is_over{false};
  const auto outcomes = run_all({[&]() -> std::string {
                                   std::string text = "joined";
                                   try {
                                     ControlChannel::join(local_world(0, 2, ports), impatient(1s));
                                   } catch (const Error& error) {
                                     text = error.what();
                                   }
                                   is_over = true;
                                   return text;
                                 },
                                 joins(other_token, impatient(4s))});
  CHECK(is_over);
  CHECK(contains(outcomes[0].text, "did not join"));
  CHECK(outcomes[1].kind == kUsage);
  CHECK(contains(outcomes[1].text,
                 "refused: the job that listens there has another token (DPT_TOKEN)"));
}

TEST_CASE("a complete world without a name is not harmed by another on its ports") {
  const std::vector<int> ports = free_ports(1);
  std::atomic<bool> is_refused{false};
  const auto nameless = [&](int rank, int size) {
    World world = local_world(rank, size, ports);
    world.token = world.job = "";
    return world;
  };
  std::atomic<int> there{0};
  const auto member = [&](int rank) {
    return [&, rank]() -> std::string {
      const auto channel = ControlChannel::join(nameless(rank, 2), quick_options());
      ++there;
      while (!is_refused) std::this_thread::sleep_for(1ms);
      channel->leave();
      return "left";
    };
  };
  const auto outcomes = run_all({member(0), member(1), [&]() -> std::string {
                                   while (there < 2) std::this_thread::sleep_for(1ms);
                                   std::string text = "joined";
                                   try {
                                     ControlChannel::join(nameless(2, 3), impatient(500ms));
                                   } catch (const Error& error) {
                                     text = error.what();
                                   }
                                   is_refused = true;
                                   return text;
                                 }});
  CHECK(outcomes[0].text == "left");
  CHECK(outcomes[1].text == "left");
  CHECK(contains(outcomes[2].text, "the job that listens there already has all of its processes"));
}

TEST_CASE("rank 0 names the connections that it refused when a process does not join") {
  const std::vector<int> ports = free_ports(1);
  World other = local_world(1, 2, ports);
  other.token = "another secret";
  const auto outcomes =
      run_all({joins(local_world(0, 2, ports), impatient(3s)), joins(other, impatient(700ms))});
  CHECK(outcomes[0].kind == kPeer);
  CHECK(contains(outcomes[0].text, "rank 1 did not join within 3.0 s"));
  CHECK(contains(outcomes[0].text, "and has refused "));
  CHECK(contains(outcomes[0].text, ": it is a dpt process with another token (DPT_TOKEN)"));
  CHECK(outcomes[1].kind == kUsage);
}

TEST_CASE("more silent strangers than are kept keep no process out") {
  const std::vector<int> ports = free_ports(1);
  Warnings warnings;
  ControlOptions options = quick_options();
  options.join_timeout = kLong;
  options.warn = warnings.sink();
  std::vector<std::unique_ptr<Stranger>> silent;
  const auto outcomes = run_all({joins(local_world(0, 2, ports), options), [&]() -> std::string {
                                   while (silent.size() < 200) {
                                     auto one = std::make_unique<Stranger>(ports[0]);
                                     if (one->is_connected()) silent.push_back(std::move(one));
                                   }
                                   return joins(local_world(1, 2, ports), options)();
                                 }});
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(outcome.text == "left");
  }
  CHECK(warnings.count("it did not identify itself, and too many others connected") > 0);
}

TEST_CASE("strangers are refused and counted, and the run is unharmed") {
  const std::vector<int> ports = free_ports(1);
  Warnings warnings;
  ControlOptions options = impatient(2s);  // the time that a connection may stay silent
  options.warn = warnings.sink();
  std::atomic<bool> is_over{false};
  std::atomic<int> there{0};
  const auto member = [&](int rank) {
    return [&, rank]() -> std::string {
      const auto channel = ControlChannel::join(local_world(rank, 2, ports), options);
      ++there;
      // All processes see the end in the same call.
      while (channel->all_gather("is it over", is_over ? "yes" : "no")[0] != "yes") {
        std::this_thread::sleep_for(1ms);
      }
      channel->leave();
      return "left";
    };
  };
  constexpr int kScans = 40, kSilent = 63;
  const std::string hello =
      R"({"type":"hello","magic":"dpt-control","protocol":1,"job":"job 7","rank":1e99,"size":2,)"
      R"("host":"x","pid":1,"token":")";
  const std::vector<std::string> messages = {
      "no JSON",
      "[" + std::string(4000, '['),
      "{}",
      "[1, 2]",
      R"({"type":"hello","magic":7})",
      R"({"type":"beat","place":"","waits_in":"","progress":0,"quiet":0})",
      hello + "a secret\"}",  // the right token, but an invalid rank
      hello + "\"}",
      hello + R"(a secreta secret"})",
  };
  std::atomic<int> ended{0};
  const auto outcomes = run_all({member(0), member(1), [&]() -> std::string {
                                   while (there < 2) std::this_thread::sleep_for(1ms);
                                   const int port = ports[0];
                                   const Stranger web(port), huge(port), half(port);
                                   web.send("GET / HTTP/1.1\r\n\r\n");
                                   huge.send("\x40");
                                   huge.send(std::string(3, '\0'));
                                   half.send("\x01");
                                   if (web.ends()) ++ended;
                                   if (huge.ends()) ++ended;
                                   for (int i = 0; i < kScans; ++i) {
                                     CHECK(Stranger(port).is_connected());
                                   }
                                   for (const std::string& text : messages) {
                                     const Stranger one(port);
                                     one.send_message(text);
                                     if (one.ends()) ++ended;
                                   }
                                   // With `half`, these connections reach the limit: the next one
                                   // closes the oldest.
                                   std::vector<std::unique_ptr<Stranger>> silent;
                                   for (int i = 0; i < kSilent; ++i) {
                                     silent.push_back(std::make_unique<Stranger>(port));
                                   }
                                   const Stranger last(port);
                                   last.send_message("{}");
                                   for (const auto& one : silent) {
                                     if (one->ends()) ++ended;
                                   }
                                   if (half.ends()) ++ended;
                                   if (last.ends()) ++ended;
                                   is_over = true;
                                   return "";
                                 }});
  CHECK(outcomes[0].text == "left");
  CHECK(outcomes[1].text == "left");
  CHECK(ended == 2 + static_cast<int>(messages.size()) + kSilent + 2);
  // The first twenty refusals are reported, and the hundredth.
  REQUIRE(warnings.lines().size() == 21);
  CHECK(warnings.count("(1073741824 bytes of at most 4096)") == 1);
  CHECK(
      contains(warnings.lines()[0], "refused a connection to the control channel from 127.0.0.1:"));
  CHECK(contains(warnings.lines()[20], "(100 refused so far)"));
}

}  // namespace dpt::testing
