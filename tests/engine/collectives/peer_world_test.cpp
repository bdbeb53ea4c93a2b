// Sums over GPUs of several processes: the processes' agreement, and failures that end a sum. The
// GPUs are emulated; the "processes" are groups of threads.
#include <doctest/doctest.h>

#include "engine/collectives/shared_peer_sums.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

PeerReadiness ready(const std::vector<std::string>& uuids, const std::string& library = "NCCL 2") {
  PeerReadiness readiness;
  readiness.library = library;
  for (const std::string& uuid : uuids) {
    readiness.gpus.push_back({"cuda:" + std::to_string(readiness.gpus.size()), uuid, "at " + uuid});
  }
  return readiness;
}

TEST_CASE("Processes that cannot sum over GPUs are named, the first of them, and why") {
  CHECK(problem_of_peers({ready({"a", "b"}), ready({"c"})}).empty());
  PeerReadiness without = ready({"c"});
  without.why_not = "NCCL cannot be used";
  CHECK(problem_of_peers({ready({"a"}), without, without}) == "rank 1: NCCL cannot be used");
  CHECK(problem_of_peers({without}) == "NCCL cannot be used");
  CHECK(
      problem_of_peers({ready({"a"}, "NCCL 2.28.9"), ready({"b"}, "NCCL 2.27.3")}) ==
      "rank 0 has NCCL 2.28.9, but rank 1 has NCCL 2.27.3: expected one version in all processes");
  CHECK(problem_of_peers({ready({"a", "b"}), ready({"c", "b"})}) ==
        "cuda:1 of rank 0 and cuda:1 of rank 1 are the same GPU (at b)");
  CHECK(problem_of_peers({ready({"a", "a"})}) == "replicas share a GPU");
  // Two parts of the same GPU have different ids but the same location. NCCL refuses them.
  PeerReadiness part = ready({"d"});
  part.gpus[0].place = "at a";
  CHECK(problem_of_peers({ready({"a"}), part}).find("the same GPU (at a)") != std::string::npos);
}

}  // namespace
}  // namespace dpt

#if __has_include("emulation/control.h")
#include <atomic>
#include <cstdlib>
#include <future>
#include <numeric>

#include "emulation/control.h"
#include "kernels/devices.h"
#include "tests/engine/collectives/queued_backend.h"
#include "tests/engine/collectives/worlds.h"

namespace dpt {
namespace {

/// Makes the emulation of NCCL fail in the given way for all "processes" of this process.
struct NcclThat {
  explicit NcclThat(const char* how) { setenv("DPT_EMULATED_NCCL", how, 1); }
  NcclThat(const NcclThat&) = delete;
  ~NcclThat() { unsetenv("DPT_EMULATED_NCCL"); }
};

/// Provides four GPUs, two for each process; the destructor restores two.
struct FourGpus {
  FourGpus() { emulation::set_devices(4); }
  FourGpus(const FourGpus&) = delete;
  ~FourGpus() { emulation::set_devices(2); }
};

std::unique_ptr<Backend> gpu(int number) {
  return make_backend(parse_device("cuda:" + std::to_string(number)), {});
}

std::vector<float> whole_numbers(int rank, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), static_cast<float>(1000 * rank));
  return values;
}

std::vector<float> read(Backend& backend, const DeviceMemory& memory, std::size_t count) {
  std::vector<float> values(count);
  backend.download(values.data(), memory.ptr(), count * sizeof(float));
  backend.synchronize();
  return values;
}

const Layout kTwoTwos{2, 2};

