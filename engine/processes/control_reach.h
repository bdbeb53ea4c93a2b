// Rendezvous of rank 0 and the others: choosing the address at which rank 0 listens, and reaching
// it past whatever else listens there.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "engine/processes/control_types.h"
#include "engine/processes/control_wire.h"
#include "engine/processes/world.h"

namespace dpt::control {

/// Makes `acceptor` listen on the first free port of world.ports: on the loopback where all
/// processes are on one machine, else on the address of world.coordinator. Throws
/// ErrorKind::usage with what was tried.
tcp::endpoint listen(const World& world, tcp::acceptor& acceptor, const ControlOptions& options);

struct Reached {
  std::shared_ptr<Connection> connection;  ///< welcome, and not yet present
  std::string host;                        ///< address of rank 0
  std::int64_t pid = 0;
};

/// Connects to rank 0, trying again until join_timeout. `known`: where it listens, if this is rank
/// 0 itself; else a null pointer. REQUIRES: nobody runs `io`. Throws ErrorKind::peer with what was
/// tried, and ErrorKind::usage where this process does not fit into the world.
Reached reach_rank_0(const World& world, asio::io_context& io, const tcp::endpoint* known,
                     const ControlOptions& options);

/// Throws the failure with its kind, so that join() fails with it.
[[noreturn]] void throw_failure(const WorldFailure& failure);

/// A thread on which no signal is handled: those are for the threads that wait for them.
std::thread start_channel_thread(const std::string& what, std::function<void()> body);

}  // namespace dpt::control
