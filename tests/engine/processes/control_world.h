// Worlds for the tests of the control channel. Their processes are threads, except where one must
// be killed or stopped.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/processes/control.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "tests/support/text.h"

namespace dpt::testing {

using namespace std::chrono_literals;

/// Returns loopback ports that were free a moment ago.
inline std::vector<int> free_ports(int count) {
  std::vector<int> sockets, ports;
  for (int i = 0; i < count; ++i) {
    sockets.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(sockets.back(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(sockets.back(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    ports.push_back(ntohs(address.sin_port));
  }
  for (const int one : sockets) ::close(one);
  return ports;
}

/// Returns a socket that listens on a port of the loopback.
inline int listening_socket(int port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(listener, 16) == 0);
  return listener;
}

/// Returns a world of `size` on this machine, as its process `rank` sees it.
inline World local_world(int rank, int size, const std::vector<int>& ports) {
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = size;
  world.host = "host" + std::to_string(rank);
  world.launcher = "the test";
  world.coordinator = "localhost";
  world.ports = ports;
  world.job = "job 7";
  world.token = "a secret";
  return world;
}

inline ControlOptions quick_options() {
  ControlOptions options;
  options.join_timeout = 60s;
  options.beat_every = 20ms;
  return options;
}

/// The result of a process: its error, if any, and its text.
struct Outcome {
  int kind = 0;  ///< kind of the Error that ended it; 0 = none, -1 = another exception
  std::string text;
};

/// Runs each function in a separate thread.
inline std::vector<Outcome> run_all(const std::vector<std::function<std::string()>>& bodies) {
  std::vector<Outcome> outcomes(bodies.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < bodies.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        outcomes[i].text = bodies[i]();
      } catch (const Error& error) {
        outcomes[i] = {static_cast<int>(error.kind()), error.what()};
      } catch (const std::exception& error) {
        outcomes[i] = {-1, error.what()};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// Joins a world of `size` as each of its processes and runs `body`, which may or may not leave the
/// world.
inline std::vector<Outcome> run_world(
    int size, const ControlOptions& options,
    const std::function<std::string(ControlChannel& channel)>& body) {
  const std::vector<int> ports = free_ports(3);
  std::vector<std::function<std::string()>> bodies;
  for (int rank = 0; rank < size; ++rank) {
    bodies.emplace_back([&, rank] {
      const auto channel = ControlChannel::join(local_world(rank, size, ports), options);
      return body(*channel);
    });
  }
  return run_all(bodies);
}

inline constexpr int kPeer = static_cast<int>(ErrorKind::peer);
inline constexpr int kUsage = static_cast<int>(ErrorKind::usage);

/// Upper limit for waiting for events that must come.
inline constexpr std::chrono::seconds kLong{60};

}  // namespace dpt::testing
