// The proofs that the ends of the control channel exchange, and a process that connects to
// something other than rank 0 of its run.
#include "engine/processes/control_handshake.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "engine/processes/control.h"
#include "engine/processes/control_types.h"
#include "engine/processes/world.h"
#include "kernels/base/stop_request.h"
#include "tests/engine/processes/control_world.h"

namespace dpt::testing {
namespace {

using control::Handshake;
using nlohmann::json;

/// One end of a connection on which a test speaks the channel's messages by hand.
class Talk {
 public:
  explicit Talk(int socket) : socket_(socket) {}
  static Talk to(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // The other end may not be listening yet.
    while (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      std::this_thread::sleep_for(1ms);
    }
    return Talk(socket);
  }
  Talk(Talk&& other) noexcept : heard(std::move(other.heard)), socket_(other.socket_) {
    other.socket_ = -1;
  }
  ~Talk() {
    if (socket_ >= 0) ::close(socket_);
  }

  void send(const json& head, const std::string& bytes = {}) const {
    std::string text = head.dump();
    if (!bytes.empty()) text += '\0' + bytes;
    const std::uint32_t size = htonl(static_cast<std::uint32_t>(text.size()));
    std::string frame(sizeof size, '\0');
    std::memcpy(frame.data(), &size, sizeof size);
    frame += text;
    ::send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL);
  }
  /// Returns the next message of this type; nothing if the connection ends.
  std::optional<json> next(const std::string& type) {
    for (;;) {
      std::uint32_t size = 0;
      if (::recv(socket_, &size, sizeof size, MSG_WAITALL) != sizeof size) return std::nullopt;
      std::string text(ntohl(size), '\0');
      if (::recv(socket_, text.data(), text.size(), MSG_WAITALL) !=
          static_cast<ssize_t>(text.size())) {
        return std::nullopt;
      }
      heard += text;
      json head = json::parse(text.substr(0, text.find('\0')), nullptr, false);
      if (type.empty() || head.value("type", "") == type) return head;
    }
  }
  void wait_for_end() {
    while (next("")) {
    }
  }
  std::string heard;

 private:
  int socket_ = -1;
};

/// Listens in place of rank 0, and runs the same conversation with each peer that connects, one
/// after the other.
class FakeRank0 {
 public:
  FakeRank0(int port, std::function<void(Talk&)> converse)
      : converse_(std::move(converse)), socket_(listening_socket(port)) {
    thread_ = std::thread([this] {
      for (;;) {
        const int one = ::accept(socket_, nullptr, nullptr);
        if (one < 0) return;
        Talk talk(one);
        converse_(talk);
        const std::lock_guard lock(mutex_);
        heard_ += talk.heard;
      }
    });
  }
  ~FakeRank0() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }
  std::string heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

 private:
  std::function<void(Talk&)> converse_;
  int socket_;
  std::mutex mutex_;
  std::string heard_;
  std::thread thread_;
};

const std::string kNonce = "00112233445566778899aabbccddeeff";

/// Performs rank 0's part of the handshake, with a proof made from `token`. Returns false if the
/// peer has closed the connection.
bool welcome(Talk& talk, const std::string& token,
             const json& answer = {{"type", "welcome"}, {"host", "fake"}, {"pid", 17}}) {
  const auto greeting = talk.next("greeting");
  if (!greeting) return false;
  talk.send({{"type", "challenge"}, {"nonce", kNonce}});
  const auto hello = talk.next("hello");
  if (!hello) return false;
  const Handshake handshake{token, greeting->at("nonce"), kNonce};
  json proven = answer;
  proven["proof"] = handshake.proof(ProofRole::accepts, hello->at("rank"));
  talk.send(proven);
  return true;
}

ControlOptions waits(std::chrono::milliseconds join_timeout) {
  ControlOptions options = quick_options();
  options.join_timeout = join_timeout;
  return options;
}

std::function<std::string()> joins_and_leaves(const World& world, const ControlOptions& options) {
  return [world, options] {
    const auto channel = ControlChannel::join(world, options);
    channel->leave();
    return "left";
  };
}

World nameless(int rank, int size, const std::vector<int>& ports) {
  World world = local_world(rank, size, ports);
  world.token = world.job = "";
  return world;
}

}  // namespace

