#include "engine/collectives/world_group.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>
#include <numeric>

#include "engine/collectives/abortable_barrier.h"
#include "engine/collectives/overlapped_sums.h"
#include "engine/collectives/process_links.h"
#include "engine/collectives/process_sum.h"
#include "engine/collectives/shared_peer_sums.h"
#include "engine/collectives/watched_links.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

int sum_of_first(const std::vector<int>& ranks_of, int processes) {
  return std::accumulate(ranks_of.begin(), ranks_of.begin() + processes, 0);
}

/// Request that a rank publishes before a meeting.
struct WorldRequest {
  const char* operation = "";
  std::int64_t count = 0;             ///< floats or bytes; must be the same on all ranks
  std::span<const PartialSum> parts;  ///< all_reduce: in host memory
  std::span<std::byte> data;          ///< broadcast
  std::span<const std::byte> mine;    ///< all_gather
};

/// State that the ranks of this process share. The first rank is the leader: it makes the exchanges
/// while the others wait at a meeting. After the meeting, they read the results.
struct WorldBoard {
  WorldBoard(const std::vector<int>& ranks, ProcessLinks& its_links, ProcessLinks* its_links_beside,
             std::chrono::milliseconds stall_timeout, const TellWaiting& its_waiting)
      : ranks_of(ranks),
        links(its_links),
        links_beside(its_links_beside),
        waiting(its_waiting),
        process(links.rank()),
        local_size(ranks_of[process]),
        first(sum_of_first(ranks_of, process)),
        total(sum_of_first(ranks_of, links.size())),
        meeting(local_size, stall_timeout, local_size <= cpu_info().logical_allowed, first),
        backends(static_cast<std::size_t>(local_size)),
        slots{std::vector<WorldRequest>(static_cast<std::size_t>(local_size)),
              std::vector<WorldRequest>(static_cast<std::size_t>(local_size))},
        sum(ranks_of, links) {}

  int process_of(int rank) const {
    int owner = 0;
    while (rank >= sum_of_first(ranks_of, owner + 1)) ++owner;
    return owner;
  }

  const std::vector<int> ranks_of;  ///< number of ranks of each process
  ProcessLinks& links;
  ProcessLinks* const links_beside;
  const TellWaiting waiting;
  const int process, local_size, first, total;
  AbortableBarrier meeting;
  std::vector<Backend*> backends;  ///< by local rank; complete after the first meeting
  // Two sets, used alternately: a rank may publish its next request while another still reads the
  // current one.
  std::vector<WorldRequest> slots[2];
  ProcessSum sum;
  std::vector<PartialSum> parts;    ///< parts of all ranks of this process
  std::vector<std::byte> gathered;  ///< result of all_gather
  std::unique_ptr<OverlappedSums> overlapped;
  std::atomic<OverlappedSums*> overlapped_made{
      nullptr};              ///< `overlapped`, for the thread that aborts
  SharedPeerSums peer_sums;  ///< sums between GPUs
  std::string no_peer_sums;  ///< the reason why there are no sums between GPUs; empty if there are

  void abort(int local, const std::string& cause) noexcept {
    meeting.abort(local, cause);
    links.abort(cause);
    if (OverlappedSums* made = overlapped_made.load()) made->abort(cause);
    peer_sums.abort();
  }

  /// Reports a wait for other processes while all ranks of this process wait for their GPUs. If one
  /// rank is late, the wait is not the fault of other processes.
  class GpuWait {
   public:
    explicit GpuWait(WorldBoard& board) : board_(board) { change(+1); }
    GpuWait(const GpuWait&) = delete;
    ~GpuWait() { change(-1); }

   private:
    void change(int by) {
      const std::lock_guard lock(board_.gpu_waits_mutex);
      const bool all_waited = board_.gpu_waits == board_.local_size;
      board_.gpu_waits += by;
      if (!board_.waiting) return;
      if (all_waited) board_.waiting(nullptr);
      if (board_.gpu_waits == board_.local_size) board_.waiting("all_reduce");
    }
    WorldBoard& board_;
  };
  std::mutex gpu_waits_mutex;
  int gpu_waits = 0;  // ranks of this process that wait; guarded by gpu_waits_mutex
};

class WorldCommunicator : public Communicator {
 public:
  WorldCommunicator(int local, WorldBoard& board, Backend& backend)
      : local_(local),
        board_(board),
        backend_(backend),
        host_(make_cpu_backend(1)),
        in_host_memory_(host_->can_use_memory_of(backend)) {
    board.backends[local] = &backend;
  }
  int rank() const override { return board_.first + local_; }
  int size() const override { return board_.total; }

