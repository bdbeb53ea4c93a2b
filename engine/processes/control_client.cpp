#include "engine/processes/control_client.h"

#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cassert>
#include <limits>
#include <utility>

#include "engine/processes/control_text.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "kernels/base/stop_request.h"

namespace dpt::control {
namespace {

// Interval for polling stop requests, which wake no waiting thread.
constexpr std::chrono::milliseconds kLookForStop{50};
// Rank 0 counts as lost at the end of join_timeout if it has been silent for this time (or an
// eighth of the timeout, if shorter). Otherwise it reports the missing processes itself.
constexpr std::chrono::milliseconds kSilentRank0{2000};
// Time limit of fail().
constexpr std::chrono::seconds kTimeToFail{1};
constexpr std::size_t kMaxFailureText = 32768;

}  // namespace

ControlClient::ControlClient(const World& world, const ControlOptions& options,
                             const tcp::endpoint* known)
    : world_(world),
      options_(options),
      work_(asio::make_work_guard(io_)),
      timer_(io_),
      stall_timeout_(options.stall_timeout),
      silence_limit_(SilenceLimit::at_start(options)) {
  if (!heartbeat_of_thread()) set_heartbeat_of_thread(std::make_shared<Heartbeat>());
  watched_.push_back(heartbeat_of_thread());
  const Clock::time_point begun = Clock::now();
  Reached reached = reach_rank_0(world_, io_, known, options_);
  joining_ = Clock::now() - begun;
  connection_ = std::move(reached.connection);
  host_of_rank_0_ = std::move(reached.host);
  pid_of_rank_0_ = reached.pid;
  connection_->allow(kMaxKnown);
  connection_->set_handlers({[this](Message&& message) { on_message(std::move(message)); },
                             [this](const std::string& why) { on_end(why); }});
  asio::post(io_, [this] {
    connection_->send(make_frame({{"type", "present"}}));
    time_.since_last_look(Clock::duration{0});
    tick();
  });
  io_.restart();
  thread_ = start_channel_thread("the control channel", [this] {
    for (;;) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        set_failure({world_.rank,
                     fmt::format("the control channel of {} failed: {}",
                                 name_of(world_.rank, world_.host, ::getpid()), error.what()),
                     false, static_cast<int>(ErrorKind::unexpected)});
      }
    }
  });
  wait_for_all();
}

void ControlClient::wait_for_all() {
  bool is_stopped = false;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLookForStop, [&] { return has_joined_ || failure_; })) {
    const int code = options_.requested_stop ? options_.requested_stop() : 0;
    if (code == 0) continue;
    is_stopped = true;
    lock.unlock();
    fail(StopRequested().what(), code);
    lock.lock();
  }
  // If this process has joined, its next call reports the failure.
  if (has_joined_ && !is_stopped) return;
  const std::optional<WorldFailure> failure = failure_;
  lock.unlock();
  io_.stop();
  thread_.join();
  if (is_stopped) throw StopRequested();
  throw_failure(*failure);
}

ControlClient::~ControlClient() {
  io_.stop();
  thread_.join();
}

std::vector<std::string> ControlClient::all_gather(const std::string& what,
                                                   const std::string& mine) {
  std::unique_lock lock(mutex_);
  meet(lock, what, mine, false);
  return std::move(*gathered_);
}

void ControlClient::leave() {
  std::unique_lock lock(mutex_);
  meet(lock, "the end of the run", "", true);
}

void ControlClient::meet(std::unique_lock<std::mutex>& lock, const std::string& what,
                         const std::string& mine, bool leaves) {
  assert(meets_in_.empty() && !what.empty());
  if (mine.size() > kMaxGathered) {
    lock.unlock();
    fail(fmt::format("'{}' is too large for the control channel: {} bytes, more than the limit of "
                     "{} for all processes",
                     what, mine.size(), kMaxGathered),
         static_cast<int>(ErrorKind::unexpected));
    lock.lock();
  }
  if (!failure_) {
    meets_in_ = what;
    ++waits_;
    gathered_.reset();
    const Frame frame = make_frame({{"type", "gather"}, {"what", what}, {"leaves", leaves}}, mine);
    asio::post(io_, [this, frame] { connection_->send(frame); });
    changed_.wait(lock, [&] { return (leaves ? has_left_ : gathered_.has_value()) || failure_; });
    meets_in_.clear();
    ++waits_;
    // Return the result of a completed call even if the world failed right after it.
    if (leaves ? has_left_ : gathered_.has_value()) return;
  }
  dpt::fail(ErrorKind::peer, "{}", failure_->text);
}

