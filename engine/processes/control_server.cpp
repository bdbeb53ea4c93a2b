#include "engine/processes/control_server.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "engine/processes/control_reach.h"
#include "engine/processes/control_text.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"

namespace dpt::control {
namespace {

// Time for the last messages to arrive before the connections are closed.
constexpr std::chrono::seconds kLastWait{1};

}  // namespace

ControlServer::ControlServer(const World& world, const ControlOptions& options)
    : world_(world),
      options_(options),
      stall_timeout_(options.stall_timeout),
      silence_limit_(SilenceLimit::at_start(options)) {
  members_.resize(static_cast<std::size_t>(world.size));
  endpoint_ = listen(world, acceptor_, options);
  asio::post(io_, [this] {
    accept();
    tick();
  });
  thread_ = start_channel_thread("the control channel of rank 0", [this] {
    try {
      io_.run();
    } catch (const std::exception& error) {
      // The world cannot continue without its server. Close the connections, so that the processes
      // notice.
      warn(fmt::format("the control channel of rank 0 failed: {}", error.what()));
      for (auto& [id, peer] : peers_) peer.connection->close();
    }
  });
}

ControlServer::~ControlServer() {
  asio::post(io_, [this] { close(); });
  thread_.join();
}

void ControlServer::set_stall_timeout(std::chrono::milliseconds timeout) {
  asio::post(io_, [this, timeout] {
    stall_timeout_ = timeout;
    silence_limit_ = {timeout};
  });
}

void ControlServer::close() {
  is_closing_ = true;
  std::error_code ignored;
  acceptor_.close(ignored);
  timer_.cancel();
  fail_world(
      {0, fmt::format("{} was lost: its connection ended{}", name(0), last_seen(0)), true, 0});
  for (auto at = peers_.begin(); at != peers_.end();) {
    const auto peer = at++;
    if (peer->second.is_stranger()) remove(peer->first);
  }
  last_wait_.expires_after(kLastWait);
  last_wait_.async_wait([this](const std::error_code&) { io_.stop(); });
  stop_if_done();
}

void ControlServer::stop_if_done() {
  if (is_closing_ && peers_.empty()) io_.stop();
}

std::string ControlServer::name(int rank) const {
  if (rank == 0) return name_of(0, world_.host, ::getpid());
  const Member& member = members_[rank];
  return name_of(rank, member.host, member.pid);
}

std::string ControlServer::last_seen(int rank) const {
  return fmt::format("; it was last {}", place_text(members_[rank].place));
}

void ControlServer::on_member_message(int rank, Message&& message) {
  Member& member = members_[rank];
  member.silent = Clock::duration{0};
  const std::string type = text_in(message.head, "type");
  if (type == "beat") {
    on_beat(member, message.head);
  } else if (type == "gather") {
    on_gather(rank, std::move(message));
  } else if (type == "fail") {
    fail_world(failure_in(message.head));
  }
}

void ControlServer::on_beat(Member& member, const nlohmann::json& beat) {
  member.place = printable_in(beat, "place");
  member.waits_in = printable_in(beat, "waits_in");
  member.quiet = std::chrono::milliseconds(integer_in(beat, "quiet"));
  const std::int64_t progress = integer_in(beat, "progress");
  if (std::exchange(member.progress, progress) != progress) all_wait_ = Clock::duration{0};
}

void ControlServer::on_gather(int rank, Message&& message) {
  if (failure_ || all_left_) return;
  Member& member = members_[rank];
  member.what = printable_in(message.head, "what");
  member.leaves = message.head.at("leaves").get<bool>();
  member.said = std::move(message.bytes);
  all_wait_ = Clock::duration{0};
  std::size_t bytes = 0;
  for (int other = 0; other < world_.size; ++other) {
    const Member& its = members_[other];
    bytes += its.said.size();
    if (!its.has_said || (its.what == member.what && its.leaves == member.leaves)) continue;
    return fail_world({rank,
                       fmt::format("the processes are not at the same point: {} is in '{}', {} in "
                                   "'{}'",
                                   name(other), its.what, name(rank), member.what),
                       false, 0});
  }
  if (bytes > kMaxGathered) {
    return fail_world({rank,
                       fmt::format("'{}' is too large for the control channel: {} bytes from the "
                                   "processes so far, more than the limit of {}",
                                   member.what, bytes, kMaxGathered),
                       false, 0});
  }
  member.has_said = true;
  if (++said_ < world_.size) return;
  said_ = 0;
  std::string all;
  nlohmann::json sizes = nlohmann::json::array();
  for (Member& its : members_) {
    sizes.push_back(its.said.size());
    all += its.said;
    its.said = std::string();
    its.has_said = false;
  }
  if (member.leaves) {
    all_left_ = true;
    send_left();
  } else {
    send_to_all(make_frame({{"type", "gathered"}, {"sizes", sizes}}, all));
  }
}

/// Notifies rank 0 last: its process may end immediately, and unsent messages would be lost.
void ControlServer::send_left() {
  const Frame frame = make_frame({{"type", "left"}});
  const auto connection_of = [this](std::size_t rank) -> Connection* {
    const auto at = peers_.find(members_[rank].peer);
    return at == peers_.end() ? nullptr : at->second.connection.get();
  };
  const auto waiting = std::make_shared<int>(1);
  const auto sent = [connection_of, frame, waiting] {
    if (--*waiting > 0) return;
    if (Connection* of_rank_0 = connection_of(0)) of_rank_0->send(frame);
  };
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    Connection* connection = connection_of(rank);
    if (!connection) continue;
    ++*waiting;
    connection->send(frame);
    connection->when_sent(sent);
  }
  sent();
}