  void all_reduce(std::int64_t shards, std::span<const PartialSum> parts, DevPtr out,
                  std::int64_t count, const SumTerms& terms) override {
    WorldRequest request;
    request.operation = "all_reduce";
    request.count = count;
    request.parts = in_host_memory_ ? parts : download(parts, count);
    meet(request);
    float* at = reinterpret_cast<float*>(out.address);
    const bool to_out = board_.local_size == 1 && in_host_memory_;
    if (leads()) {
      board_.parts.clear();
      for (int local = 0; local < board_.local_size; ++local) {
        board_.parts.insert(board_.parts.end(), of(local).parts.begin(), of(local).parts.end());
      }
      board_.sum.begin(shards, terms, board_.parts, count, to_out ? at : nullptr);
    }
    board_.meeting.meet(local_, request.operation);
    work([&] { board_.sum.add_own(*host_, local_, board_.local_size); });
    if (leads()) board_.sum.exchange(*host_);
    board_.meeting.meet(local_, request.operation);
    if (to_out) return;
    backend_.upload(out, board_.sum.result(), static_cast<std::size_t>(count) * sizeof(float));
    // The next sum overwrites the memory from which this upload reads.
    wait_for_sums([&] { backend_.synchronize(); });
  }

  /// Called only if every rank of every process has the same kind of memory.
  bool set_up_overlapped_sums(std::string& why_not) override {
    WorldRequest request;
    request.operation = "set_up_overlapped_sums";
    meet(request);
    if (!in_host_memory_) {
      work([&] {
        if (!leads()) return;
        board_.no_peer_sums = board_.peer_sums.set_up(board_.backends, board_.ranks_of,
                                                      &board_.links, board_.waiting);
      });
      why_not = board_.no_peer_sums;
      return why_not.empty();
    }
    if (!board_.links_beside) {
      why_not = "the processes have no links for sums that overlap with the computation";
      return false;
    }
    if (leads()) {
      board_.overlapped =
          std::make_unique<OverlappedSums>(board_.ranks_of, *board_.links_beside, board_.waiting);
      board_.overlapped_made = board_.overlapped.get();
    }
    board_.meeting.meet(local_, request.operation);
    return true;
  }
  void sum_overlapped(DevPtr data, std::int64_t count) override {
    if (PeerSums* sums = board_.peer_sums.get()) {
      const WorldBoard::GpuWait wait(board_);  // the first sum may wait for other processes
      sums->begin(local_, data, count);
    } else {
      board_.overlapped->begin(local_, reinterpret_cast<float*>(data.address), count);
    }
  }
  void finish_sums() override {
    if (PeerSums* sums = board_.peer_sums.get()) {
      const WorldBoard::GpuWait wait(board_);
      sums->finish(local_);
    } else {
      board_.overlapped->finish(local_);
    }
  }
  void wait_for_sums(const std::function<void()>& wait) override {
    const PeerSums* sums = board_.peer_sums.get();
    if (!sums) return wait();
    {
      const WorldBoard::GpuWait all(board_);
      wait();
    }
    sums->require_whole();
  }
  void stop_sums() noexcept override {
    if (OverlappedSums* made = board_.overlapped_made.load()) made->stop();
    if (PeerSums* sums = board_.peer_sums.get()) sums->stop(local_);
  }

  void broadcast(std::span<std::byte> data, int root) override {
    if (root < 0 || root >= size()) {
      refuse(fmt::format("broadcast: expected a root from 0 to {}, found {}", size() - 1, root));
    }
    WorldRequest request;
    request.operation = "broadcast";
    request.count = static_cast<std::int64_t>(data.size());
    request.data = data;
    meet(request);
    const int owner = board_.process_of(root);
    const bool is_here = owner == board_.process;
    const int source = is_here ? root - board_.first : 0;
    if (leads()) {
      begin_exchange();
      if (is_here) {
        std::fill(send_.begin(), send_.end(), std::span<const std::byte>(of(source).data));
      } else {
        receive_[owner] = data;
      }
      board_.links.exchange(send_, receive_, request.operation);
    }
    board_.meeting.meet(local_, request.operation);
    // No rank leaves, and frees memory that the others read, before all have read it.
    work([&] {
      if (local_ != source && !data.empty()) {
        std::memcpy(data.data(), of(source).data.data(), data.size());
      }
    });
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    const auto ranks = static_cast<std::size_t>(size());
    if (all.size() != mine.size() * ranks) {
      refuse(fmt::format("all_gather: expected room for {} blocks of {} bytes, found {} bytes",
                         ranks, mine.size(), all.size()));
    }
    WorldRequest request;
    request.operation = "all_gather";
    request.count = static_cast<std::int64_t>(mine.size());
    request.mine = mine;
    meet(request);
    if (leads()) gather_blocks(mine.size());
    board_.meeting.meet(local_, request.operation);
    if (!all.empty()) std::memcpy(all.data(), board_.gathered.data(), all.size());
  }

  void barrier() override {
    WorldRequest request;
    request.operation = "barrier";
    meet(request);
    if (leads()) {
      begin_exchange();
      const std::byte here{1};
      std::vector<std::byte> others(send_.size());
      for (std::size_t p = 0; p < others.size(); ++p) {
        send_[p] = {&here, 1};
        receive_[p] = {&others[p], 1};
      }
      board_.links.exchange(send_, receive_, request.operation);
    }
    board_.meeting.meet(local_, request.operation);
  }

