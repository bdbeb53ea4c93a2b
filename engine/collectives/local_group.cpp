// Ranks as threads of one process. Every call is one meeting: each rank publishes its request and
// the addresses of its memory; then all check that the requests agree, work on each other's memory,
// and leave together.
//
// Devices with a queue never stop for a meeting: the threads meet, and each tells its device's
// queue to wait for the others' events. An event is waited for only after the meeting that follows
// its `record`, so no device ever waits for an event that is not queued yet, and an aborted rank
// blocks no other.
#include "engine/collectives/local_group.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "engine/collectives/abortable_barrier.h"
#include "engine/collectives/shared_peer_sums.h"
#include "engine/collectives/tree_sum.h"
#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

// Floats in a cache line: each rank writes only whole lines.
constexpr std::int64_t kLine = 16;

enum class Operation : std::uint8_t { all_reduce, broadcast, all_gather, barrier };

constexpr const char* name_of(Operation operation) {
  constexpr const char* kNames[] = {"all_reduce", "broadcast", "all_gather", "barrier"};
  return kNames[static_cast<int>(operation)];
}

struct Request {
  Operation operation = Operation::barrier;
  std::int64_t count = 0;   ///< floats in all_reduce, bytes in the other operations
  std::int64_t shards = 0;  ///< for all_reduce
  std::int64_t root = 0;    ///< for broadcast
  std::int64_t room = 0;    ///< all_gather: bytes of the output
  // Memory that the others may read, and memory to which they may write.
  std::span<const PartialSum> parts;
  DevPtr out;
  const Event* ready = nullptr;  ///< event: the parts are complete, and `out` may be written
  const Event* done = nullptr;   ///< event: this rank no longer uses the others' memory
  bool reaches_all = false;      ///< true if this rank's backend can use the memory of all others
  const std::byte* source = nullptr;

  bool wants_the_same(const Request& other) const {
    return operation == other.operation && count == other.count && shards == other.shards &&
           root == other.root && room == other.room;
  }
  std::string text() const {
    switch (operation) {
      case Operation::all_reduce:
        return fmt::format("all_reduce of {} floats over {} shards", count, shards);
      case Operation::broadcast:
        return fmt::format("broadcast of {} bytes from rank {}", count, root);
      case Operation::all_gather:
        return fmt::format("all_gather of {} bytes per rank into {}", count, room);
      case Operation::barrier:
        break;
    }
    return "barrier";
  }
};

/// State that the ranks of a group share.
struct Board {
  Board(int size, std::chrono::milliseconds stall_timeout)
      : meeting(size, stall_timeout, size <= cpu_info().logical_allowed),
        backends(static_cast<std::size_t>(size)),
        events(static_cast<std::size_t>(size)),
        slots{std::vector<Slot>(static_cast<std::size_t>(size)),
              std::vector<Slot>(static_cast<std::size_t>(size))} {}
  int size() const { return static_cast<int>(slots[0].size()); }
  void abort(int rank, const std::string& cause) noexcept {
    meeting.abort(rank, cause);
    sums.abort();
  }

