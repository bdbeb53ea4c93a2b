// Links between processes over TCP by Gloo. It moves bytes and nothing else: what is added stays
// ours, so that the bits do not depend on a library. Every message has a tag of its own, made of
// its place in the sequence of exchanges and its size, because Gloo ends the process when two ends
// disagree about a size: ends that disagree wait instead, and the control channel names them.
#include <algorithm>
#include <mutex>

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "engine/collectives/process_links.h"
#include "kernels/error.h"

namespace dpt {
namespace {

using gloo::transport::UnboundBuffer;

// Gloo waits five times as long for the other end of a new connection.
constexpr std::chrono::milliseconds kConnect{4000};
// Each pair of processes has a port that listens for one connection: a stranger's takes the place
// of the other process. It costs an attempt.
constexpr int kAttempts = 3;
// Nothing here decides that a process is too slow: the control channel does, and aborts.
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(24 * 365);

class GlooLinks : public ProcessLinks {
 public:
  GlooLinks(int rank, int size) : rank_(rank), size_(size) {}
  ~GlooLinks() override {
    for (int p = 0; p < size_; ++p) {
      if (p != rank_ && context_) context_->getPair(p)->close();
    }
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  /// Collective, once: connects to all others and hears from them. The result is why not, or empty;
  /// the others may have come further. Throws what no other attempt would change.
  std::string connect(const std::string& address, const GatherTexts& gather) {
    const std::vector<std::string> all = gather(listen(address));
    try {
      connect(all);
      greet();
    } catch (const Error& error) {
      return error.what();
    } catch (const std::exception& error) {
      return fmt::format("rank {}: {}", rank_, error.what());
    }
    timeout_ = kForEver;
    return {};
  }

  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive, const char* operation) override {
    const std::uint64_t sequence = ++sequence_;
    std::vector<Transfer> transfers;
    const Present present(*this, transfers);
    int peer = 0;
    try {
      // What is to arrive first, so that no sender waits for a place.
      for (int i = 1; i < size_; ++i) {
        peer = (rank_ + size_ - i) % size_;
        const std::span<std::byte> to = receive[static_cast<std::size_t>(peer)];
        if (to.empty()) continue;
        start(transfers, peer, to.data(), to.size(), true);
        transfers.back().buffer->recv(peer, tag(sequence, to.size()));
      }
      for (int i = 1; i < size_; ++i) {
        peer = (rank_ + i) % size_;
        const std::span<const std::byte> from = send[static_cast<std::size_t>(peer)];
        if (from.empty()) continue;
        // Gloo's buffers are not const, but it only reads what it sends.
        start(transfers, peer, const_cast<std::byte*>(from.data()), from.size(), false);
        transfers.back().buffer->send(peer, tag(sequence, from.size()));
      }
      bool whole = true;
      for (const Transfer& transfer : transfers) {
        peer = transfer.peer;
        whole = whole && (transfer.receives ? transfer.buffer->waitRecv(timeout_)
                                            : transfer.buffer->waitSend(timeout_));
        if (!whole) break;
      }
      if (!whole) throw_aborted(operation);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_aborted(operation, peer, error.what());
    }
  }

  void abort(const std::string& cause) noexcept override {
    const std::lock_guard lock(mutex_);
    if (!aborted_) {
      aborted_ = true;
      try {
        cause_ = cause;
      } catch (const std::bad_alloc&) {
        cause_.clear();
      }
    }
    if (!present_) return;
    for (const Transfer& transfer : *present_) {
      transfer.buffer->abortWaitRecv();
      transfer.buffer->abortWaitSend();
    }
  }

 private:
  struct Transfer {
    int peer;
    bool receives;
    std::unique_ptr<UnboundBuffer> buffer;
  };

  /// Shows `abort` the transfers of an exchange for as long as it lasts.
  class Present {
   public:
    Present(GlooLinks& links, std::vector<Transfer>& transfers) : links_(links) {
      const std::lock_guard lock(links_.mutex_);
      links_.present_ = &transfers;
    }
    Present(const Present&) = delete;
    ~Present() {
      const std::lock_guard lock(links_.mutex_);
      links_.present_ = nullptr;
    }

   private:
    GlooLinks& links_;
  };

  static std::uint64_t tag(std::uint64_t sequence, std::size_t bytes) {
    // 2^24 exchanges later a tag may come again, and 2^40 bytes are more than one has.
    return (sequence & 0xFFFFFF) << 40 | (bytes & 0xFFFFFFFFFF);
  }

