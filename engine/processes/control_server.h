// Rank 0's side of the control channel: accepts only the processes of the world, watches them, and
// distributes failures and results to all of them.
//
// A separate thread runs everything except the public functions. The process of rank 0 connects to
// the server like any other.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/processes/control_types.h"
#include "engine/processes/control_wire.h"
#include "engine/processes/world.h"

namespace dpt::control {

class ControlServer {
 public:
  /// Listens at once. If it cannot, throws ErrorKind::usage with a list of the attempts.
  ControlServer(const World& world, const ControlOptions& options);
  /// Sends pending messages, for at most a second.
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;

  tcp::endpoint endpoint() const { return endpoint_; }
  void set_stall_timeout(std::chrono::milliseconds timeout);

 private:
  /// A connection, at first to an unknown process.
  struct Peer {
    enum class State {
      unknown,     ///< has sent nothing yet
      challenged,  ///< said that it speaks this protocol, but has proven nothing yet
      welcome,     ///< belongs here, but has yet to confirm that it still wants to join
      refused,     ///< has been sent the reason why it cannot join
      is_member    ///< is process `rank` of the world
    };
    bool has_proven() const { return !proof.empty(); }
    /// Returns true if the connection has not identified itself yet.
    bool is_stranger() const { return state == State::unknown || state == State::challenged; }
    State state = State::unknown;
    std::shared_ptr<Connection> connection;
    std::unique_ptr<asio::steady_timer> deadline;  // time limit for becoming a member
    std::string its_nonce, nonce;                  // exchanged in the handshake
    std::string proof;  // rank 0's proof, for answers; empty until the process has proven itself
    int rank = -1;
    std::string host;
    std::int64_t pid = 0;
  };

  /// State of one process of the world.
  struct Member {
    std::uint64_t peer = 0;  // 0 = not connected
    std::string host;
    std::int64_t pid = 0;
    std::string place = "before its first step";  // the text of its heartbeat
    std::string waits_in;                         // empty = it does not wait for others
    std::int64_t progress = 0;
    std::chrono::milliseconds quiet{0};  // time without progress, as reported by the process
    Clock::duration silent{0};           // time since the last message from it
    Clock::duration since_beat{0};       // since the last beat sent to it
    bool has_said = false;               // true once it has contributed to the current collective
                                         // call
    bool leaves = false;                 // true if that call is leave(), its last one
    std::string what, said;
  };

  // Connections (control_server_peers.cpp).
  void accept();
  void add_peer(tcp::socket socket);
  /// Closes the oldest stranger, so that silent connections keep nobody out.
  void close_oldest_stranger();
  void on_message(std::uint64_t id, Message&& message);
  void on_end(std::uint64_t id, const std::string& why);
  void remove(std::uint64_t id);
  void on_greeting(std::uint64_t id, const nlohmann::json& greeting);
  void on_hello(std::uint64_t id, const nlohmann::json& hello);
  /// Returns true if the process has proven that it knows the token; otherwise refuses it.
  bool has_token(Peer& peer, const nlohmann::json& hello);
  /// Evaluates a hello whose proof is valid.
  void admit(Peer& peer, const nlohmann::json& hello);
  /// Returns true if this run has neither a token nor a name. A process that does not fit may then
  /// belong to another run, and is refused without failing the world.
  bool is_nameless() const { return world_.token.empty() && world_.job.empty(); }
  /// Returns the reason why the process belongs to another run, or an empty string. REQUIRES:
  /// is_nameless().
  std::string difference_of_runs(const nlohmann::json& hello) const;
  void refuse_other_run(Peer& peer, const std::string& its_name, const std::string& why);
  void on_present(std::uint64_t id);
  /// Returns the reason why the process does not fit into this world, or an empty string. REQUIRES:
  /// its hello has a valid proof.
  std::string misfit(const Peer& peer, const nlohmann::json& hello) const;
  std::string duplicate_text(const Peer& peer) const;
  /// Refuses the process. `kind`: "usage" = it must give up; "stranger" = it may belong to another
  /// world and tries again.
  void refuse(Peer& peer, const char* kind, const std::string& why);
  /// Sends the process a last answer and closes the connection.
  void dismiss(Peer& peer, const nlohmann::json& answer);
  /// Returns the answer, with rank 0's proof if the process has proven itself.
  Frame answer_to(const Peer& peer, nlohmann::json answer) const;
  void warn_of_refused(const std::string& address, const std::string& why);
  void warn(const std::string& text) noexcept;

  // The world.
  void on_member_message(int rank, Message&& message);
  void on_beat(Member& member, const nlohmann::json& beat);
  void on_gather(int rank, Message&& message);
  void on_join_timeout();
  void tick();
  void watch_members(Clock::duration span);
  void watch_for_deadlock(Clock::duration span);
  void send_beats(Clock::duration span);
  void fail_world(WorldFailure failure);
  void send_to_all(const Frame& frame);
  void send_left();
  void close();
  void stop_if_done();
  bool all_came() const { return came_ == world_.size; }
  std::string name(int rank) const;
  /// Returns "...; it was last at step 17, training".
  std::string last_seen(int rank) const;

  const World world_;
  const ControlOptions options_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_};
  tcp::endpoint endpoint_;
  asio::steady_timer timer_{io_};
  asio::steady_timer last_wait_{io_};
  RunningTime time_;
  Clock::duration stall_timeout_;
  SilenceLimit silence_limit_;
  Clock::duration joining_{0};
  Clock::duration all_wait_{0};

  std::map<std::uint64_t, Peer> peers_;
  std::uint64_t next_id_ = 1;
  int strangers_ = 0;     // peers that are not members
  bool accepts_ = false;  // true while an async_accept is pending
  int accepted_ = 0;      // connections accepted since the last tick
  std::int64_t refused_ = 0;
  std::string last_refused_;
  std::set<std::string> other_runs_;  // up to kMaxNamed processes of other runs, with reasons
  std::vector<Member> members_;
  int came_ = 0, said_ = 0;
  std::optional<WorldFailure> failure_;
  bool all_left_ = false;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace dpt::control