void ControlClient::watch(std::vector<std::shared_ptr<Heartbeat>> heartbeats) {
  const std::lock_guard lock(mutex_);
  watched_ = std::move(heartbeats);
  ++waits_;
}

void ControlClient::set_stall_timeout(std::chrono::milliseconds timeout) {
  const std::lock_guard lock(mutex_);
  stall_timeout_ = timeout;
  silence_limit_ = {timeout};
}

void ControlClient::begin_wait(const char* operation) {
  const std::lock_guard lock(mutex_);
  assert(!waits_in_);
  waits_in_ = operation;
  ++waits_;
}

void ControlClient::end_wait() {
  const std::lock_guard lock(mutex_);
  waits_in_ = nullptr;
  ++waits_;
}

void ControlClient::on_failure(std::function<void(const WorldFailure&)> callback) {
  {
    const std::lock_guard lock(callback_mutex_);
    callback_ = std::move(callback);
  }
  asio::post(io_, [this] { call_back(); });
}

std::optional<WorldFailure> ControlClient::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<WorldFailure> ControlClient::wait_for_failure(
    std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return failure_.has_value(); });
  return failure_;
}

void ControlClient::fail(const std::string& text, int exit_code) {
  WorldFailure failure{world_.rank, "", false, exit_code};
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || has_left_) return;
    // All processes end with these codes: they are a result of the run, not a failure of this
    // process.
    const bool is_result = exit_code == static_cast<int>(ErrorKind::diverged) ||
                           exit_code == static_cast<int>(ErrorKind::requirement);
    failure.text = text.substr(0, kMaxFailureText);
    if (!is_result) {
      failure.text = fmt::format("{} failed {}: {}", name_of(world_.rank, world_.host, ::getpid()),
                                 place_text(place()), failure.text);
    }
  }
  nlohmann::json head = json_of(failure);
  head["type"] = "fail";
  const Frame frame = make_frame(head);
  asio::post(io_, [this, frame] { connection_->send(frame); });
  // Rank 0 then announces the first cause, which may be this one.
  if (!wait_for_failure(kTimeToFail)) set_failure(std::move(failure));
}

std::string ControlClient::place() const {
  const Heartbeat* last = nullptr;
  for (const auto& heartbeat : watched_) {
    // Find the thread for which the others of this process wait: the one with the fewest beats.
    if (!last || heartbeat->beats() < last->beats()) last = heartbeat.get();
  }
  return last ? last->text() : "before its first step";
}

ControlClient::Beat ControlClient::next_beat(Clock::duration span) {
  const std::lock_guard lock(mutex_);
  Beat beat;
  const bool waits = waits_in_ || !meets_in_.empty();
  if (waits) {
    beat.waits_in = waits_in_ ? waits_in_ : meets_in_;
    // Other threads of this process wait for the one in the collective call. Beat, so that they do
    // not consider it stalled. Pass a literal, because the heartbeat keeps the pointer.
    for (const auto& heartbeat : watched_) heartbeat->beat("waiting for other processes");
    beats_of_ours_ += watched_.size();
  }
  std::uint64_t beats = 0;
  for (const auto& heartbeat : watched_) beats += heartbeat->beats();
  beat.progress = static_cast<std::int64_t>(beats - beats_of_ours_) + waits_;
  beat.place = place();
  const bool is_quiet =
      std::exchange(last_progress_, beat.progress) == beat.progress && !waits && has_joined_;
  quiet_ = is_quiet ? quiet_ + span : Clock::duration{0};
  beat.quiet = std::chrono::duration_cast<std::chrono::milliseconds>(quiet_);
  return beat;
}