  struct alignas(64) Slot {
    Request request;
  };
  AbortableBarrier meeting;
  std::vector<Backend*> backends;  ///< by rank; complete after the first meeting
  // Events live as long as the group: a rank may have left while another still waits for its event.
  struct Events {
    std::unique_ptr<Event> ready, done;
  };
  std::vector<Events> events;  ///< by rank
  SharedPeerSums sums;
  std::string no_sums;  ///< the reason why there are no overlapped sums; empty if there are
  // Two sets, used alternately: a rank may publish its next request while another still reads the
  // current one.
  std::vector<Slot> slots[2];
};

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(int rank, Board& board, Backend& backend)
      : rank_(rank),
        size_(board.size()),
        board_(board),
        backend_(backend),
        events_(board.events[rank]) {
    events_ = {backend.make_event(), backend.make_event()};
    outs_.resize(static_cast<std::size_t>(size_));
    board.backends[rank] = &backend;
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                  std::int64_t count, const SumTerms& /*terms*/) override {
    if (!path_known_) choose_path(shards, count);
    if (through_host_) {
      reduce_through_host(shards, parts, out, count);
    } else {
      reduce_in_place(shards, parts, out, count);
    }
  }

  bool set_up_overlapped_sums(std::string& why_not) override {
    barrier();
    // One rank creates the shared object while the others wait.
    work([&] {
      if (rank_ == 0)
        board_.no_sums = board_.sums.set_up(board_.backends, {&size_, 1}, nullptr, {});
    });
    why_not = board_.no_sums;
    return why_not.empty();
  }
  void sum_overlapped(DevPtr data, std::int64_t count) override {
    board_.sums.get()->begin(rank_, data, count);
  }
  void finish_sums() override { board_.sums.get()->finish(rank_); }
  void wait_for_sums(const std::function<void()>& wait) override {
    wait();
    if (const PeerSums* sums = board_.sums.get()) sums->require_whole();
  }
  void stop_sums() noexcept override {
    if (PeerSums* sums = board_.sums.get()) sums->stop(rank_);
  }

  void broadcast(std::span<std::byte> data, int root) override {
    Request request;
    request.operation = Operation::broadcast;
    request.count = static_cast<std::int64_t>(data.size());
    request.root = root;
    request.source = data.data();
    meet(request);
    if (root < 0 || root >= size_) {
      refuse(fmt::format("broadcast: expected a root from 0 to {}, found {}", size_ - 1, root));
    }
    work([&] {
      if (rank_ != root && !data.empty()) std::memcpy(data.data(), of(root).source, data.size());
    });
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    Request request;
    request.operation = Operation::all_gather;
    request.count = static_cast<std::int64_t>(mine.size());
    request.room = static_cast<std::int64_t>(all.size());
    request.source = mine.data();
    meet(request);
    if (request.room != request.count * size_) {
      refuse(fmt::format("all_gather: expected room for {} blocks of {} bytes, found {} bytes",
                         size_, request.count, request.room));
    }
    work([&] {
      if (mine.empty()) return;
      for (int r = 0; r < size_; ++r) {
        std::memcpy(all.data() + static_cast<std::size_t>(r) * mine.size(), of(r).source,
                    mine.size());
      }
    });
  }

  void barrier() override { meet(Request{}); }

  void abort(const std::string& cause) noexcept override { board_.abort(rank_, cause); }

 private:
  /// Determines, together with all ranks, whether each can use the memory of all others. The first
  /// meeting detects a rank with a different request; after it, all backends are known.
  void choose_path(std::int64_t shards, std::int64_t count) {
    Request request;
    request.operation = Operation::all_reduce;
    request.count = count;
    request.shards = shards;
    meet(request);
    request.reaches_all = true;
    for (const Backend* other : board_.backends) {
      request.reaches_all = request.reaches_all && backend_.can_use_memory_of(*other);
    }
    meet(request);
    through_host_ = false;
    for (int r = 0; r < size_; ++r) through_host_ = through_host_ || !of(r).reaches_all;
    if (through_host_) host_ = make_cpu_backend(1);
    path_known_ = true;
  }

  void reduce_in_place(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                       std::int64_t count) {
    backend_.record(*events_.ready);
    add_up(backend_, shards, parts, out, count);
    // This rank's parts may be written again only when all readers have finished.
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) backend_.wait_for(*of(r).done);
    }
  }

  void reduce_through_host(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                           std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    while (host_buffers_.size() < parts.size() + 1 || host_bytes_ < bytes) {
      if (host_bytes_ < bytes) host_buffers_.clear();
      host_bytes_ = std::max(host_bytes_, bytes);
      host_buffers_.push_back(backend_.allocate_host(host_bytes_, "gradients in host memory"));
    }
    const auto buffer = [&](std::size_t i) {
      return DevPtr{reinterpret_cast<std::uintptr_t>(host_buffers_[i].get())};
    };
    host_parts_.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      backend_.download(host_buffers_[i + 1].get(), parts[i].data, bytes);
      host_parts_.push_back({parts[i].node, buffer(i + 1)});
    }
    backend_.synchronize();
    add_up(*host_, shards, host_parts_, buffer(0), count);
    // The buffer is written again only after the next meeting, which comes after the next
    // `synchronize`.
    backend_.upload(out, host_buffers_[0].get(), bytes);
  }

  /// Meets the other ranks. Then adds up this rank's share of the elements (whole cache lines) on
  /// `adder`, and writes the result to the outputs of all ranks.
  void add_up(Backend& adder, std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
              std::int64_t count) {
    Request request;
    request.operation = Operation::all_reduce;
    request.count = count;
    request.shards = shards;
    request.parts = parts;
    request.out = out;
    request.ready = events_.ready.get();
    request.done = events_.done.get();
    meet(request);
    std::string wrong;
    work([&] {
      sum_.start(shards);
      for (int r = 0; r < size_; ++r) {
        if (&adder == &backend_ && r != rank_) adder.wait_for(*of(r).ready);
        sum_.add(of(r).parts);
        outs_[r] = of(r).out;
      }
      wrong = sum_.ready();
      if (!wrong.empty()) return;
      const Range lines = even_part(ceil_div(count, kLine), size_, rank_);
      sum_.run(adder, {lines.begin * kLine, std::min(lines.end * kLine, count)}, outs_);
      if (&adder == &backend_) adder.record(*events_.done);
    });
    if (!wrong.empty()) refuse("all_reduce: " + wrong);
  }

  const Request& of(int rank) const { return (*slots_)[rank].request; }

  /// Publishes the request and waits for the others. All ranks see the same requests, so all refuse
  /// them or none does.
  void meet(const Request& request) {
    if (!stopped_) {
      next_ = 1 - next_;
      slots_ = &board_.slots[next_];
      board_.slots[next_][rank_].request = request;
    }
    stopped_ = true;
    board_.meeting.meet(rank_, name_of(request.operation));
    for (int r = 1; r < size_; ++r) {
      if (of(r).wants_the_same(of(0))) continue;
      refuse(fmt::format("the ranks disagree: rank 0 called {}, rank {} called {}", of(0).text(), r,
                         of(r).text()));
    }
    stopped_ = false;
  }

  /// Stops the group for a reason that every rank detects by itself.
  [[noreturn]] void refuse(const std::string& why) {
    board_.meeting.abort(rank_, why);
    fail(ErrorKind::peer, "rank {}: {}", rank_, why);
  }

  /// Runs this rank's share of the work after a meeting, and waits for the others. If one of them
  /// fails, all throw.
  template <class Work>
  void work(Work part) {
    try {
      part();
    } catch (const std::exception& error) {
      board_.meeting.fail_work(rank_, error.what());
      throw;
    }
    board_.meeting.finish_work(rank_, name_of(of(rank_).operation));
  }

  const int rank_, size_;
  Board& board_;
  Backend& backend_;
  Board::Events& events_;
  bool path_known_ = false, through_host_ = false;
  // For sums in host memory: the first buffer holds the sum, the others this rank's parts.
  std::unique_ptr<Backend> host_;
  std::vector<HostMemory> host_buffers_;
  std::size_t host_bytes_ = 0;
  std::vector<PartialSum> host_parts_;
  int next_ = 0;
  // True after a failed call: nothing more is published, because others may still read the
  // requests.
  bool stopped_ = false;
  const std::vector<Board::Slot>* slots_ = nullptr;
  TreeSum sum_;
  std::vector<DevPtr> outs_;
};