void ControlServer::on_join_timeout() {
  std::vector<int> missing;
  std::map<std::string, std::vector<int>> came;
  for (int rank = 0; rank < world_.size; ++rank) {
    const Member& member = members_[rank];
    if (member.peer == 0) {
      missing.push_back(rank);
    } else {
      came[member.host].push_back(rank);
    }
  }
  std::string those;
  for (const auto& [host, ranks] : came) {
    those += fmt::format("{}{} (host {})", those.empty() ? "" : ", ", ranks_text(ranks), host);
  }
  std::string others;
  for (const std::string& process : other_runs_) {
    others += (others.empty() ? ". Refused as members of another run: " : "; ") + process;
  }
  fail_world(
      {missing.front(),
       fmt::format(
           "{} did not join within {}; {} of {} processes joined: {}. Rank 0 listens on {}{}{}",
           ranks_text(missing), seconds_text(options_.join_timeout), came_, world_.size, those,
           text_of(endpoint_),
           refused_ == 0 ? std::string()
                         : fmt::format(", and has refused {} connection{}, most recently "
                                       "from {}",
                                       refused_, refused_ == 1 ? "" : "s", last_refused_),
           others),
       true, 0});
}

void ControlServer::tick() {
  const Clock::duration period = beat_period(options_.beat_every, stall_timeout_);
  const Clock::duration span = time_.since_last_look(period);
  if (!failure_ && !all_left_) {
    watch_members(span);
    if (all_came()) {
      watch_for_deadlock(span);
    } else {
      joining_ += span;
      if (joining_ >= options_.join_timeout) on_join_timeout();
    }
    send_beats(span);
  }
  accepted_ = 0;
  accept();  // retry an attempt that failed for lack of descriptors
  timer_.expires_after(period);
  timer_.async_wait([this](const std::error_code&) {
    if (!is_closing_) tick();
  });
}

void ControlServer::watch_members(Clock::duration span) {
  for (int rank = 0; rank < world_.size; ++rank) {
    Member& member = members_[rank];
    if (member.peer == 0) continue;
    member.silent += span;
    if (member.silent >= silence_limit_.time) {
      fail_world(
          {rank,
           fmt::format("{} does not answer: nothing was received from it for {} ({}){}", name(rank),
                       seconds_text(silence_limit_.time), silence_limit_.option, last_seen(rank)),
           true, 0});
    } else if (all_came() && member.waits_in.empty() && member.quiet >= stall_timeout_) {
      fail_world({rank,
                  fmt::format("{} has stalled: it made no progress for {} (train.stall_timeout) {}",
                              name(rank), seconds_text(stall_timeout_), place_text(member.place)),
                  true, 0});
    }
  }
}

void ControlServer::watch_for_deadlock(Clock::duration span) {
  const Clock::duration known = 4 * beat_period(options_.beat_every, stall_timeout_);
  // A silent process does not count as waiting, because its state is unknown.
  const bool all_wait = std::all_of(members_.begin(), members_.end(), [&](const Member& member) {
    return !member.waits_in.empty() && member.silent < known;
  });
  all_wait_ = all_wait ? all_wait_ + span : Clock::duration{0};
  if (all_wait_ < stall_timeout_) return;
  std::map<std::string, std::vector<int>> by_place;
  for (int rank = 0; rank < world_.size; ++rank) {
    const Member& member = members_[rank];
    by_place[fmt::format("in {} {}", member.waits_in, place_text(member.place))].push_back(rank);
  }
  std::string places;
  for (const auto& [place, ranks] : by_place) {
    places += fmt::format("{}{} {}", places.empty() ? "" : "; ", ranks_text(ranks), place);
  }
  fail_world({-1,
              fmt::format(
                  "all processes have been waiting for each other for {} (train.stall_timeout): {}",
                  seconds_text(stall_timeout_), places),
              false, 0});
}

void ControlServer::send_beats(Clock::duration span) {
  const Frame beat = make_frame({{"type", "beat"}, {"place", members_[0].place}});
  for (Member& member : members_) {
    if (member.peer == 0) continue;
    member.since_beat += span;
    // A suspended process reads nothing. Send it few beats: a full buffer would end the connection
    // after network_timeout.
    const bool reads = member.silent <= options_.network_timeout;
    if (!reads && member.since_beat < options_.network_timeout) continue;
    member.since_beat = Clock::duration{0};
    peers_.at(member.peer).connection->send(beat);
  }
}

void ControlServer::fail_world(WorldFailure failure) {
  if (failure_ || all_left_) return;
  failure_ = std::move(failure);
  send_to_all(make_frame(json_of(*failure_)));
}

void ControlServer::send_to_all(const Frame& frame) {
  for (const Member& member : members_) {
    if (member.peer != 0) peers_.at(member.peer).connection->send(frame);
  }
}

}  // namespace dpt::control