TEST_CASE("the token is never sent, and a program without it cannot take the place of rank 0") {
  const World world = local_world(1, 2, free_ports(1));
  for (const json& answer :
       {json{{"type", "welcome"}, {"host", "fake"}, {"pid", 17}},
        json{
            {"type", "failure"}, {"rank", 0}, {"text", "no"}, {"is_lost", false}, {"exit_code", 3}},
        json{{"type", "refused"}, {"kind", "usage"}, {"why", "no"}}}) {
    FakeRank0 fake(world.ports[0], [&](Talk& talk) {
      if (welcome(talk, "a guess", answer)) talk.wait_for_end();
    });
    const Outcome outcome = run_all({joins_and_leaves(world, waits(1500ms))})[0];
    CAPTURE(outcome.text);
    const bool is_refused = answer.at("type") == "refused";
    CHECK(outcome.kind == (is_refused ? kUsage : kPeer));
    CHECK(contains(outcome.text, "did not reach rank 0"));
    CHECK(contains(outcome.text, is_refused ? "refused: no" : "does not know the token"));
    CHECK(contains(fake.heard(), "\"hello\""));
    CHECK_FALSE(contains(fake.heard(), world.token));
  }
}

TEST_CASE("a proof is valid for its own connection and its own end only") {
  const std::vector<int> ports = free_ports(1);
  const std::string expected = "the job that listens there has another token (DPT_TOKEN)";
  std::atomic<int> refused{0};
  const auto outcomes =
      run_all({joins_and_leaves(local_world(0, 2, ports), quick_options()), [&] {
                 std::string seen;  // proof for the first connection, which is closed
                 for (int round = 0; round < 3; ++round) {
                   Talk talk = Talk::to(ports[0]);
                   talk.send({{"type", "greeting"}, {"magic", "dpt-control"}, {"nonce", kNonce}});
                   const auto challenge = talk.next("challenge");
                   REQUIRE(challenge);
                   const Handshake handshake{"a secret", kNonce, challenge->at("nonce")};
                   const std::string own = handshake.proof(ProofRole::connects, 1);
                   // The second connection sends the proof for the first one. The third sends a
                   // proof that only the other end may send.
                   const std::string proof = round == 0   ? own
                                             : round == 1 ? seen
                                                          : handshake.proof(ProofRole::accepts, 1);
                   if (round == 0) {
                     seen = own;
                     continue;
                   }
                   talk.send({{"type", "hello"},
                              {"protocol", 3},
                              {"job", "job 7"},
                              {"rank", 1},
                              {"size", 5},
                              {"host", "h"},
                              {"pid", 1},
                              {"proof", proof}});
                   const auto answer = talk.next("refused");
                   REQUIRE(answer);
                   CHECK(answer->at("why") == expected);
                   CHECK_FALSE(answer->contains("proof"));
                   ++refused;
                 }
                 return joins_and_leaves(local_world(1, 2, ports), quick_options())();
               }});
  CHECK(refused == 2);
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.text);
    CHECK(outcome.text == "left");
  }
}

TEST_CASE("a process of an older dpt gets a message, and harms nothing") {
  const std::vector<int> ports = free_ports(1);
  const auto outcomes = run_all(
      {joins_and_leaves(local_world(0, 2, ports), quick_options()), [&] {
         Talk talk = Talk::to(ports[0]);
         talk.send(
             {{"type", "hello"}, {"magic", "dpt-control"}, {"protocol", 2}, {"token", "a secret"}});
         const auto answer = talk.next("refused");
         REQUIRE(answer);
         CHECK(
             contains(answer->at("why").get<std::string>(), "All processes must run the same dpt"));
         return joins_and_leaves(local_world(1, 2, ports), quick_options())();
       }});
  for (const Outcome& outcome : outcomes) CHECK(outcome.text == "left");
}

