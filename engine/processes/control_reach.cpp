#include "engine/processes/control_reach.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <asio/ip/address.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/processes/control_handshake.h"
#include "engine/processes/control_text.h"
#include "engine/processes/control_types.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/stop_request.h"

namespace dpt::control {
namespace {

// Pause between two rounds of attempts.
constexpr std::chrono::milliseconds kPause{100};
// Time that a listener has to answer; an eighth of join_timeout if that is shorter.
constexpr std::chrono::milliseconds kLongestAttempt{5000};
// Time to tell the others that a stop of this process was requested.
constexpr std::chrono::milliseconds kTimeToTell{500};
// Maximum length in bytes of an answer with the reason why a process cannot join.
constexpr std::size_t kMaxAnswered = std::size_t{64} << 10;
constexpr const char* kRefused = "refused: ";
// Maximum length of the reason for which a listener refuses this process.
constexpr std::size_t kLongestReason = 1000;

/// Returns the addresses of rank 0's machine; empty, with the reason, if its name is not known
/// (yet).
std::vector<asio::ip::address> addresses_of_rank_0(const World& world, asio::io_context& io,
                                                   std::string& why) {
  if (world.local_size == world.size) return {asio::ip::address_v4::loopback()};
  std::error_code failure;
  const asio::ip::address literal = asio::ip::make_address(world.coordinator, failure);
  if (!failure) return {literal};
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(world.coordinator, "", failure);
  std::vector<asio::ip::address> addresses;
  if (failure) {
    // Containers and minimal systems may lack /etc/hosts. RFC 6761, 6.3: localhost is always the
    // loopback.
    if (world.coordinator == "localhost") return {asio::ip::address_v4::loopback()};
    why =
        fmt::format("the name '{}' of rank 0's machine: {}", world.coordinator, failure.message());
    return addresses;
  }
  for (const auto& entry : found) {
    const asio::ip::address address = entry.endpoint().address();
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  // Debian maps a machine's own name to a loopback address, at which no other machine can reach it.
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const asio::ip::address& address) { return !address.is_loopback(); });
  return addresses;
}

/// Makes `acceptor` listen; returns the error, if any.
std::error_code listen_on(const tcp::endpoint& endpoint, tcp::acceptor& acceptor) {
  std::error_code error;
  acceptor.open(endpoint.protocol(), error);
  // Programs started by this process must not keep the port open after it ends.
  if (!error) ::fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    std::error_code ignored;
    acceptor.close(ignored);
  }
  return error;
}

/// Result of an attempt to reach process 0: the connection, or the reason for the failure.
struct Attempt {
  std::shared_ptr<Connection> connection;
  std::string why;
  nlohmann::json answer;
  bool is_proven = false;  // true if rank 0's proof was in the answer
};

/// Time limit for reaching rank 0. After a stop was requested, only kTimeToTell remains, to tell
/// rank 0 if it listens.
class JoinTime {
 public:
  explicit JoinTime(const ControlOptions& options)
      : requested_stop_(options.requested_stop), until_(Clock::now() + options.join_timeout) {}

  bool is_stopped() {
    if (!is_stopped_ && requested_stop_ && requested_stop_() != 0) {
      is_stopped_ = true;
      until_ = std::min<Clock::time_point>(until_, Clock::now() + kTimeToTell);
    }
    return is_stopped_;
  }
  bool is_over() {
    is_stopped();
    return Clock::now() >= until_;
  }
  /// Returns the end of a pause of this length, or the time limit if that is earlier.
  Clock::time_point after(Clock::duration time) const {
    return std::min<Clock::time_point>(until_, Clock::now() + time);
  }

 private:
  std::function<int()> requested_stop_;
  Clock::time_point until_;
  bool is_stopped_ = false;
};

/// Runs `io` until `is_over` returns true, or until `limit` or the time to join has passed.
template <class Condition>
void run_until(asio::io_context& io, JoinTime& time, Clock::time_point limit, Condition is_over) {
  while (!is_over() && !time.is_over() && Clock::now() < limit) {
    io.restart();
    io.run_one_until(std::min<Clock::time_point>(limit, time.after(kPause)));
  }
}

/// Messages with which this process introduces itself to a listener.
class Introduction {
 public:
  Introduction(const World& world, const RunIdentity& run)
      : hello_{{"type", "hello"},    {"protocol", kProtocol}, {"job", world.job},
               {"rank", world.rank}, {"size", world.size},    {"host", world.host},
               {"pid", ::getpid()}},
        token_(world.token),
        rank_(world.rank) {
    // A token or a name identifies the run by itself, so its RunIdentity is not sent.
    const bool is_nameless = token_.empty() && world.job.empty();
    const RunIdentity shown = is_nameless ? run : RunIdentity();
    hello_["title"] = shown.title;
    hello_["options"] = shown.options;
    hello_["config"] = shown.config;
    hello_["content"] = shown.content;
  }

