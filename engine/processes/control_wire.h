// Messages of the control channel and the connections that carry them. A message is four bytes of
// length (most significant first) and a JSON object, followed by a zero byte and raw bytes if it
// carries any. (The text of a JSON object contains no zero byte.)
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/processes/control_types.h"

namespace dpt::control {

using Clock = std::chrono::steady_clock;
using tcp = asio::ip::tcp;

inline constexpr const char* kMagic = "dpt-control";
inline constexpr int kProtocol = 3;
/// Maximum size of a message from a process that has not yet proven that it belongs to the world.
inline constexpr std::size_t kMaxUnknown = 4096;
/// Maximum number of bytes of all processes together in one all_gather.
inline constexpr std::size_t kMaxGathered = std::size_t{16} << 20;
/// Maximum size of a message from a process of the world: 1 MiB for the JSON object in addition to
/// kMaxGathered.
inline constexpr std::size_t kMaxKnown = kMaxGathered + (std::size_t{1} << 20);

/// Reason for ending a connection whose other end does not speak this protocol.
inline constexpr const char* kNoMessage = "what it sent is not a message of dpt";

struct Message {
  nlohmann::json head;
  std::string bytes;
};

/// A message as bytes to send; shared, because it is often sent to all processes.
using Frame = std::shared_ptr<const std::string>;
Frame make_frame(const nlohmann::json& head, std::string_view bytes = {});

/// Returns a member of a message. Throws nlohmann::json::exception if it is missing or of another
/// type. The exception ends the connection from which the message came.
std::string text_in(const nlohmann::json& head, const char* key);
/// Returns the text with its control characters escaped, for messages to the user.
std::string printable_in(const nlohmann::json& head, const char* key);
std::int64_t integer_in(const nlohmann::json& head, const char* key);

nlohmann::json json_of(const WorldFailure& failure);
WorldFailure failure_in(const nlohmann::json& head);

/// Returns an endpoint as "127.0.0.1:29500".
std::string text_of(const tcp::endpoint& endpoint);

/// Clock that counts only the time in which this process ran. An interval counts for at most twice
/// its planned length, so that a process that was suspended does not consider the others silent.
class RunningTime {
 public:
  Clock::duration since_last_look(Clock::duration planned);

 private:
  Clock::time_point last_ = Clock::now();
};

/// Time for which a process may send nothing, not even a beat, and the option that sets it.
struct SilenceLimit {
  Clock::duration time{};
  const char* option = "train.stall_timeout";

  /// Returns the limit that applies until the run has set its stall timeout. It is at most the join
  /// timeout (but at least five seconds), so that a suspended or lost process delays a start no
  /// longer than that.
  static SilenceLimit at_start(const ControlOptions& options);
};

/// Returns the time between two beats: `beat_every`, or less, so that a stall timeout covers
/// several beats.
Clock::duration beat_period(std::chrono::milliseconds beat_every, Clock::duration stall_timeout);

/// One end of a connection. Its functions and handlers are called on the thread that runs the
/// io_context. Handlers are not called after close().
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Handlers {
    std::function<void(Message&&)> on_message;
    /// Called when the connection has ended, or received something other than a message. `why` is a
    /// text such as "its connection ended (reset by peer)".
    std::function<void(const std::string& why)> on_end;
  };

  /// `network_timeout`: see ControlOptions.
  Connection(tcp::socket socket, std::chrono::milliseconds network_timeout);
  /// Reads messages of at most `most` bytes from now on.
  void start(Handlers handlers, std::size_t most);
  void set_handlers(Handlers handlers);
  void allow(std::size_t most) { most_ = most; }

  void send(Frame frame);
  /// Calls `then` once everything queued was passed to the system, or the connection is over.
  void when_sent(std::function<void()> then);
  /// Sends everything that is queued, then closes this direction. Reads and ignores everything that
  /// still arrives until the other end closes too: closing a connection with unread bytes resets
  /// it, which may lose the bytes that were sent last.
  void finish();
  void close();

  /// Returns the address of the other end: "127.0.0.1:41234".
  const std::string& address() const { return address_; }
  /// Returns the address of this end, without a port; empty if it is no longer known.
  const std::string& own_address() const { return own_address_; }

 private:
  void read_length();
  void read_body();
  void dispatch();
  void write();
  void call_when_sent();
  void end_sending();
  void end(const std::string& why);

  tcp::socket socket_;
  std::string address_, own_address_;
  std::shared_ptr<const Handlers> handlers_;
  std::size_t most_ = 0;
  std::array<unsigned char, 4> length_{};
  std::string body_;
  std::deque<Frame> to_send_;
  std::function<void()> when_sent_;
  bool is_over_ = false;
  bool is_finishing_ = false;
};

}  // namespace dpt::control