void ControlClient::tick() {
  Clock::duration stall_timeout{};
  SilenceLimit silence_limit;
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || has_left_) return;
    stall_timeout = stall_timeout_;
    silence_limit = silence_limit_;
  }
  const Clock::duration period = beat_period(options_.beat_every, stall_timeout);
  const Clock::duration span = time_.since_last_look(period);
  rank_0_silent_ += span;
  since_beat_ += span;
  const Beat beat = next_beat(span);
  // Send beats to a silent peer rarely, as the server does, so that its buffer does not fill while
  // it reads nothing.
  if (rank_0_silent_ <= options_.network_timeout || since_beat_ >= options_.network_timeout) {
    since_beat_ = Clock::duration{0};
    connection_->send(make_frame({{"type", "beat"},
                                  {"place", beat.place},
                                  {"waits_in", beat.waits_in},
                                  {"progress", beat.progress},
                                  {"quiet", beat.quiet.count()}}));
  }
  if (gives_up_joining(span)) return;
  if (rank_0_silent_ >= silence_limit.time) {
    WorldFailure failure{
        0,
        fmt::format("{} does not answer: nothing was received from it for {} ({}); it was last {}",
                    name_of_rank_0(), seconds_text(silence_limit.time), silence_limit.option,
                    place_text(place_of_rank_0_)),
        true, 0};
    // Tell rank 0 why the others are gone, in case it was suspended and wakes up.
    nlohmann::json head = json_of(failure);
    head["type"] = "fail";
    connection_->send(make_frame(head));
    return set_failure(std::move(failure));
  }
  timer_.expires_after(period);
  timer_.async_wait([this](const std::error_code&) { tick(); });
}

bool ControlClient::gives_up_joining(Clock::duration span) {
  {
    const std::lock_guard lock(mutex_);
    if (has_joined_) return false;
  }
  joining_ += span;
  const auto limit = std::min<Clock::duration>(kSilentRank0, options_.join_timeout / 8);
  if (joining_ < options_.join_timeout || rank_0_silent_ < limit) return false;
  set_failure(
      {0,
       fmt::format("{} does not answer: it accepted {} and has sent nothing for {}. The processes "
                   "did not all join within {} (--join-timeout). Is it suspended or overloaded?",
                   name_of_rank_0(), name_of(world_.rank, world_.host, ::getpid()),
                   seconds_text(rank_0_silent_), seconds_text(options_.join_timeout)),
       true, 0});
  return true;
}

void ControlClient::on_message(Message&& message) {
  rank_0_silent_ = Clock::duration{0};
  const std::string type = text_in(message.head, "type");
  if (type == "beat") {
    place_of_rank_0_ = printable_in(message.head, "place");
  } else if (type == "failure") {
    set_failure(failure_in(message.head));
  } else if (type == "joined") {
    const std::lock_guard lock(mutex_);
    has_joined_ = true;
    changed_.notify_all();
  } else if (type == "gathered") {
    on_gathered(message);
  } else if (type == "left") {
    connection_->close();
    const std::lock_guard lock(mutex_);
    has_left_ = true;
    changed_.notify_all();
  }
}

void ControlClient::on_gathered(const Message& message) {
  std::vector<std::string> all;
  std::size_t at = 0;
  bool is_whole = true;
  for (const nlohmann::json& entry : message.head.at("sizes")) {
    is_whole =
        entry.is_number_unsigned() && entry.get<std::uint64_t>() <= message.bytes.size() - at;
    if (!is_whole) break;
    all.push_back(message.bytes.substr(at, entry.get<std::size_t>()));
    at += all.back().size();
  }
  if (!is_whole || all.size() != static_cast<std::size_t>(world_.size) ||
      at != message.bytes.size()) {
    connection_->close();
    return on_end(kNoMessage);
  }
  const std::lock_guard lock(mutex_);
  gathered_ = std::move(all);
  changed_.notify_all();
}

void ControlClient::on_end(const std::string& why) {
  set_failure({0,
               fmt::format("{} was lost: {}; it was last {}", name_of_rank_0(), why,
                           place_text(place_of_rank_0_)),
               true, 0});
}

void ControlClient::set_failure(WorldFailure failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || has_left_) return;
    failure_ = std::move(failure);
    changed_.notify_all();
  }
  asio::post(io_, [this] {
    connection_->finish();
    call_back();
  });
}

void ControlClient::call_back() {
  const std::lock_guard lock(callback_mutex_);
  const std::optional<WorldFailure> failure = this->failure();
  if (!failure || !callback_) return;
  std::exchange(callback_, nullptr)(*failure);
}

std::string ControlClient::name_of_rank_0() const {
  return name_of(0, host_of_rank_0_, pid_of_rank_0_);
}

}  // namespace dpt::control