  static Frame greeting(const std::string& nonce) {
    return make_frame({{"type", "greeting"}, {"magic", kMagic}, {"nonce", nonce}});
  }
  Frame hello(const Handshake& handshake) const {
    nlohmann::json hello = hello_;
    hello["proof"] = handshake.proof(ProofRole::connects, rank_);
    return make_frame(hello);
  }
  Handshake begin() const { return {token_, new_nonce(), {}}; }
  int rank() const { return rank_; }

 private:
  nlohmann::json hello_;
  std::string token_;
  int rank_;
};

/// Conversation with the program that listens at an endpoint. It outlives an attempt that timed
/// out.
struct Conversation {
  Handshake handshake;
  bool is_over = false;
  std::string why;
  nlohmann::json answer;

  /// Returns the next message to send, or null if the received message is the answer.
  Frame reply_to(nlohmann::json&& head, const Introduction& mine) {
    if (handshake.nonce_of_rank_0.empty() && text_in(head, "type") == "challenge") {
      handshake.nonce_of_rank_0 = text_in(head, "nonce");
      if (is_nonce(handshake.nonce_of_rank_0)) return mine.hello(handshake);
    }
    answer = std::move(head);
    is_over = true;
    return nullptr;
  }
};

/// Connects. Returns null, with the reason, if there is no connection by `limit`.
std::shared_ptr<tcp::socket> connect(asio::io_context& io, const tcp::endpoint& endpoint,
                                     JoinTime& time, Clock::time_point limit, std::string& why) {
  // The handlers outlive this call if it times out.
  auto socket = std::make_shared<tcp::socket>(io);
  auto error = std::make_shared<std::optional<std::error_code>>();
  socket->async_connect(endpoint,
                        [socket, error](const std::error_code& outcome) { *error = outcome; });
  run_until(io, time, limit, [&] { return error->has_value(); });
  std::error_code ignored;
  if (!error->has_value()) {
    socket->close(ignored);
    why = "no connection";
  } else if (error->value()) {
    why = error->value().message();
  } else if (socket->local_endpoint(ignored) == socket->remote_endpoint(ignored)) {
    // If no program listens, a socket may be connected to itself.
    why = "Connection refused";
  }
  return why.empty() ? socket : nullptr;
}

/// Asks the program that listens at `endpoint` whether it is rank 0, and waits for the answer until
/// `limit`.
Attempt attempt(asio::io_context& io, const tcp::endpoint& endpoint,
                const std::shared_ptr<const Introduction>& mine,
                std::chrono::milliseconds network_timeout, JoinTime& time,
                Clock::time_point limit) {
  Attempt result;
  const auto socket = connect(io, endpoint, time, limit, result.why);
  if (!socket) return result;
  const auto talk = std::make_shared<Conversation>();
  talk->handshake = mine->begin();
  result.connection = std::make_shared<Connection>(std::move(*socket), network_timeout);
  Connection* const connection = result.connection.get();  // the connection owns its handlers
  connection->start({[talk, mine, connection](Message&& message) {
                       if (talk->is_over) return;
                       if (const Frame next = talk->reply_to(std::move(message.head), *mine)) {
                         connection->send(next);
                       }
                     },
                     [talk](const std::string& why) {
                       talk->why = why;
                       talk->is_over = true;
                     }},
                    kMaxAnswered);
  connection->send(Introduction::greeting(talk->handshake.nonce_of_process));
  run_until(io, time, limit, [&] { return talk->is_over; });
  if (!talk->is_over) {
    result.why = "the program that listens there does not answer";
  } else if (!talk->why.empty()) {
    result.why =
        "the program that listens there is not dpt, or is another version of it: " + talk->why;
  }
  result.answer = talk->answer;
  result.is_proven = result.why.empty() &&
                     talk->handshake.is_proven(result.answer, ProofRole::accepts, mine->rank());
  if (!result.why.empty()) connection->close();
  return result;
}

/// Returns the connection if rank 0 accepted this process; otherwise sets `made.why`. Throws if
/// another attempt would be useless. Only an authenticated rank 0 of this run can tell that.
std::optional<Reached> judge(Attempt& made, bool& was_refused) {
  if (!made.why.empty()) return std::nullopt;
  const std::string type = text_in(made.answer, "type");
  if (type == "welcome" && made.is_proven) {
    return Reached{made.connection, printable_in(made.answer, "host"),
                   integer_in(made.answer, "pid")};
  }
  made.connection->close();
  if (type == "failure" && made.is_proven) throw_failure(failure_in(made.answer));
  if (type == "refused") {
    const std::string why = printable_in(made.answer, "why").substr(0, kLongestReason);
    if (text_in(made.answer, "kind") == "usage" && made.is_proven)
      fail(ErrorKind::usage, "{}", why);
    was_refused = true;
    made.why = kRefused + why;
  } else if (type == "welcome" || type == "failure") {
    made.why = "the program that listens there does not know the token of this run (DPT_TOKEN)";
  }
  return std::nullopt;
}

}  // namespace

