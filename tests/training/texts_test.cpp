// Small functions whose results only people read, and how a failure among ranks is told.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

TEST_CASE("durations and rates at the borders of their forms") {
  CHECK(format_duration(0) == "0:00");
  CHECK(format_duration(0.49) == "0:00");
  CHECK(format_duration(0.51) == "0:01");
  CHECK(format_duration(59.4) == "0:59");
  CHECK(format_duration(59.6) == "1:00");
  CHECK(format_duration(61) == "1:01");
  CHECK(format_duration(3599) == "59:59");
  CHECK(format_duration(3600) == "1:00:00");
  CHECK(format_duration(3723) == "1:02:03");
  CHECK(format_duration(100 * 3600) == "100:00:00");
  CHECK(format_duration(-1) == "?");
  CHECK(format_duration(INFINITY) == "?");
  CHECK(format_duration(std::numeric_limits<double>::quiet_NaN()) == "?");

  CHECK(format_rate(0) == "0");
  CHECK(format_rate(949.6) == "950");
  CHECK(format_rate(9999) == "9999");
  CHECK(format_rate(10000) == "10.0k");
  CHECK(format_rate(12345) == "12.3k");
  CHECK(format_rate(999949) == "999.9k");
  CHECK(format_rate(1e6) == "1.0M");
  CHECK(format_rate(1.25e6) == "1.2M");
}

namespace {

std::vector<DeviceName> cpu_devices(int count) {
  return std::vector<DeviceName>(static_cast<std::size_t>(count));
}

/// What run_ranks throws when rank `bad` of `count` throws `error` and the others wait.
template <class Thrown>
std::string failure_of(int count, int bad, const Thrown& error) {
  try {
    run_ranks(cpu_devices(count), {}, [&](Backend&, Communicator& communicator) {
      if (communicator.rank() == bad) throw error;
      communicator.barrier();
    });
  } catch (const std::exception& caught) {
    return caught.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("a failure on one rank is the failure of the run, and says which device it was") {
  const Error device(ErrorKind::device, "no memory left");
  CHECK(failure_of(3, 1, device) == "replica 1 on cpu: no memory left");
  CHECK(failure_of(2, 0, device) == "replica 0 on cpu: no memory left");
  CHECK(failure_of(1, 0, device) == "no memory left");
  // Other kinds are told as they are.
  CHECK(failure_of(3, 2, Error(ErrorKind::data, "a broken file")) == "a broken file");
  CHECK(failure_of(3, 2, std::runtime_error("a surprise")) == "a surprise");
  CHECK(failure_of(2, 5, device) == "nothing");
}

TEST_CASE("a split by its name, if it has samples") {
  const Job job = small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1)});
  CHECK(&split_by_name(job.splits, "train") == &job.splits.train);
  CHECK(&split_by_name(job.splits, "val") == &job.splits.val);
  CHECK(&split_by_name(job.splits, "test") == &job.splits.test);
  CHECK(job.splits.train.size() == 53);
  CHECK(job.splits.val.size() == 7);
  CHECK(job.splits.test.size() == 23);
  CHECK_THROWS_WITH_AS(split_by_name(job.splits, "tset"), doctest::Contains("'tset'"), Error);
  const Job without =
      small_job(small_config("{type: SGD, lr: 0.1}"), {cpus(1), "data.val_split=0"});
  CHECK_THROWS_WITH_AS(split_by_name(without.splits, "val"), doctest::Contains("data.val_split"),
                       Error);
}

TEST_CASE("a job's counts: steps, batches, and what exact mode needs") {
  const std::string config = small_config("{type: SGD, lr: 0.1}");
  const Job job = small_job(config, {cpus(2)});
  CHECK(job.steps_per_epoch == 5);
  CHECK(job.total_steps == 20);
  CHECK(job.ranks() == 2);
  CHECK(job.batch_range(0).begin == 0);
  CHECK(job.batch_range(0).end == 12);
  CHECK(job.batch_range(4).begin == 48);
  CHECK(job.batch_range(4).end == 53);
  CHECK(small_job(config, {cpus(1), "data.batch_size=53"}).steps_per_epoch == 1);
  CHECK(small_job(config, {cpus(1), "data.batch_size=52"}).steps_per_epoch == 2);
  CHECK(small_job(config, {cpus(1), "data.batch_size=1000"}).steps_per_epoch == 1);
  // As many replicas as shards, and one too many.
  CHECK(small_job(config, {cpus(3), "train.shards=3"}).ranks() == 3);
  CHECK_THROWS_WITH_AS(small_job(config, {cpus(4), "train.shards=3"}),
                       doctest::Contains("train.shards=4"), Error);
  CHECK_THROWS_AS(small_job(config, {cpus(2), "device_weights=[1,2,3]"}), Error);
}

TEST_CASE("micro-batches: multiples of eight that fit a cache, within bounds") {
  const auto limit = [](std::int64_t channels) {
    const Job job =
        small_job(small_config("{type: SGD, lr: 0.1}"),
                  {cpus(1), "model.layers.conv1.out_channels=" + std::to_string(channels)});
    const std::int64_t micro_batch = micro_batch_limit(job.plan, job.devices[0].traits());
    const std::int64_t bytes = estimate_memory(job.plan, 1, 0).activations;
    CHECK(micro_batch % 8 == 0);
    // The largest that fits into 1 MiB, but from 8 to 256.
    if (micro_batch > 8) CHECK(micro_batch * bytes <= 1 << 20);
    if (micro_batch < 256) CHECK((micro_batch + 8) * bytes > 1 << 20);
    CHECK(job.max_micro_batch == micro_batch);
    return micro_batch;
  };
  CHECK(limit(1) == 256);
  CHECK(limit(64) < 256);
  CHECK(limit(1024) == 8);
}
