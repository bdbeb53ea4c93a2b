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

#include "engine/processes/control_text.h"
#include "kernels/error.h"
#include "kernels/start_thread.h"

namespace dpt::control {
namespace {

// Between two rounds of attempts.
constexpr std::chrono::milliseconds kPause{100};
// What listens on a port has this long to answer, or an eighth of join_timeout if that is shorter.
constexpr std::chrono::milliseconds kLongestAttempt{5000};
// Of an answer that says why a process cannot join.
constexpr std::size_t kMostAnswered = std::size_t{64} << 10;

/// The addresses of rank 0's machine; empty, with the reason, where its name is not known (yet).
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
    // Of a container or a minimal system without /etc/hosts. RFC 6761, 6.3: always the loopback.
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
  // Debian gives a machine's own name an address of the loopback, where no other machine finds it.
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const asio::ip::address& address) { return !address.is_loopback(); });
  return addresses;
}

/// Makes `acceptor` listen; returns the error, if any.
std::error_code listen_on(const tcp::endpoint& endpoint, tcp::acceptor& acceptor) {
  std::error_code error;
  acceptor.open(endpoint.protocol(), error);
  // A program that this process starts must not keep the port after it.
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

/// Why an attempt to reach rank 0 failed, or the connection.
struct Attempt {
  std::shared_ptr<Connection> connection;
  std::string why;
  nlohmann::json answer;
};

/// Runs `io` until `is_over` or `until`.
template <class Condition>
void run_until(asio::io_context& io, Clock::time_point until, Condition is_over) {
  while (!is_over() && Clock::now() < until) {
    io.restart();
    io.run_one_until(until);
  }
}

/// `until` must be soon.
Attempt attempt(asio::io_context& io, const tcp::endpoint& endpoint, const Frame& hello,
                std::chrono::milliseconds network_timeout, Clock::time_point until) {
  Attempt result;
  // The handlers outlive this call where the time is over.
  auto socket = std::make_shared<tcp::socket>(io);
  auto error = std::make_shared<std::optional<std::error_code>>();
  socket->async_connect(endpoint,
                        [socket, error](const std::error_code& outcome) { *error = outcome; });
  run_until(io, until, [&] { return error->has_value(); });
  std::error_code ignored;
  if (!error->has_value()) {
    socket->close(ignored);
    result.why = "no connection";
    return result;
  }
  if (error->value()) {
    result.why = error->value().message();
    return result;
  }
  // Where nobody listens, a socket may be connected to itself.
  if (socket->local_endpoint(ignored) == socket->remote_endpoint(ignored)) {
    result.why = "Connection refused";
    return result;
  }
  struct Outcome {
    bool is_there = false;
    std::string why;
    nlohmann::json answer;
  };
  const auto outcome = std::make_shared<Outcome>();
  result.connection = std::make_shared<Connection>(std::move(*socket), network_timeout);
  result.connection->start({[outcome](Message&& message) {
                              outcome->answer = std::move(message.head);
                              outcome->is_there = true;
                            },
                            [outcome](const std::string& why) {
                              outcome->why = why;
                              outcome->is_there = true;
                            }},
                           kMostAnswered);
  result.connection->send(hello);
  run_until(io, until, [&] { return outcome->is_there; });
  if (!outcome->is_there) {
    result.why = "what listens there does not answer";
  } else if (!outcome->why.empty()) {
    result.why = "what listens there is not dpt: " + outcome->why;
  }
  result.answer = outcome->answer;
  if (!result.why.empty()) result.connection->close();
  return result;
}

/// The connection, if this process is welcome; else `why` says why not. Throws where it makes no
/// sense to try again.
std::optional<Reached> judge(Attempt& made, bool& was_refused) {
  if (!made.why.empty()) return std::nullopt;
  const std::string type = text_in(made.answer, "type");
  if (type == "welcome") {
    return Reached{made.connection, text_in(made.answer, "host"), integer_in(made.answer, "pid")};
  }
  made.connection->close();
  if (type == "failure") throw_failure(failure_in(made.answer));
  if (type == "refused") {
    const std::string why = text_in(made.answer, "why");
    if (text_in(made.answer, "kind") == "usage") fail(ErrorKind::usage, "{}", why);
    was_refused = true;
    made.why = "refused: " + why;
  }
  return std::nullopt;
}

}  // namespace

void throw_failure(const WorldFailure& failure) {
  throw Error(failure.kind(), failure.text);
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

tcp::endpoint listen(const World& world, tcp::acceptor& acceptor,
                     const ControlChannel::Options& options) {
  asio::io_context io;
  const Clock::time_point until = Clock::now() + options.join_timeout;
  std::vector<asio::ip::address> addresses;
  std::string tried;
  for (;;) {
    addresses = addresses_of_rank_0(world, io, tried);
    if (!addresses.empty() || Clock::now() >= until) break;
    std::this_thread::sleep_for(kPause);  // names of new machines take a while to spread
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
                          "machine: no other machine reaches it there. Name rank 0's "
                          "machine by an address that the others reach",
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
      world.host, tried.empty() ? "no port was named" : tried);
}

Reached reach_rank_0(const World& world, asio::io_context& io, const tcp::endpoint* known,
                     const ControlChannel::Options& options) {
  const Frame hello = make_frame({{"type", "hello"},
                                  {"magic", kMagic},
                                  {"protocol", kProtocol},
                                  {"token", world.token},
                                  {"job", world.job},
                                  {"rank", world.rank},
                                  {"size", world.size},
                                  {"host", world.host},
                                  {"pid", ::getpid()}});
  if (hello->size() > kMostUnknown) {
    fail(ErrorKind::usage,
         "rank {}: what it has to say of itself is {} bytes long, at most {} are allowed: shorten "
         "the token (DPT_TOKEN) or the job's name",
         world.rank, hello->size(), kMostUnknown);
  }
  const Clock::time_point until = Clock::now() + options.join_timeout;
  const auto limit = std::min<std::chrono::milliseconds>(kLongestAttempt, options.join_timeout / 8);
  std::map<std::string, std::string> outcomes;  // by address, the last attempt's
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
      if (Clock::now() >= until) break;
      Attempt made = attempt(io, endpoint, hello, options.network_timeout,
                             std::min<Clock::time_point>(until, Clock::now() + limit));
      try {
        if (auto reached = judge(made, was_refused)) return std::move(*reached);
      } catch (const nlohmann::json::exception&) {
        made.why.clear();
      }
      made.connection.reset();
      outcomes[text_of(endpoint)] = made.why.empty() ? "what listens there is not dpt" : made.why;
    }
    std::this_thread::sleep_until(std::min<Clock::time_point>(until, Clock::now() + kPause));
  } while (Clock::now() < until);
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