/// Communicator of a world of one: adds its own parts, without waits or locks.
class SoloCommunicator : public Communicator {
 public:
  SoloCommunicator(Board& board, Backend& backend) : board_(board), backend_(backend) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }

  void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                  std::int64_t count, const SumTerms& /*terms*/) override {
    sum_.start(shards);
    sum_.add(parts);
    const std::string wrong = sum_.ready();
    if (!wrong.empty()) fail(ErrorKind::peer, "rank 0: all_reduce: {}", wrong);
    sum_.run(backend_, {0, count}, {&out, 1});
  }
  bool can_be_recorded() const override { return true; }
  void broadcast(std::span<std::byte>, int root) override {
    if (root != 0) {
      fail(ErrorKind::peer, "rank 0: broadcast: expected root 0, found {}", root);
    }
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (all.size() != mine.size()) {
      fail(ErrorKind::peer,
           "rank 0: all_gather: expected room for 1 block of {} bytes, found {} bytes", mine.size(),
           all.size());
    }
    if (!mine.empty()) std::memcpy(all.data(), mine.data(), mine.size());
  }
  void barrier() override {}
  void abort(const std::string& cause) noexcept override { board_.meeting.abort(0, cause); }

 private:
  Board& board_;
  Backend& backend_;
  TreeSum sum_;
};

}  // namespace

struct LocalGroup::Shared : Board {
  using Board::Board;
};

LocalGroup::LocalGroup(int size, std::chrono::milliseconds stall_timeout) {
  if (size < 1 || size > 65535) {
    fail(ErrorKind::usage, "expected 1 to 65535 replicas, found {}", size);
  }
  shared_ = std::make_shared<Shared>(size, stall_timeout);
}

LocalGroup::~LocalGroup() = default;

std::unique_ptr<Communicator> LocalGroup::join(int rank, Backend& backend) {
  assert(rank >= 0 && rank < shared_->size());
  shared_->meeting.set_joined(rank);
  set_heartbeat_of_thread(shared_->meeting.heartbeat(rank));
  if (shared_->size() == 1) return std::make_unique<SoloCommunicator>(*shared_, backend);
  return std::make_unique<LocalCommunicator>(rank, *shared_, backend);
}

void LocalGroup::abort(int rank, const std::string& cause) noexcept {
  shared_->abort(rank, cause);
}

std::string LocalGroup::abort_cause() const {
  return shared_->meeting.abort_cause();
}

}  // namespace dpt
