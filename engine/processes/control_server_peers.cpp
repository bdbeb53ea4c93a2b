// Who may join: connections until they belong to a process of the world.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/processes/control_server.h"
#include "engine/processes/control_text.h"
#include "kernels/error.h"
#include "kernels/secret.h"

namespace dpt::control {
namespace {

// Limit of connections that have not shown that they belong here, beyond those of the expected
// processes. If more come, the oldest of them are closed; a process among those tries again.
constexpr int kMaxStrangers = 64;
// Limit of connections that are accepted between two beats once the world is complete: a flood of
// strangers then fills the system's queue, and takes no time from the run.
constexpr int kMaxAccepted = 32;
// Or join_timeout, if that is shorter.
constexpr std::chrono::milliseconds kTimeToSayHello{5000};
// So many refused connections are reported one by one.
constexpr std::int64_t kMostReported = 20;

bool is_power_of_ten(std::int64_t number) {
  while (number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

void ControlServer::accept() {
  if (accepts_ || is_closing_ || (all_came() && accepted_ >= kMaxAccepted)) return;
  accepts_ = true;
  acceptor_.async_accept([this](const std::error_code& error, tcp::socket socket) {
    accepts_ = false;
    if (is_closing_) return;
    // The next tick tries again: it may be for want of descriptors, which will not be better now.
    if (error) {
      warn_of_refused("an unknown address", error.message());
      return close_oldest_stranger();
    }
    ++accepted_;
    add_peer(std::move(socket));
    if (strangers_ > kMaxStrangers + world_.size - came_) close_oldest_stranger();
    accept();
  });
}

void ControlServer::close_oldest_stranger() {
  for (const auto& [id, peer] : peers_) {
    if (peer.state != Peer::State::unknown && peer.state != Peer::State::refused) continue;
    if (peer.state == Peer::State::unknown) {
      warn_of_refused(peer.connection->address(), "it said nothing, and too many others came");
    }
    return remove(id);
  }
}

void ControlServer::add_peer(tcp::socket socket) {
  const std::uint64_t id = next_id_++;
  Peer& peer = peers_[id];
  ++strangers_;
  peer.connection = std::make_shared<Connection>(std::move(socket), options_.network_timeout);
  const auto limit = std::min<std::chrono::milliseconds>(kTimeToSayHello, options_.join_timeout);
  peer.deadline = std::make_unique<asio::steady_timer>(io_, limit);
  peer.deadline->async_wait([this, id, limit](const std::error_code& error) {
    const auto at = peers_.find(id);
    if (error || at == peers_.end()) return;
    if (at->second.state == Peer::State::unknown) {
      warn_of_refused(at->second.connection->address(),
                      fmt::format("it did not say who it is within {}", seconds_text(limit)));
    }
    remove(id);
  });
  peer.connection->start({[this, id](Message&& message) { on_message(id, std::move(message)); },
                          [this, id](const std::string& why) { on_end(id, why); }},
                         kMostUnknown);
}

void ControlServer::on_message(std::uint64_t id, Message&& message) {
  Peer& peer = peers_.at(id);
  switch (peer.state) {
    case Peer::State::unknown:
      return on_hello(id, message.head);
    case Peer::State::welcome:
      return on_present(id);
    case Peer::State::refused:
      return;
    case Peer::State::is_member:
      return on_member_message(peer.rank, std::move(message));
  }
}

void ControlServer::on_end(std::uint64_t id, const std::string& why) {
  const Peer& peer = peers_.at(id);
  const Peer::State state = peer.state;
  const int rank = peer.rank;
  if (state == Peer::State::unknown) warn_of_refused(peer.connection->address(), why);
  remove(id);
  if (state != Peer::State::is_member) return;
  members_[static_cast<std::size_t>(rank)].peer = 0;
  fail_world({rank, fmt::format("{} was lost: {}{}", name(rank), why, last_seen(rank)), true, 0});
}

void ControlServer::remove(std::uint64_t id) {
  const auto at = peers_.find(id);
  if (at->second.state != Peer::State::is_member) --strangers_;
  at->second.connection->close();
  peers_.erase(at);
  accept();
  stop_if_done();
}

void ControlServer::on_hello(std::uint64_t id, const nlohmann::json& hello) {
  Peer& peer = peers_.at(id);
  if (text_in(hello, "type") != "hello" || text_in(hello, "magic") != kMagic) {
    return on_end(id, "what it sent is no message of dpt");
  }
  const bool has_token = same_secret(text_in(hello, "token"), world_.token);
  if (!has_token || text_in(hello, "job") != world_.job) {
    const char* why = has_token ? "it is a dpt process of another job"
                                : "it is a dpt process with another token (DPT_TOKEN)";
    warn_of_refused(peer.connection->address(), why);
    return refuse(peer, "stranger",
                  has_token ? "another job runs there" : "the token there is another (DPT_TOKEN)");
  }
  peer.host = text_in(hello, "host");
  peer.pid = integer_in(hello, "pid");
  const std::int64_t rank = integer_in(hello, "rank");
  peer.rank = rank >= 0 && rank < world_.size ? static_cast<int>(rank) : -1;
  const std::string why = misfit(peer, hello);
  if (failure_ || all_left_) {
    if (all_came()) return refuse(peer, "stranger", "the job that listens there is about to end");
    return dismiss(peer, make_frame(json_of(*failure_)));
  }
  if (!why.empty()) {
    // Without a name and a token, two jobs on the same ports cannot be told apart: a process of
    // another job must not end this one, once that is complete.
    if (all_came() && world_.token.empty() && world_.job.empty()) {
      warn_of_refused(peer.connection->address(), why);
      return refuse(peer, "stranger", "all processes of the job that listens there are present");
    }
    refuse(peer, "usage", why);
    return fail_world({peer.rank, why, false, static_cast<int>(ErrorKind::usage)});
  }
  peer.state = Peer::State::welcome;
  peer.connection->send(
      make_frame({{"type", "welcome"}, {"host", world_.host}, {"pid", ::getpid()}}));
}

std::string ControlServer::misfit(const Peer& peer, const nlohmann::json& hello) const {
  const std::int64_t protocol = integer_in(hello, "protocol");
  const std::int64_t size = integer_in(hello, "size");
  const std::string its_name =
      fmt::format("rank {} (host {}, pid {})", integer_in(hello, "rank"), peer.host, peer.pid);
  if (protocol != kProtocol) {
    return fmt::format(
        "{} is of another version of dpt: it speaks version {} of the control channel's protocol, "
        "{} version {}. All processes must run the same dpt",
        its_name, protocol, name(0), kProtocol);
  }
  if (size != world_.size) {
    return fmt::format("{} was started in a world of {} processes, {} in one of {}", its_name, size,
                       name(0), world_.size);
  }
  if (peer.rank < 0) {
    return fmt::format("{}: the ranks of a world of {} are 0 to {} ({})", its_name, world_.size,
                       world_.size - 1, name(0));
  }
  if (members_[static_cast<std::size_t>(peer.rank)].peer != 0) return duplicate_text(peer);
  return {};
}

std::string ControlServer::duplicate_text(const Peer& peer) const {
  const Member& member = members_[static_cast<std::size_t>(peer.rank)];
  return fmt::format(
      "two processes say that they are rank {}: pid {} on host {} and pid {} on host "
      "{}",
      peer.rank, member.pid, member.host, peer.pid, peer.host);
}

void ControlServer::on_present(std::uint64_t id) {
  Peer& peer = peers_.at(id);
  Member& member = members_[static_cast<std::size_t>(peer.rank)];
  if (member.peer != 0) {
    // Both were welcome, and the other one was first.
    fail_world({peer.rank, duplicate_text(peer), false, static_cast<int>(ErrorKind::usage)});
  }
  if (failure_) return dismiss(peer, make_frame(json_of(*failure_)));
  --strangers_;
  peer.state = Peer::State::is_member;
  peer.deadline.reset();
  peer.connection->allow(kMostKnown);
  member.peer = id;
  member.host = peer.host;
  member.pid = peer.pid;
  if (++came_ == world_.size) send_to_all(make_frame({{"type", "joined"}}));
  accept();
}

void ControlServer::refuse(Peer& peer, const char* kind, const std::string& why) {
  dismiss(peer, make_frame({{"type", "refused"}, {"kind", kind}, {"why", why}}));
}

void ControlServer::dismiss(Peer& peer, const Frame& answer) {
  peer.state = Peer::State::refused;
  peer.connection->send(answer);
  peer.connection->finish();
}

void ControlServer::warn_of_refused(const std::string& address, const std::string& why) {
  ++refused_;
  last_refused_ = fmt::format("{}: {}", address, why);
  if (refused_ > kMostReported && !is_power_of_ten(refused_)) return;
  warn(fmt::format("refused a connection to the control channel from {}: {}{}", address, why,
                   refused_ > kMostReported ? fmt::format(" ({} refused so far)", refused_) : ""));
}

void ControlServer::warn(const std::string& text) noexcept {
  try {
    if (options_.warn) options_.warn(text);
  } catch (...) {  // a log that cannot be written to is not this thread's to report
  }
}

}  // namespace dpt::control
