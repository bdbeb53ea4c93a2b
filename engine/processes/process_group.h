// This process's part in a world of several processes: the control channel, the links that carry
// gradients, and the handling of errors on any of them. A process without a launcher has no
// ProcessGroup.
//
// Process ranks are those of the World. Replicas are numbered over all processes, in the order of
// the process ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/collectives/process_links.h"
#include "engine/collectives/world_group.h"
#include "engine/processes/control.h"
#include "engine/processes/control_types.h"
#include "engine/processes/facts.h"
#include "engine/processes/world.h"
#include "kernels/devices.h"

namespace dpt {

/// Runs `read`, which parses the text `what` of process `rank`. Throws ErrorKind::peer if the text
/// is malformed.
void read_said(int rank, const char* what, const std::function<void()>& read);

class ProcessGroup {
 public:
  struct Options {
    RunIdentity run;
    std::chrono::milliseconds join_timeout = std::chrono::minutes(5);
    /// Receives warnings for the user. Called on any thread.
    std::function<void(const std::string&)> warn;
    /// Called if the process does not end by itself soon after a failure of the world (for example
    /// in a call that nothing wakes): prints the failure and ends the process. Never returns.
    std::function<void(const std::string& text, int exit_code)> end_process;
  };
  /// Joins the world; see ControlChannel::join. REQUIRES: !world.alone(). Throws ErrorKind::device
  /// if a process may not open as many descriptors as its connections need. While a run starts, a
  /// stop requested of this process or of another throws StopRequested.
  ProcessGroup(const World& world, const Options& options);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;

  const World& world() const { return world_; }
  bool is_first() const { return world_.rank == 0; }

  /// Description of a process, which it sends to the others before any data is loaded.
  struct Member {
    std::string host, address;  ///< `address`: its own, on the interface by which it reaches rank 0
    int pid = 0, local_rank = 0;
    std::string visible_gpus;  ///< CUDA_VISIBLE_DEVICES
    std::vector<DeviceName> devices;
  };
  /// Exchanges the Members of all processes and returns them by rank. Collective. Throws
  /// ErrorKind::usage if two processes of a machine would use the same GPU.
  const std::vector<Member>& introduce(const std::vector<DeviceName>& devices);
  const std::vector<Member>& members() const { return members_; }
  /// Compares the facts of all processes. Collective; call it before the first sum. Throws
  /// ErrorKind::usage with the first difference.
  void compare(const Facts& facts);
  /// Creates the links, whose ends prove to each other that they know DPT_TOKEN or, if it is not
  /// set, a token that rank 0 draws. Collective. Throws as make_tcp_links does.
  void connect();

  /// Returns rank 0's text on every process. Collective.
  std::string share(const std::string& what, const std::string& text);
  /// Copies rank 0's bytes to every process. The size must be the same on all processes.
  /// Collective; call it after connect.
  void share(std::span<std::byte> bytes, const char* what);

  /// Creates the group of this process's ranks, which are threads, for one run, and watches their
  /// heartbeats. The group is aborted when the world fails.
  std::shared_ptr<WorldGroup> make_group(std::chrono::milliseconds stall_timeout);

  /// Joins the others only to report that this process failed. If they cannot be told, does
  /// nothing.
  static void report_failed_start(const World& world, const Options& options,
                                  const std::string& text, ErrorKind kind);

  /// Tells all other processes about this process's error. A stop requested before the first step
  /// is reported too, and stops the others as well. Does not report consequences of a failure
  /// elsewhere (ErrorKind::peer).
  void report(const std::exception& error) noexcept;
  /// Runs `body`. Reports an exception to all processes, and replaces it with the first cause in
  /// the world if that is a different one. While the run starts, a requested stop takes precedence
  /// (StopRequested).
  int guard(const std::function<int()>& body);
  /// Returns the first failure in the world; empty if there is none. Waits for a moment, because
  /// the consequences of a failure may be noticed before its report arrives.
  std::optional<WorldFailure> wait_for_cause();
  /// Keeps the process from being ended after a failure while something is saved.
  class Saving {
   public:
    explicit Saving(ProcessGroup& group) : group_(group) { ++group_.saving_; }
    Saving(const Saving&) = delete;
    ~Saving() { --group_.saving_; }

   private:
    ProcessGroup& group_;
  };
  /// Records that the run has a checkpoint, from which the same command continues. Thread-safe.
  void set_has_checkpoint() { has_checkpoint_ = true; }
  /// Waits for all processes at the end of the run. Collective.
  void leave();

 private:
  /// Returns the text of a failure and, if a process was lost, the place of this process and the
  /// remedy.
  std::string text_of(const WorldFailure& failure) const;
  void on_failure(const WorldFailure& failure);
  void watch_end(const WorldFailure& failure);

  const World world_;
  const Options options_;
  std::vector<Member> members_;
  std::unique_ptr<ControlChannel> control_;
  TellWaiting waiting_;
  std::unique_ptr<ProcessLinks> links_;
  std::unique_ptr<ProcessLinks> links_beside_;  ///< links for sums that overlap with computation
  std::atomic<int> saving_{0};
  std::atomic<bool> has_checkpoint_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::weak_ptr<WorldGroup> group_;                     // guarded by mutex_
  std::vector<std::shared_ptr<Heartbeat>> heartbeats_;  // guarded by mutex_; of own ranks
  bool has_ended_ = false;                              // guarded by mutex_
  std::thread ender_;
};

}  // namespace dpt
