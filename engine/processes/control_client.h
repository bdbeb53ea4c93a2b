// A process's side of the control channel: its connection to rank 0, and the implementation of
// ControlChannel on top of it. A separate thread sends beats and receives messages.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/processes/control_reach.h"
#include "engine/processes/control_types.h"
#include "engine/processes/control_wire.h"
#include "engine/processes/world.h"

namespace dpt::control {

/// Implementation of ControlChannel, where the functions that both have are documented.
class ControlClient {
 public:
  /// Connects, and returns when all processes are connected. `known`: as for reach_rank_0.
  ControlClient(const World& world, const ControlOptions& options, const tcp::endpoint* known);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;

  std::string local_address() const { return connection_->own_address(); }
  std::vector<std::string> all_gather(const std::string& what, const std::string& mine);
  void watch(std::vector<std::shared_ptr<Heartbeat>> heartbeats);
  void set_stall_timeout(std::chrono::milliseconds timeout);
  void begin_wait(const char* operation);
  void end_wait();
  void on_failure(std::function<void(const WorldFailure&)> callback);
  std::optional<WorldFailure> failure() const;
  std::optional<WorldFailure> wait_for_failure(std::chrono::milliseconds timeout) const;
  void fail(const std::string& text, int exit_code);
  void leave();

 private:
  /// Report of this process about itself.
  struct Beat {
    std::string place, waits_in;
    std::int64_t progress = 0;
    std::chrono::milliseconds quiet{0};
  };

  /// Returns when all processes are connected.
  void wait_for_all();

  // Functions that run on the channel's thread.
  void tick();
  /// Sets a failure and returns true if the time to join is over and rank 0 does not answer.
  bool gives_up_joining(Clock::duration span);
  void on_message(Message&& message);
  void on_gathered(const Message& message);
  void on_end(const std::string& why);
  void set_failure(WorldFailure failure);
  void call_back();
  Beat next_beat(Clock::duration span);
  std::string name_of_rank_0() const;

  // Functions that require mutex_ to be held.
  std::string place() const;
  /// Takes part in a collective call and waits until all processes have done so.
  void meet(std::unique_lock<std::mutex>& lock, const std::string& what, const std::string& mine,
            bool leaves);

  const World world_;
  const ControlOptions options_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer timer_;
  std::shared_ptr<Connection> connection_;
  std::string host_of_rank_0_;
  std::int64_t pid_of_rank_0_ = 0;

  // Members that only the channel's thread uses.
  RunningTime time_;
  std::string place_of_rank_0_ = "before its first step";
  Clock::duration joining_{0};
  Clock::duration rank_0_silent_{0};
  Clock::duration since_beat_{0};
  Clock::duration quiet_{0};
  std::int64_t last_progress_ = 0;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Clock::duration stall_timeout_;
  SilenceLimit silence_limit_;
  std::vector<std::shared_ptr<Heartbeat>> watched_;
  std::uint64_t beats_of_ours_ = 0;  // beats by this channel, included in the beats of watched_
  std::int64_t waits_ = 0;           // number of waits begun plus number of waits ended
  const char* waits_in_ = nullptr;
  std::string meets_in_;  // the channel's own collective call in progress; empty = none
  bool has_joined_ = false, has_left_ = false;
  std::optional<std::vector<std::string>> gathered_;
  std::optional<WorldFailure> failure_;

  // Held while the callback runs, so that it is no longer running when a caller has removed it.
  std::mutex callback_mutex_;
  std::function<void(const WorldFailure&)> callback_;

  std::thread thread_;
};

}  // namespace dpt::control
