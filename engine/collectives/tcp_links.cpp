// Links between processes over TCP. They only move bytes: dpt does all additions itself, so that
// the bits depend on nothing else. The thread that calls exchange does all the work: it writes as
// much as the connections accept and reads the bytes that have arrived, until all is done.
//
// Every message begins with its place in the sequence of exchanges and its size, so that two ends
// that disagree detect it.
#include "engine/collectives/tcp_links.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/collectives/link_connector.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

struct Header {
  std::uint64_t sequence = 0, bytes = 0;
};

/// One direction of a connection in an exchange.
struct Message {
  Header header;
  std::byte* data = nullptr;
  std::size_t done = 0;  ///< bytes transferred, including the header

  std::size_t size() const { return sizeof header + header.bytes; }
  bool is_done() const { return done == size(); }
  /// Returns the bytes of the header and of the data that are not transferred yet.
  std::array<iovec, 2> rest() {
    const std::size_t head = std::min(done, sizeof header), body = done - head;
    return {iovec{reinterpret_cast<std::byte*>(&header) + head, sizeof header - head},
            iovec{data + body, header.bytes - body}};
  }
};

class TcpLinks : public ProcessLinks {
 public:
  TcpLinks(int rank, std::vector<FileHandle> sockets)
      : rank_(rank),
        size_(static_cast<int>(sockets.size())),
        sockets_(std::move(sockets)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        out_(sockets_.size()),
        in_(sockets_.size()) {
    if (!wake_.is_open()) {
      fail(ErrorKind::device, "rank {}: eventfd failed: {}", rank, std::strerror(errno));
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive, const char* operation) override {
    operation_ = operation;
    if (aborted_.load()) throw_aborted();
    ++sequence_;
    left_ = 0;
    for (std::size_t p = 0; p < sockets_.size(); ++p) {
      out_[p] = in_[p] = {};
      out_[p].done = in_[p].done = sizeof(Header);
      if (!sockets_[p].is_open()) continue;
      // The cast is safe: data to send is never written to.
      begin(out_[p], const_cast<std::byte*>(send[p].data()), send[p].size());
      begin(in_[p], receive[p].data(), receive[p].size());
    }
    // Each process begins with a different peer, so that not all send to the same one.
    for (int i = 1; i < size_; ++i) {
      const int p = (rank_ + i) % size_;
      if (!out_[p].is_done()) write(p);
    }
    while (left_ > 0) wait();
  }

  void abort(const std::string& cause) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      if (aborted_.load()) return;
      try {
        cause_ = cause;
      } catch (const std::bad_alloc&) {
        cause_.clear();
      }
      aborted_.store(true);
    }
    // The event stays readable, so every later wait() throws at once.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
  }

 private:
  void begin(Message& message, std::byte* data, std::size_t bytes) {
    if (bytes == 0) return;
    message = {{sequence_, bytes}, data, 0};
    ++left_;
  }

  /// Waits for connections that are ready, and handles them.
  void wait() {
    ready_.assign(1, {wake_.fd(), POLLIN, 0});
    waited_.clear();
    for (int p = 0; p < size_; ++p) {
      const auto at = static_cast<std::size_t>(p);
      const int events = (in_[at].is_done() ? 0 : POLLIN) | (out_[at].is_done() ? 0 : POLLOUT);
      if (events == 0) continue;
      ready_.push_back({sockets_[at].fd(), static_cast<short>(events), 0});
      waited_.push_back(p);
    }
    // Wait without a limit: the control channel detects slow processes and aborts.
    if (poll(ready_.data(), ready_.size(), -1) < 0) {
      if (errno == EINTR) return;
      fail(ErrorKind::unexpected, "rank {}: {}: poll failed: {}", rank_, operation_,
           std::strerror(errno));
    }
    if (ready_[0].revents != 0) throw_aborted();
    for (std::size_t i = 0; i < waited_.size(); ++i) {
      const int p = waited_[i];
      const int events = ready_[i + 1].revents;
      const auto at = static_cast<std::size_t>(p);
      // After an error, read() and write() throw, but data that arrived before the error is read
      // first.
      if ((events & (POLLIN | POLLERR | POLLHUP)) != 0 && !in_[at].is_done()) read(p);
      if ((events & (POLLOUT | POLLERR | POLLHUP)) != 0 && !out_[at].is_done()) write(p);
    }
  }

  /// Returns the number of bytes moved; 0 if none can be moved now.
  std::size_t moved(int peer, ssize_t count) {
    if (count > 0) return static_cast<std::size_t>(count);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    throw_broken(peer, count == 0 ? "closed by the other end" : std::strerror(errno));
  }

  void write(int peer) {
    Message& message = out_[peer];
    std::array<iovec, 2> rest = message.rest();
    msghdr call = {};
    call.msg_iov = rest.data();
    call.msg_iovlen = rest.size();
    message.done += moved(peer, sendmsg(sockets_[peer].fd(), &call, MSG_NOSIGNAL));
    if (message.is_done()) --left_;
  }

  void read(int peer) {
    Message& message = in_[peer];
    const Header expected = message.header;
    const bool has_header = message.done >= sizeof(Header);
    std::array<iovec, 2> rest = message.rest();
    Header came = expected;
    if (!has_header) rest[0].iov_base = reinterpret_cast<std::byte*>(&came) + message.done;
    msghdr call = {};
    call.msg_iov = rest.data();
    call.msg_iovlen = rest.size();
    message.done += moved(peer, recvmsg(sockets_[peer].fd(), &call, 0));
    // Header bytes that have not arrived yet have their expected values.
    if (came.sequence != expected.sequence || came.bytes != expected.bytes) {
      throw_broken(peer, fmt::format("the processes disagree: expected exchange {} of {} bytes, "
                                     "found exchange {} of {} bytes",
                                     expected.sequence, expected.bytes, came.sequence, came.bytes));
    }
    if (message.is_done()) --left_;
  }

  [[noreturn]] void throw_aborted() {
    const std::lock_guard lock(mutex_);
    fail(ErrorKind::peer, "rank {}: {} was stopped: {}", rank_, operation_, cause_);
  }

  /// Breaks all links and throws: the connection may be in the middle of a message, so no exchange
  /// can follow.
  [[noreturn]] void throw_broken(int peer, const std::string& why) {
    if (aborted_.load()) throw_aborted();
    const std::string text = fmt::format("rank {}: {}: the connection to rank {} broke: {}", rank_,
                                         operation_, peer, why);
    abort(text);
    throw Error(ErrorKind::peer, text);
  }

  const int rank_, size_;
  const std::vector<FileHandle> sockets_;  ///< by rank
  const FileHandle wake_;                  ///< readable once aborted
  // State of the current exchange.
  const char* operation_ = "";
  std::uint64_t sequence_ = 0;
  std::vector<Message> out_, in_;
  int left_ = 0;  ///< unfinished messages
  std::vector<pollfd> ready_;
  std::vector<int> waited_;

  std::atomic<bool> aborted_{false};
  std::mutex mutex_;
  std::string cause_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<ProcessLinks> make_tcp_links(const LinkOptions& options,
                                             const GatherTexts& gather) {
  LinkConnector connector(options);
  const std::string problem = connector.connect(gather(connector.invitation()));
  // All processes throw the same problem, that of the first process that has one.
  for (const std::string& text : gather(problem)) {
    if (!text.empty()) throw Error(ErrorKind::peer, "cannot connect the processes: " + text);
  }
  return std::make_unique<TcpLinks>(options.rank, connector.take_sockets());
}

}  // namespace dpt