  void abort(const std::string& cause) noexcept override { board_.abort(local_, cause); }

 private:
  bool leads() const { return local_ == 0; }
  const WorldRequest& of(int local) const { return (*slots_)[local]; }

  /// Publishes the request and waits for the others of this process.
  void meet(const WorldRequest& request) {
    next_ = 1 - next_;
    slots_ = &board_.slots[next_];
    board_.slots[next_][local_] = request;
    board_.meeting.meet(local_, request.operation);
    for (int local = 1; local < board_.local_size; ++local) {
      const WorldRequest &first = of(0), &other = of(local);
      if (std::strcmp(other.operation, first.operation) == 0 && other.count == first.count)
        continue;
      refuse(fmt::format("the ranks disagree: rank {} called {} of {}, rank {} called {} of {}",
                         board_.first, first.operation, first.count, board_.first + local,
                         other.operation, other.count));
    }
  }

  /// Stops this process's ranks for a reason that each of them detects by itself.
  [[noreturn]] void refuse(const std::string& why) {
    board_.meeting.abort(local_, why);
    fail(ErrorKind::peer, "rank {}: {}", rank(), why);
  }

  template <class Work>
  void work(Work part) {
    try {
      part();
    } catch (const std::exception& error) {
      board_.meeting.fail_work(local_, error.what());
      throw;
    }
    board_.meeting.finish_work(local_, of(local_).operation);
  }

  void begin_exchange() {
    send_.assign(static_cast<std::size_t>(board_.links.size()), {});
    receive_.assign(static_cast<std::size_t>(board_.links.size()), {});
  }

  void gather_blocks(std::size_t bytes) {
    const auto at = [&](int rank) { return static_cast<std::size_t>(rank) * bytes; };
    std::vector<std::byte>& all = board_.gathered;
    all.resize(at(board_.total));
    for (int local = 0; local < board_.local_size && bytes > 0; ++local) {
      std::memcpy(all.data() + at(board_.first + local), of(local).mine.data(), bytes);
    }
    begin_exchange();
    const auto block = [&](int process) {
      const int first = sum_of_first(board_.ranks_of, process);
      const int count = board_.ranks_of[process];
      return std::span<std::byte>(all.data() + at(first), at(count));
    };
    for (int p = 0; p < board_.links.size(); ++p) {
      send_[p] = block(board_.process);
      receive_[p] = block(p);
    }
    board_.links.exchange(send_, receive_, "all_gather");
  }

  std::span<const PartialSum> download(std::span<const PartialSum> parts, std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    if (host_bytes_ < bytes) host_buffers_.clear();
    host_bytes_ = std::max(host_bytes_, bytes);
    while (host_buffers_.size() < parts.size()) {
      host_buffers_.push_back(backend_.allocate_host(host_bytes_, "gradients in host memory"));
    }
    host_parts_.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::byte* to = host_buffers_[i].get();
      backend_.download(to, parts[i].data, bytes);
      host_parts_.push_back({parts[i].node, DevPtr{reinterpret_cast<std::uintptr_t>(to)}});
    }
    wait_for_sums([&] { backend_.synchronize(); });
    return host_parts_;
  }

  const int local_;
  WorldBoard& board_;
  Backend& backend_;
  const std::unique_ptr<Backend> host_;
  const bool in_host_memory_;
  int next_ = 0;
  const std::vector<WorldRequest>* slots_ = nullptr;
  std::vector<std::span<const std::byte>> send_;
  std::vector<std::span<std::byte>> receive_;
  // For a device whose memory is separate from the host's.
  std::vector<HostMemory> host_buffers_;
  std::size_t host_bytes_ = 0;
  std::vector<PartialSum> host_parts_;
};

}  // namespace

struct WorldGroup::Shared : WorldBoard {
  using WorldBoard::WorldBoard;
};

WorldGroup::WorldGroup(const std::vector<int>& ranks, ProcessLinks& links,
                       ProcessLinks* links_beside, std::chrono::milliseconds stall_timeout,
                       const TellWaiting& waiting)
    : shared_(std::make_shared<Shared>(ranks, links, links_beside, stall_timeout, waiting)) {}

WorldGroup::~WorldGroup() = default;

std::unique_ptr<Communicator> WorldGroup::join(int local, Backend& backend) {
  assert(local >= 0 && local < shared_->local_size);
  shared_->meeting.set_joined(local);
  set_heartbeat_of_thread(shared_->meeting.heartbeat(local));
  return std::make_unique<WorldCommunicator>(local, *shared_, backend);
}

void WorldGroup::abort(int local, const std::string& cause) noexcept {
  shared_->abort(local, cause);
}

std::string WorldGroup::abort_cause() const {
  return shared_->meeting.abort_cause();
}

std::vector<std::shared_ptr<Heartbeat>> WorldGroup::heartbeats() const {
  std::vector<std::shared_ptr<Heartbeat>> all;
  for (int local = 0; local < shared_->local_size; ++local) {
    all.push_back(shared_->meeting.heartbeat(local));
  }
  return all;
}

}  // namespace dpt