TEST_CASE(
    "without token and name, a process of another run is refused alone, and the run goes on") {
  const std::vector<int> ports = free_ports(1);
  ControlOptions options = quick_options();
  options.run = {"train a.yaml", "o", "path a", "content a"};
  std::vector<std::string> warnings;
  std::mutex mutex;
  ControlOptions of_rank_0 = options;
  of_rank_0.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    warnings.push_back(line);
  };
  std::atomic<int> refused{0};
  const auto stranger = [&](int size, const RunIdentity& run) {
    return [&, size, run] {
      ControlOptions its = waits(1500ms);
      its.run = run;
      try {
        ControlChannel::join(nameless(1, size, ports), its);
      } catch (...) {
        ++refused;
        throw;
      }
      return std::string("joined");
    };
  };
  const auto outcomes =
      run_all({joins_and_leaves(nameless(0, 3, ports), of_rank_0), stranger(4, options.run),
               stranger(3, {"train b\x1b.yaml", "o", "path b", "content b"}),
               stranger(3, {"train a.yaml", "p", "path a", "content a"}),
               [&] {
                 while (refused < 3) std::this_thread::sleep_for(1ms);
                 // Processes of the run may join although their copy of the config has another path
                 // or other content.
                 ControlOptions its = options;
                 its.run.config = "path on another machine";
                 return joins_and_leaves(nameless(1, 3, ports), its)();
               },
               [&] {
                 while (refused < 3) std::this_thread::sleep_for(1ms);
                 ControlOptions its = options;
                 its.run.content = "out of date";
                 return joins_and_leaves(nameless(2, 3, ports), its)();
               }});
  for (const std::size_t of_run : {0, 4, 5}) {
    CAPTURE(outcomes[of_run].text);
    CHECK(outcomes[of_run].text == "left");
  }
  for (const std::size_t other : {1, 2, 3}) {
    CAPTURE(outcomes[other].text);
    CHECK(outcomes[other].kind == kUsage);
    CHECK(contains(outcomes[other].text,
                   "refused: another run listens there (train a.yaml on host host0, pid "));
  }
  CHECK(contains(outcomes[1].text, "it was started in a world of 4 processes, but this run has 3"));
  CHECK(contains(outcomes[2].text, "it runs train b\\x1b.yaml with another config"));
  CHECK(contains(outcomes[3].text, "with other options"));
  // Each refused process is reported once, however often it tries.
  CHECK(warnings.size() == 3);
}

TEST_CASE("refused processes of other runs are named when the run does not become complete") {
  const std::vector<int> ports = free_ports(1);
  World other = nameless(2, 4, ports);
  other.host = "elsewhere\x1b[2J";
  const auto outcomes = run_all(
      {joins_and_leaves(nameless(0, 2, ports), waits(3s)), joins_and_leaves(other, waits(1500ms))});
  CAPTURE(outcomes[0].text);
  CHECK(outcomes[0].kind == kPeer);
  CHECK(contains(outcomes[0].text, "rank 1 did not join within 3.0 s"));
  CHECK(contains(outcomes[0].text,
                 "Refused as members of another run: rank 2 (host elsewhere\\x1b[2J, pid "));
  CHECK(contains(outcomes[0].text, "it was started in a world of 4 processes, but this run has 2"));
  CHECK(outcomes[0].text.find('\x1b') == std::string::npos);
}

TEST_CASE("invalid messages of rank 0 end the run as a lost rank 0 does") {
  const World world = local_world(1, 2, free_ports(1));
  const std::vector<std::pair<json, std::string>> messages = {
      {{{"type", "gathered"}, {"sizes", {1, 99}}}, "ab"},
      {{{"type", "gathered"}, {"sizes", {2}}}, "ab"},
      {{{"type", "gathered"}, {"sizes", {1, 1, 1}}}, "abc"},
      {{{"type", "gathered"}, {"sizes", {1, -1}}}, "a"},
      {{{"type", "gathered"}, {"sizes", {1, 18446744073709551615U}}}, "a"},
      {{{"type", "gathered"}, {"sizes", {1, 1}}}, "abc"},
      {{{"type", "gathered"}, {"sizes", "ab"}}, "ab"},
      {{{"type", "gathered"}}, "ab"},
      {{{"type", 7}}, ""},
      {{{"type", "failure"}, {"text", "x"}}, ""}};
  for (const auto& [head, bytes] : messages) {
    FakeRank0 fake(world.ports[0], [&](Talk& talk) {
      if (!welcome(talk, world.token) || !talk.next("present")) return;
      talk.send({{"type", "joined"}});
      if (talk.next("gather")) talk.send(head, bytes);
      talk.wait_for_end();
    });
    const Outcome outcome = run_all({[&] {
      const auto channel = ControlChannel::join(world, quick_options());
      return channel->all_gather("hosts", "b")[0];
    }})[0];
    CAPTURE(head.dump());
    CAPTURE(outcome.text);
    CHECK(outcome.kind == kPeer);
    CHECK(contains(outcome.text,
                   "rank 0 (host fake, pid 17) was lost: what it sent is not a message"));
  }
}

