// Admission to the world: connections that do not yet belong to one of its processes.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/processes/control_handshake.h"
#include "engine/processes/control_server.h"
#include "engine/processes/control_text.h"
#include "engine/processes/control_types.h"
#include "kernels/base/error.h"

namespace dpt::control {
namespace {

// Maximum number of connections that have not joined, in addition to one for each missing process.
// Beyond that number, the oldest unidentified connections are closed. A process of the world to
// which this happens tries again.
constexpr int kMaxStrangers = 64;
// Maximum number of connections accepted between two beats once the world is complete: a flood of
// strangers then fills the system's queue instead of taking time from the run.
constexpr int kMaxAccepted = 32;
// Time limit for a hello; join_timeout if that is shorter.
constexpr std::chrono::milliseconds kTimeToSayHello{5000};
// Number of refused connections that are reported individually.
constexpr std::int64_t kMaxReported = 20;
// Maximum number of processes of other runs that are listed if this run does not become complete.
constexpr std::size_t kMaxNamed = 8;

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
    // The next tick tries again: the cause may be a lack of descriptors, which lasts for a while.
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
    if (!peer.is_stranger() && peer.state != Peer::State::refused) continue;
    if (peer.is_stranger()) {
      warn_of_refused(peer.connection->address(),
                      "it did not identify itself, and too many others connected");
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
    if (at->second.is_stranger()) {
      warn_of_refused(at->second.connection->address(),
                      fmt::format("it did not identify itself within {}", seconds_text(limit)));
    }
    remove(id);
  });
  peer.connection->start({[this, id](Message&& message) { on_message(id, std::move(message)); },
                          [this, id](const std::string& why) { on_end(id, why); }},
                         kMaxUnknown);
}