TEST_CASE("GPUs of two processes sum buckets, the same on all, over what was queued before") {
  const FourGpus four;
  // The last bucket is longer than one transfer of the emulation.
  const std::vector<std::int64_t> buckets = {1, 300, 70'000};
  const std::int64_t count = 70'301;
  std::vector<float> expected(static_cast<std::size_t>(count));
  for (int rank = 0; rank < 4; ++rank) {
    const auto values = whole_numbers(rank, count);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += values[i];
  }
  std::vector<std::vector<float>> results(4);
  const auto errors = run_processes(kTwoTwos, [&](WorldRank& at) {
    const int rank = 2 * at.process + at.local;
    const auto backend = gpu(rank);
    const auto communicator = at.group.join(at.local, *backend);
    std::string why_not;
    if (!communicator->set_up_overlapped_sums(why_not)) fail(ErrorKind::unexpected, "{}", why_not);
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    DeviceMemory data = backend->allocate(bytes, "test");
    for (int step = 0; step < 3; ++step) {
      const auto values = whole_numbers(rank, count);
      backend->upload(data.ptr(), values.data(), bytes);
      std::int64_t begin = 0;
      for (const std::int64_t size : buckets) {
        communicator->sum_overlapped(data.ptr() + static_cast<std::size_t>(begin) * sizeof(float),
                                     size);
        begin += size;
      }
      communicator->finish_sums();
      communicator->wait_for_sums([&] { backend->synchronize(); });
    }
    results[rank] = read(*backend, data, expected.size());
    communicator->stop_sums();
  });
  for (const std::string& error : errors) CHECK(error == "");
  for (const auto& result : results) CHECK((result == expected));
}

/// Returns the reasons that all ranks get when overlapped sums are unavailable.
std::vector<std::string> reasons_of_all(const std::function<std::unique_ptr<Backend>(int)>& make) {
  std::vector<std::string> reasons(4);
  const auto errors = run_processes(kTwoTwos, [&](WorldRank& at) {
    const int rank = 2 * at.process + at.local;
    const auto backend = make(rank);
    const auto communicator = at.group.join(at.local, *backend);
    CHECK(!communicator->set_up_overlapped_sums(reasons[rank]));
    // The world still works: only sums over GPUs are unavailable.
    communicator->barrier();
    communicator->stop_sums();
  });
  for (const std::string& error : errors) CHECK(error == "");
  return reasons;
}

TEST_CASE("Where one process cannot, all fall back, and say who cannot and why") {
  const FourGpus four;
  const auto last_without_gpu = [](int rank) -> std::unique_ptr<Backend> {
    if (rank == 3) return std::make_unique<QueuedBackend>();
    return gpu(rank);
  };
  for (const std::string& reason : reasons_of_all(last_without_gpu)) {
    CHECK(reason == "rank 1: not all devices are GPUs");
  }
  for (const std::string& reason : reasons_of_all([](int rank) { return gpu(rank % 2); })) {
    CHECK(reason.find("cuda:0 of rank 0 and cuda:0 of rank 1 are the same GPU") == 0);
  }
  const NcclThat absent("absent");
  for (const std::string& reason : reasons_of_all(gpu)) {
    CHECK(reason == "rank 0: NCCL cannot be used: DPT_EMULATED_NCCL is absent");
  }
}

TEST_CASE("Where the GPUs cannot be connected, all fall back") {
  const FourGpus four;
  const NcclThat fails("fails_to_connect");
  for (const std::string& reason : reasons_of_all(gpu)) {
    CHECK(reason == "rank 0: emulated sums: no network interface");
  }
}

TEST_CASE("A rank that fails ends sums that ranks of other processes wait for") {
  const FourGpus four;
  // Rank 3 fails before it begins a sum, or never connects.
  for (const bool connects : {true, false}) {
    CAPTURE(connects);
    std::atomic<int> finished_waiting = 0;
    WorldOptions options;
    options.tells_all = true;
    const auto errors = run_processes(
        kTwoTwos,
        [&](WorldRank& at) {
          const int rank = 2 * at.process + at.local;
          const auto backend = gpu(rank);
          const auto communicator = at.group.join(at.local, *backend);
          if (!connects && rank == 3) throw Error(ErrorKind::data, "no such image");
          std::string why_not;
          communicator->set_up_overlapped_sums(why_not);
          if (rank == 3) throw Error(ErrorKind::data, "no such image");
          DeviceMemory data = backend->allocate(400, "test");
          const auto values = whole_numbers(rank, 100);
          backend->upload(data.ptr(), values.data(), 400);
          communicator->sum_overlapped(data.ptr(), 100);
          communicator->finish_sums();
          // finish_sums returns even if the sum was aborted. wait_for_sums must throw before the
          // sum's data is used.
          ++finished_waiting;
          communicator->wait_for_sums([&] { backend->synchronize(); });
          fail(ErrorKind::unexpected, "a sum without rank 3");
        },
        options);
    CHECK(errors[3] == "no such image");
    for (const std::size_t rank : {0U, 1U, 2U}) {
      CAPTURE(errors[rank]);
      CHECK(!errors[rank].empty());
      if (connects) CHECK(errors[rank].find("aborted") != std::string::npos);
    }
    if (!connects) CHECK(finished_waiting == 0);
  }
}

TEST_CASE("An abort before sums are there ends their connecting") {
  const FourGpus four;
  const auto backend = gpu(0);
  Backend* const backends[] = {backend.get()};
  const auto sums = make_peer_sums(backends);
  sums->abort();
  std::string text;
  try {
    sums->connect({2, 0, make_peer_id()});  // the other rank never comes
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::peer);
    text = error.what();
  }
  CHECK(text.find("aborted") != std::string::npos);
  CHECK_THROWS_AS(sums->require_whole(), Error);
  // The aborting rank may not even know that the sums are being set up.
  SharedPeerSums shared;
  shared.abort();
  const int ranks_of[] = {1};
  CHECK(shared.set_up(backends, ranks_of, nullptr, {}) == "");
  CHECK_THROWS_AS(shared.get()->require_whole(), Error);
}

TEST_CASE("A process waits for others when all its ranks wait for their GPUs") {
  const FourGpus four;
  std::atomic<int> too_early = 0, in_process_1 = 0;
  std::promise<void> rank_2_waits, rank_2_has_seen;
  WorldOptions options;
  options.waiting = [&](int process, const char* operation) {
    if (process == 1) in_process_1 = operation ? 1 : 0;
  };
  const auto errors = run_processes(
      kTwoTwos,
      [&](WorldRank& at) {
        const int rank = 2 * at.process + at.local;
        const auto backend = gpu(rank);
        const auto communicator = at.group.join(at.local, *backend);
        std::string why_not;
        if (!communicator->set_up_overlapped_sums(why_not)) {
          fail(ErrorKind::unexpected, "{}", why_not);
        }
        communicator->barrier();
        if (rank == 2) {
          communicator->wait_for_sums([&] {
            too_early = in_process_1.load();  // Rank 3 is still working.
            rank_2_waits.set_value();
            while (in_process_1 == 0) std::this_thread::yield();
            rank_2_has_seen.set_value();
          });
        }
        if (rank == 3) {
          rank_2_waits.get_future().wait();
          communicator->wait_for_sums([&] { rank_2_has_seen.get_future().wait(); });
        }
        communicator->barrier();
      },
      options);
  for (const std::string& error : errors) CHECK(error == "");
  CHECK(too_early == 0);
  CHECK(in_process_1 == 0);
}

}  // namespace
}  // namespace dpt
#endif