TEST_CASE("control characters in what another process says are escaped, line ends are kept") {
  const World world = local_world(1, 2, free_ports(1));
  FakeRank0 fake(world.ports[0], [&](Talk& talk) {
    if (!welcome(talk, world.token, {{"type", "welcome"}, {"host", "fa\x1b[31mke"}, {"pid", 17}})) {
      return;
    }
    talk.send({{"type", "failure"},
               {"rank", 0},
               {"text", "two\nlines\x1b[2J\xc2\x9b"},
               {"is_lost", false},
               {"exit_code", 3}});
    talk.wait_for_end();
  });
  const Outcome outcome = run_all({joins_and_leaves(world, quick_options())})[0];
  CHECK(outcome.text == "two\nlines\\x1b[2J\\xc2\\x9b");
  CHECK(outcome.kind == 3);
}

TEST_CASE(
    "a rank 0 that welcomes and then says nothing is given up at the end of the join timeout") {
  const World world = local_world(1, 2, free_ports(1));
  FakeRank0 fake(world.ports[0], [&](Talk& talk) {
    if (welcome(talk, world.token)) talk.wait_for_end();
  });
  ControlOptions options = waits(1500ms);
  options.stall_timeout = 1h;
  const Outcome outcome = run_all({joins_and_leaves(world, options)})[0];
  CAPTURE(outcome.text);
  CHECK(outcome.kind == kPeer);
  CHECK(contains(outcome.text, "rank 0 (host fake, pid 17) does not answer: it accepted rank 1 ("));
  CHECK(contains(outcome.text, "did not all join within 1.5 s (--join-timeout)"));
}

TEST_CASE("a stop of a process that waits for others is reported to rank 0") {
  const World world = local_world(1, 3, free_ports(1));
  std::atomic<bool> is_welcome{false};
  std::atomic<int> told{0};
  FakeRank0 fake(world.ports[0], [&](Talk& talk) {
    if (!welcome(talk, world.token) || !talk.next("present")) return;
    is_welcome = true;
    if (const auto fail = talk.next("fail")) told = fail->at("exit_code").get<int>();
    talk.wait_for_end();
  });
  ControlOptions options = quick_options();
  options.requested_stop = [&] { return is_welcome ? 143 : 0; };
  bool is_stopped = false;
  try {
    ControlChannel::join(world, options);
  } catch (const StopRequested&) {
    is_stopped = true;
  }
  CHECK(is_stopped);
  while (told == 0) std::this_thread::sleep_for(1ms);
  CHECK(told == 143);
}

TEST_CASE("a stop of one process while processes join ends the others with its exit code") {
  for (const int stopped : {0, 1}) {
    const World world = local_world(0, 3, free_ports(1));
    std::atomic<bool> stop{false};
    std::string end_of_rank_0;
    std::thread rank_0([&] {
      ControlOptions options = quick_options();
      options.requested_stop = [&] { return stop ? 143 : 0; };
      try {
        ControlChannel::join(world, options);  // rank 2 never comes
      } catch (const JoinFailed& failed) {
        end_of_rank_0 = fmt::format("{} {}", failed.failure().rank, failed.failure().exit_code);
      } catch (const StopRequested&) {
        end_of_rank_0 = "stopped";
      }
    });
    Talk talk = Talk::to(world.ports[0]);
    talk.send({{"type", "greeting"}, {"magic", "dpt-control"}, {"nonce", kNonce}});
    const auto challenge = talk.next("challenge");
    REQUIRE(challenge);
    const Handshake handshake{world.token, kNonce, challenge->at("nonce")};
    talk.send({{"type", "hello"},
               {"protocol", 3},
               {"job", world.job},
               {"rank", 1},
               {"size", 3},
               {"host", "h"},
               {"pid", 1},
               {"proof", handshake.proof(ProofRole::connects, 1)}});
    REQUIRE(talk.next("welcome"));
    talk.send({{"type", "present"}});
    if (stopped == 0) {
      stop = true;
      const auto failure = talk.next("failure");
      REQUIRE(failure);
      CHECK(failure->at("exit_code") == 143);
      CHECK(failure->at("is_lost") == false);
    } else {
      talk.send({{"type", "fail"},
                 {"rank", 1},
                 {"text", "stopped on request"},
                 {"is_lost", false},
                 {"exit_code", 143}});
    }
    rank_0.join();
    CHECK(end_of_rank_0 == (stopped == 0 ? "stopped" : "1 143"));
  }
}

}  // namespace dpt::testing