  /// Makes a listening end for each other process; the addresses of all of them, one after the
  /// other.
  std::string listen(const std::string& address) {
    try {
      gloo::transport::tcp::attr attributes;
      attributes.hostname = address;
      device_ = gloo::transport::tcp::CreateDevice(attributes);
      context_ = device_->createContext(rank_, size_);
      context_->setTimeout(kConnect);
      std::string mine;
      for (int p = 0; p < size_; ++p) {
        if (p == rank_) continue;
        const std::vector<char> bytes = context_->createPair(p)->address().bytes();
        width_ = bytes.size();
        mine.append(bytes.begin(), bytes.end());
      }
      return mine;
    } catch (const std::exception& error) {
      fail(ErrorKind::peer, "rank {}: cannot listen for the other processes at {}: {}", rank_,
           address, error.what());
    }
  }

  void connect(const std::vector<std::string>& addresses) {
    for (int p = 0; p < size_; ++p) {
      if (p == rank_) continue;
      const std::string& theirs = addresses[static_cast<std::size_t>(p)];
      if (theirs.size() != width_ * static_cast<std::size_t>(size_ - 1)) {
        fail(ErrorKind::peer,
             "rank {}: expected {} addresses of {} bytes from rank {}, found {} bytes: "
             "the processes must run the same build of dpt",
             rank_, size_ - 1, width_, p, theirs.size());
      }
      const auto slot = static_cast<std::size_t>(rank_ < p ? rank_ : rank_ - 1);
      const char* address = theirs.data() + width_ * slot;
      context_->getPair(p)->connect({address, address + width_});
    }
  }

  /// A connection may be a stranger's, or one that the other end never took: each process says its
  /// rank.
  void greet() {
    const auto places = static_cast<std::size_t>(size_);
    const std::vector<int> mine(1, rank_);
    std::vector<int> heard(places, -1);
    std::vector<std::span<const std::byte>> send(places, std::as_bytes(std::span(mine)));
    std::vector<std::span<std::byte>> receive;
    for (int& rank : heard) receive.push_back(std::as_writable_bytes(std::span(&rank, 1)));
    exchange(send, receive, "greeting");
    for (int p = 0; p < size_; ++p) {
      const int rank = heard[static_cast<std::size_t>(p)];
      if (p == rank_ || rank == p) continue;
      fail(ErrorKind::peer, "rank {}: what should be rank {} says that it is rank {}", rank_, p,
           rank);
    }
  }

  void start(std::vector<Transfer>& transfers, int peer, std::byte* data, std::size_t bytes,
             bool receives) {
    const std::lock_guard lock(mutex_);
    if (aborted_) fail(ErrorKind::peer, "rank {}: {}", rank_, cause_);
    transfers.push_back({peer, receives, context_->createUnboundBuffer(data, bytes)});
  }

  [[noreturn]] void throw_aborted(const char* operation, int peer = -1,
                                  const std::string& why = {}) {
    const std::lock_guard lock(mutex_);
    if (aborted_) fail(ErrorKind::peer, "rank {}: {} was stopped: {}", rank_, operation, cause_);
    fail(ErrorKind::peer, "rank {}: {}: the connection to rank {} broke: {}", rank_, operation,
         peer, why);
  }

  const int rank_, size_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::size_t width_ = 0;  ///< bytes of an address
  std::chrono::milliseconds timeout_ = kConnect;
  std::uint64_t sequence_ = 0;
  std::mutex mutex_;
  bool aborted_ = false;
  std::string cause_;
  std::vector<Transfer>* present_ = nullptr;  ///< of the exchange under way, for abort
};

}  // namespace

bool gloo_is_built_in() {
  return true;
}

std::unique_ptr<ProcessLinks> make_gloo_links(int rank, int size, const std::string& address,
                                              const GatherTexts& gather) {
  std::string problem;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto links = std::make_unique<GlooLinks>(rank, size);
    problem = links->connect(address, gather);
    const std::vector<std::string> problems = gather(problem);
    const auto first = std::find_if(problems.begin(), problems.end(),
                                    [](const std::string& text) { return !text.empty(); });
    if (first == problems.end()) return links;
    problem = *first;
  }
  fail(ErrorKind::peer, "rank {}: cannot connect the processes at {}, tried {} times: {}", rank,
       address, kAttempts, problem);
}

}  // namespace dpt
