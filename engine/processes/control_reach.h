// Rendezvous of rank 0 and the others: chooses the address at which rank 0 listens, and reaches it
// even if other programs listen there too.
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

/// Makes `acceptor` listen on the first free port of world.ports: on the loopback address if all
/// processes are on one machine, otherwise on the address of world.coordinator. Throws
/// ErrorKind::usage with a list of the attempts.
tcp::endpoint listen(const World& world, tcp::acceptor& acceptor, const ControlOptions& options);

struct Reached {
  std::shared_ptr<Connection> connection;  ///< welcomed, but not yet confirmed
  std::string host;                        ///< address of rank 0
  std::int64_t pid = 0;
};

/// Connects to rank 0, and retries until join_timeout. `known`: the address at which rank 0 listens
/// if this process is rank 0, otherwise null. REQUIRES: no thread runs `io`. Throws ErrorKind::peer
/// with a list of the attempts, and ErrorKind::usage if this process does not fit into the world.
Reached reach_rank_0(const World& world, asio::io_context& io, const tcp::endpoint* known,
                     const ControlOptions& options);

/// Throws JoinFailed with this failure.
[[noreturn]] void throw_failure(const WorldFailure& failure);

/// Starts a thread in which all signals are blocked, so that other threads handle them.
std::thread start_channel_thread(const std::string& what, std::function<void()> body);

}  // namespace dpt::control