void throw_failure(const WorldFailure& failure) {
  throw JoinFailed(failure);
}

std::thread start_channel_thread(const std::string& what, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return start_thread(what, std::move(body));
}

tcp::endpoint listen(const World& world, tcp::acceptor& acceptor, const ControlOptions& options) {
  asio::io_context io;
  const Clock::time_point until = Clock::now() + options.join_timeout;
  std::vector<asio::ip::address> addresses;
  std::string tried;
  for (;;) {
    addresses = addresses_of_rank_0(world, io, tried);
    if (!addresses.empty() || Clock::now() >= until) break;
    if (options.requested_stop && options.requested_stop() != 0) throw StopRequested();
    std::this_thread::sleep_for(kPause);  // names of new machines take a while to propagate
  }
  for (const int port : world.ports) {
    for (const asio::ip::address& address : addresses) {
      const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
      const std::error_code error = listen_on(endpoint, acceptor);
      if (!error) {
        if (address.is_loopback() && world.local_size != world.size && options.warn &&
            world.coordinator != "localhost" && world.coordinator != address.to_string()) {
          options.warn(
              fmt::format("rank 0 listens on {}, which is the address of '{}' on this "
                          "machine: no other machine can reach it there. Use an address of rank "
                          "0's machine that the others can reach",
                          text_of(endpoint), world.coordinator));
        }
        return acceptor.local_endpoint();
      }
      tried +=
          fmt::format("{}{}: {}", tried.empty() ? "" : ", ", text_of(endpoint), error.message());
    }
  }
  fail(
      ErrorKind::usage,
      "rank 0 (host {}) cannot listen for the other processes: {}. Free one of the ports, or start "
      "the processes with another port and an address of the machine of rank 0",
      world.host, tried.empty() ? "no port was specified" : tried);
}

Reached reach_rank_0(const World& world, asio::io_context& io, const tcp::endpoint* known,
                     const ControlOptions& options) {
  const auto mine = std::make_shared<const Introduction>(world, options.run);
  const std::size_t length = mine->hello(mine->begin())->size();
  if (length > kMaxUnknown) {
    fail(ErrorKind::usage,
         "rank {}: the message that introduces this process to rank 0 (host, job, command) may "
         "have up to {} bytes, but has {}: shorten the job's name",
         world.rank, kMaxUnknown, length);
  }
  JoinTime time(options);
  const auto limit = std::min<std::chrono::milliseconds>(kLongestAttempt, options.join_timeout / 8);
  // The last refusal at each address, or the outcome of the last attempt if there was no refusal:
  // rank 0 may have ended after it refused.
  std::map<std::string, std::string> outcomes;
  bool was_refused = false;
  do {
    std::vector<tcp::endpoint> endpoints;
    if (known) {
      endpoints.push_back(*known);
    } else {
      std::string why;
      const auto addresses = addresses_of_rank_0(world, io, why);
      if (!why.empty()) outcomes = {{"", why}};
      for (const int port : world.ports) {
        for (const asio::ip::address& address : addresses) {
          endpoints.emplace_back(address, static_cast<std::uint16_t>(port));
        }
      }
    }
    for (const tcp::endpoint& endpoint : endpoints) {
      if (time.is_over()) break;
      Attempt made =
          attempt(io, endpoint, mine, options.network_timeout, time, Clock::now() + limit);
      try {
        if (auto reached = judge(made, was_refused)) return std::move(*reached);
      } catch (const nlohmann::json::exception&) {
        made.why.clear();
      }
      made.connection.reset();
      std::string& outcome = outcomes[text_of(endpoint)];
      if (outcome.starts_with(kRefused) && !made.why.starts_with(kRefused)) continue;
      outcome = made.why.empty() ? "the program that listens there is not dpt" : made.why;
    }
    std::this_thread::sleep_until(time.after(kPause));
  } while (!time.is_over());
  if (time.is_stopped()) throw StopRequested();
  std::string tried;
  for (const auto& [address, outcome] : outcomes) {
    tried += fmt::format("{}{}{}{}", tried.empty() ? "" : "; ", address,
                         address.empty() ? "" : ": ", outcome);
  }
  fail(was_refused ? ErrorKind::usage : ErrorKind::peer,
       "rank {} (host {}) did not reach rank 0 at {} within {}: {}", world.rank, world.host,
       world.local_size == world.size ? "this machine" : world.coordinator,
       seconds_text(options.join_timeout), tried);
}

}  // namespace dpt::control