void ControlServer::on_message(std::uint64_t id, Message&& message) {
  Peer& peer = peers_.at(id);
  switch (peer.state) {
    case Peer::State::unknown:
      return on_greeting(id, message.head);
    case Peer::State::challenged:
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
  if (peer.is_stranger()) warn_of_refused(peer.connection->address(), why);
  remove(id);
  if (state != Peer::State::is_member) return;
  members_[rank].peer = 0;
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

void ControlServer::on_greeting(std::uint64_t id, const nlohmann::json& greeting) {
  Peer& peer = peers_.at(id);
  const std::string type = text_in(greeting, "type");
  if (text_in(greeting, "magic") != kMagic) return on_end(id, kNoMessage);
  if (type == "hello") {
    const std::string why = fmt::format(
        "rank 0 runs a newer version of dpt, which speaks version {} of the control channel's "
        "protocol. All processes must run the same dpt",
        kProtocol);
    warn_of_refused(peer.connection->address(), "it is a dpt process of an older version");
    return refuse(peer, "usage", why);
  }
  peer.its_nonce = text_in(greeting, "nonce");
  if (type != "greeting" || !is_nonce(peer.its_nonce)) return on_end(id, kNoMessage);
  peer.nonce = new_nonce();
  peer.state = Peer::State::challenged;
  peer.connection->send(make_frame({{"type", "challenge"}, {"nonce", peer.nonce}}));
}

bool ControlServer::has_token(Peer& peer, const nlohmann::json& hello) {
  const std::int64_t rank = integer_in(hello, "rank");
  const Handshake handshake{world_.token, peer.its_nonce, peer.nonce};
  if (!handshake.is_proven(hello, ProofRole::connects, rank)) {
    warn_of_refused(peer.connection->address(),
                    "it is a dpt process with another token (DPT_TOKEN)");
    refuse(peer, "stranger", "the job that listens there has another token (DPT_TOKEN)");
    return false;
  }
  peer.proof = handshake.proof(ProofRole::accepts, rank);
  return true;
}

void ControlServer::on_hello(std::uint64_t id, const nlohmann::json& hello) {
  Peer& peer = peers_.at(id);
  if (text_in(hello, "type") != "hello") return on_end(id, kNoMessage);
  if (!has_token(peer, hello)) return;
  if (text_in(hello, "job") != world_.job) {
    warn_of_refused(peer.connection->address(), "it is a dpt process of another job");
    return refuse(peer, "stranger", "another job runs there");
  }
  admit(peer, hello);
}

void ControlServer::admit(Peer& peer, const nlohmann::json& hello) {
  peer.host = printable_in(hello, "host");
  peer.pid = integer_in(hello, "pid");
  const std::int64_t rank = integer_in(hello, "rank");
  peer.rank = rank >= 0 && rank < world_.size ? static_cast<int>(rank) : -1;
  const std::string its_name = name_of(static_cast<int>(rank), peer.host, peer.pid);
  if (is_nameless()) {
    const std::string other = difference_of_runs(hello);
    if (!other.empty()) return refuse_other_run(peer, its_name, other);
  }
  const std::string why = misfit(peer, hello);
  if (failure_ || all_left_) {
    if (all_came()) return refuse(peer, "stranger", "the job that listens there is about to end");
    return dismiss(peer, json_of(*failure_));
  }
  if (!why.empty()) {
    if (all_came() && is_nameless()) return refuse_other_run(peer, its_name, why);
    refuse(peer, "usage", why);
    return fail_world({peer.rank, why, false, static_cast<int>(ErrorKind::usage)});
  }
  peer.state = Peer::State::welcome;
  peer.connection->send(
      answer_to(peer, {{"type", "welcome"}, {"host", world_.host}, {"pid", ::getpid()}}));
}

std::string ControlServer::difference_of_runs(const nlohmann::json& hello) const {
  const std::int64_t size = integer_in(hello, "size");
  if (integer_in(hello, "protocol") != kProtocol) return "it runs another version of dpt";
  if (size != world_.size) {
    return fmt::format("it was started in a world of {} processes, but this run has {}", size,
                       world_.size);
  }
  const RunIdentity its{printable_in(hello, "title"), text_in(hello, "options"),
                        text_in(hello, "config"), text_in(hello, "content")};
  if (options_.run.may_be_same(its)) return {};
  const bool same_options = its.options == options_.run.options;
  return fmt::format("it runs {} with {}, while this run is {}", its.title,
                     same_options ? "another config" : "other options", options_.run.title);
}

void ControlServer::refuse_other_run(Peer& peer, const std::string& its_name,
                                     const std::string& why) {
  if (all_came()) {
    warn_of_refused(peer.connection->address(), fmt::format("{}: {}", its_name, why));
    return refuse(peer, "stranger", "the job that listens there already has all of its processes");
  }
  const std::string named = fmt::format("{}, {}", its_name, why);
  const bool is_known = other_runs_.count(named) != 0;
  if (other_runs_.size() < kMaxNamed) other_runs_.insert(named);
  const std::string text = fmt::format("{} belongs to another run: {}", its_name, why);
  // The process tries again repeatedly, so report it only once.
  if (is_known) {
    ++refused_;
    last_refused_ = fmt::format("{}: {}", peer.connection->address(), text);
  } else {
    warn_of_refused(peer.connection->address(), text);
  }
  refuse(peer, "stranger",
         fmt::format("another run listens there ({} on host {}, pid {}): this process was refused "
                     "because {}. Give each run a port of its own, or a name (DPT_JOB)",
                     options_.run.title.empty() ? "dpt" : options_.run.title, world_.host,
                     ::getpid(), why));
}

std::string ControlServer::misfit(const Peer& peer, const nlohmann::json& hello) const {
  const std::int64_t protocol = integer_in(hello, "protocol");
  const std::int64_t size = integer_in(hello, "size");
  const std::string its_name =
      fmt::format("rank {} (host {}, pid {})", integer_in(hello, "rank"), peer.host, peer.pid);
  if (protocol != kProtocol) {
    return fmt::format(
        "{} runs another version of dpt: it speaks version {} of the control channel's protocol, "
        "but {} speaks version {}. All processes must run the same dpt",
        its_name, protocol, name(0), kProtocol);
  }
  if (size != world_.size) {
    return fmt::format("{} was started in a world of {} processes, but {} in one of {}", its_name,
                       size, name(0), world_.size);
  }
  if (peer.rank < 0) {
    return fmt::format("{}: the ranks of a world of {} are 0 to {} ({})", its_name, world_.size,
                       world_.size - 1, name(0));
  }
  if (members_[peer.rank].peer != 0) return duplicate_text(peer);
  return {};
}

std::string ControlServer::duplicate_text(const Peer& peer) const {
  const Member& member = members_[peer.rank];
  return fmt::format("two processes claim to be rank {}: pid {} on host {} and pid {} on host {}",
                     peer.rank, member.pid, member.host, peer.pid, peer.host);
}

void ControlServer::on_present(std::uint64_t id) {
  Peer& peer = peers_.at(id);
  Member& member = members_[peer.rank];
  if (member.peer != 0) {
    // Two processes with this rank were welcome, and the other one confirmed first.
    fail_world({peer.rank, duplicate_text(peer), false, static_cast<int>(ErrorKind::usage)});
  }
  if (failure_) return dismiss(peer, json_of(*failure_));
  --strangers_;
  peer.state = Peer::State::is_member;
  peer.deadline.reset();
  peer.connection->allow(kMaxKnown);
  member.peer = id;
  member.host = peer.host;
  member.pid = peer.pid;
  if (++came_ == world_.size) send_to_all(make_frame({{"type", "joined"}}));
  accept();
}

void ControlServer::refuse(Peer& peer, const char* kind, const std::string& why) {
  dismiss(peer, {{"type", "refused"}, {"kind", kind}, {"why", why}});
}

Frame ControlServer::answer_to(const Peer& peer, nlohmann::json answer) const {
  if (peer.has_proven()) answer["proof"] = peer.proof;
  return make_frame(answer);
}

void ControlServer::dismiss(Peer& peer, const nlohmann::json& answer) {
  const Frame frame = answer_to(peer, answer);
  peer.state = Peer::State::refused;
  peer.connection->send(frame);
  peer.connection->finish();
}

void ControlServer::warn_of_refused(const std::string& address, const std::string& why) {
  ++refused_;
  last_refused_ = fmt::format("{}: {}", address, why);
  if (refused_ > kMaxReported && !is_power_of_ten(refused_)) return;
  warn(fmt::format("refused a connection to the control channel from {}: {}{}", address, why,
                   refused_ > kMaxReported ? fmt::format(" ({} refused so far)", refused_) : ""));
}

void ControlServer::warn(const std::string& text) noexcept {
  try {
    if (options_.warn) options_.warn(text);
  } catch (...) {  // this thread does not report failures of the log
  }
}

}  // namespace dpt::control
