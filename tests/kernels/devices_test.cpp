// Device detection and naming, and the share of the machine that a process may use.
#include "kernels/devices.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "kernels/base/error.h"
#include "kernels/base/host.h"
#include "kernels/cpu/onednn.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace dpt::testing {
namespace {

/// Returns the message and kind of the Error that `call` throws.
template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::unexpected, "nothing was thrown"};
}

TEST_CASE("device names") {
  CHECK(parse_device("cpu") == DeviceName{});
  CHECK(parse_device("cpu:4").threads == 4);
  CHECK(parse_device("cpu:1") == DeviceName{});
  CHECK(parse_device("cuda:0").kind == DeviceName::Kind::cuda);
  CHECK(parse_device("cuda:12").index == 12);
  for (const char* text : {"cpu", "cpu:4", "cuda:0", "cuda:3"}) {
    CHECK(parse_device(text).text() == text);
  }
  for (const char* text :
       {"", "gpu", "cuda", "cpu:", "cpu:0", "cpu:-1", "cpu:x", "cpu:4x", "cpu: 4", "cuda:-0", "CPU",
        "cpu:99999", "cuda:99999999999", "cpu:+4", " cpu"}) {
    const Error error = error_of([&] { parse_device(text); });
    INFO(text, " -> ", error.what());
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(contains(error.what(), fmt::format("found \"{}\"", text)));
    CHECK(contains(error.what(), "cpu:N"));
  }
}

TEST_CASE("auto is one replica per physical core, never more than samples") {
  if (!cuda_info().devices.empty()) return;  // with GPUs, auto means every GPU
  const int cores = cpu_info().physical_allowed;
  CHECK(cores >= 1);
  CHECK(resolve_devices({"auto"}, 1 << 20).size() == static_cast<std::size_t>(cores));
  CHECK(resolve_devices({"auto"}, 1).size() == 1);
  CHECK(resolve_devices({"auto"}, 0).size() == 1);
  for (const DeviceName& device : resolve_devices({"auto"}, 100)) CHECK(device.text() == "cpu");
}

TEST_CASE("devices that are asked for by name") {
  const auto devices = resolve_devices({"cpu", "cpu:2", "cpu"}, 1);
  REQUIRE(devices.size() == 3);
  CHECK(devices[1].threads == 2);
  CHECK(error_of([] { resolve_devices({}, 8); }).kind() == ErrorKind::usage);
  CHECK(error_of([] { resolve_devices({"cpu", "auto"}, 8); }).kind() == ErrorKind::usage);
  CHECK(error_of([] { resolve_devices({"cuda", "cpu"}, 8); }).kind() == ErrorKind::usage);
  if (!cuda_info().devices.empty()) {
    const int gpus = static_cast<int>(cuda_info().devices.size());
    CHECK(resolve_devices({"cuda"}, 1 << 20).size() == static_cast<std::size_t>(gpus));
    CHECK(resolve_devices({"auto"}, 1 << 20) == resolve_devices({"cuda"}, 1 << 20));
    CHECK(resolve_devices({"cuda"}, 1).size() == 1);
    const std::string beyond = fmt::format("cuda:{}", gpus);
    CHECK(contains(error_of([&] { resolve_devices({beyond}, 8); }).what(), "no such CUDA device"));
    return;
  }
  for (const Error& error : {error_of([] {
                               resolve_devices({"cpu", "cuda:0"}, 8);
                             }),
                             error_of([] { resolve_devices({"cuda"}, 8); }),
                             error_of([] { make_backend(parse_device("cuda:0")); })}) {
    CHECK(error.kind() == ErrorKind::device);
    CHECK(contains(error.what(), "no CUDA device: " + cuda_info().unavailable));
    CHECK(contains(error.what(), "cpu ("));
  }
}

TEST_CASE("an affinity mask lowers the number of replicas") {
  const std::vector<int> cpus = host_system::allowed_cpus();
  REQUIRE(!cpus.empty());
  // Returns an error message that contains the number of processors.
  const auto told = [] {
    return std::string(error_of([] { resolve_devices({"cuda:1023"}, 8); }).what());
  };
  const int cores = cpu_info().physical_allowed;
  CHECK(told().ends_with(fmt::format("cpu ({} physical core{})", cores, cores == 1 ? "" : "s")));
  int seen = 0;
  std::string text;
  // The mask belongs to a thread, so the test program keeps its own.
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpus.back()), &one);
    if (sched_setaffinity(0, sizeof(one), &one) == 0) seen = cpu_info().physical_allowed;
    text = told();
  }).join();
  CHECK(seen == 1);
  CHECK(text.ends_with("cpu (1 physical core)"));
}

/// A synthetic machine: files below a temporary root.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void core(int cpu, int package, int core_id, int die = -1) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    write(folder + "physical_package_id", std::to_string(package));
    write(folder + "core_id", std::to_string(core_id));
    if (die >= 0) write(folder + "die_id", std::to_string(die));
  }
  std::string root() const { return folder_.path(); }

 private:
  TempDir folder_;
};

TEST_CASE("hyper-threads of one core count once") {
  Machine machine;
  machine.core(0, 0, 0);
  machine.core(1, 0, 1);
  machine.core(2, 0, 0);  // sibling of 0
  machine.core(3, 0, 1);  // sibling of 1
  machine.core(4, 1, 0);  // another package numbers its cores from 0 again
  CHECK(host_system::physical_cores({0, 1, 2, 3, 4}, machine.root()) == 3);
  CHECK(host_system::physical_cores({0, 2}, machine.root()) == 1);
  CHECK(host_system::physical_cores({1, 2}, machine.root()) == 2);
  CHECK(host_system::physical_cores({}, machine.root()) == 1);
  CHECK(host_system::physical_cores({7, 8}, machine.root()) == 2);  // unknown topology
  machine.core(5, 2, 0, 0);
  machine.core(6, 2, 0, 1);  // the same number on another die
  CHECK(host_system::physical_cores({5, 6}, machine.root()) == 2);
}

TEST_CASE("control groups limit processors, old and new") {
  {
    const Machine bare;
    CHECK(host_system::quota_cpus(bare.root()) == 0);
  }
  Machine v2;
  v2.write("/proc/self/cgroup", "0::/outer/inner");
  v2.write("/sys/fs/cgroup/outer/inner/cpu.max", "max 100000");
  CHECK(host_system::quota_cpus(v2.root()) == 0);
  v2.write("/sys/fs/cgroup/outer/cpu.max", "350000 100000");  // the limit of an outer group applies
  CHECK(host_system::quota_cpus(v2.root()) == 3);
  v2.write("/sys/fs/cgroup/outer/inner/cpu.max", "50000 100000");  // half a processor counts as one
  CHECK(host_system::quota_cpus(v2.root()) == 1);

  Machine v1;
  v1.write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job");
  v1.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1");
  v1.write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  CHECK(host_system::quota_cpus(v1.root()) == 0);
  v1.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000");
  CHECK(host_system::quota_cpus(v1.root()) == 2);

  Machine half;  // a quota means nothing without its period, and vice versa
  half.write("/proc/self/cgroup", "4:cpu,cpuacct:/job");
  half.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000");
  half.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(host_system::quota_cpus(half.root()) == 0);

  Machine container;  // a container sees its own group as the root, whatever the path says
  container.write("/proc/self/cgroup", "0::/docker/0123");
  container.write("/sys/fs/cgroup/cpu.max", "400000 100000");
  CHECK(host_system::quota_cpus(container.root()) == 4);
}

TEST_CASE("control groups limit memory, and file cache counts as free") {
  constexpr std::uint64_t kMiB = 1 << 20;
  Machine machine;
  machine.write("/proc/meminfo", "MemTotal:  1048576 kB\nMemFree: 1 kB\nMemAvailable: 524288 kB");
  CHECK(host_system::memory(machine.root()).total == 1024 * kMiB);
  CHECK(host_system::memory(machine.root()).free == 512 * kMiB);
  machine.write("/proc/self/cgroup", "0::/job");
  machine.write("/sys/fs/cgroup/job/memory.max", "max");
  CHECK(host_system::memory(machine.root()).free == 512 * kMiB);
  machine.write("/sys/fs/cgroup/job/memory.max", std::to_string(256 * kMiB));
  machine.write("/sys/fs/cgroup/job/memory.current", std::to_string(200 * kMiB));
  machine.write("/sys/fs/cgroup/job/memory.stat",
                fmt::format("anon 1\ninactive_file {}\nactive_file 3", 100 * kMiB));
  CHECK(host_system::memory(machine.root()).total == 256 * kMiB);
  CHECK(host_system::memory(machine.root()).free == 156 * kMiB);

  Machine v1;
  v1.write("/proc/self/cgroup", "5:memory:/m");
  v1.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");  // v1's "none"
  v1.write("/proc/meminfo", "MemTotal: 2048 kB\nMemAvailable: 1024 kB");
  CHECK(host_system::memory(v1.root()).total == 2 * kMiB);
  v1.write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", std::to_string(kMiB));
  v1.write("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", std::to_string(kMiB / 2));
  CHECK(host_system::memory(v1.root()).total == kMiB);
  CHECK(host_system::memory(v1.root()).free == kMiB / 2);
}

TEST_CASE("memory: without a setting there is no limit") {
  Machine machine;
  constexpr std::uint64_t kAll = std::uint64_t{1}
                                 << 62;  // adding the usage to it does not overflow
  CHECK(host_system::memory(machine.root()).total == kAll);
  CHECK(host_system::memory(machine.root()).free == kAll);
  machine.write("/proc/self/cgroup", "0::/a");
  machine.write("/sys/fs/cgroup/a/memory.max", "4096");
  CHECK(host_system::memory(machine.root()).total == 4096);
  CHECK(host_system::memory(machine.root()).free == 4096);
}

TEST_CASE("memory: the free part of a group's limit, and none if the usage exceeds it") {
  constexpr std::uint64_t kMiB = 1 << 20;
  Machine machine;
  machine.write("/proc/meminfo", "MemTotalX: 1 kB\nMemTotal:  1024 kB\nMemAvailable: 4096 kB");
  CHECK(host_system::memory(machine.root()).total == kMiB);
  CHECK(host_system::memory(machine.root()).free == kMiB);  // never more than the machine has
  machine.write("/proc/meminfo", "MemTotal: 8192 kB\nMemAvailable: 4096 kB");
  machine.write("/proc/self/cgroup", "0::/a/b");
  machine.write("/sys/fs/cgroup/a/b/memory.max", std::to_string(6 * kMiB));
  machine.write("/sys/fs/cgroup/a/b/memory.current", std::to_string(kMiB));
  CHECK(host_system::memory(machine.root()).total == 6 * kMiB);
  CHECK(host_system::memory(machine.root()).free == 4 * kMiB);
  // The limit of the outer group is lower; its usage reaches the limit, then exceeds it.
  machine.write("/sys/fs/cgroup/a/memory.max", std::to_string(2 * kMiB));
  machine.write("/sys/fs/cgroup/a/memory.current", std::to_string(2 * kMiB));
  CHECK(host_system::memory(machine.root()).total == 2 * kMiB);
  CHECK(host_system::memory(machine.root()).free == 0);
  machine.write("/sys/fs/cgroup/a/memory.current", std::to_string(3 * kMiB));
  CHECK(host_system::memory(machine.root()).free == 0);
  // The cache exceeds the usage: all memory is free.
  machine.write("/sys/fs/cgroup/a/memory.stat", fmt::format("inactive_file {}", 5 * kMiB));
  CHECK(host_system::memory(machine.root()).free == 2 * kMiB);
}

TEST_CASE("control groups limit threads, old and new") {
  Machine machine;
  CHECK(host_system::most_threads(machine.root()) == 0);
  machine.write("/proc/self/cgroup", "3:pids:/old\n0::/outer/inner");
  machine.write("/sys/fs/cgroup/outer/inner/pids.max", "max");
  CHECK(host_system::most_threads(machine.root()) == 0);
  machine.write("/sys/fs/cgroup/outer/pids.max", "100");
  CHECK(host_system::most_threads(machine.root()) == 100);
  machine.write("/sys/fs/cgroup/outer/inner/pids.max", "200");
  CHECK(host_system::most_threads(machine.root()) == 100);
  machine.write("/sys/fs/cgroup/pids/old/pids.max", "50");
  CHECK(host_system::most_threads(machine.root()) == 50);
}

TEST_CASE("properties of each kind of device") {
  const DeviceTraits cpu = parse_device("cpu:2").traits();
  CHECK(std::string(cpu.noun) == "CPU");
  CHECK(cpu.speed_is_threads);
  CHECK(cpu.arithmetic_varies);
  CHECK_FALSE(cpu.overlaps_sums);
  CHECK(cpu.pass_bytes == 1 << 20);
  CHECK(cpu.max_samples == 256);
  CHECK(cpu.steps_ahead == 0);
  const DeviceTraits gpu = parse_device("cuda:1").traits();
  CHECK(std::string(gpu.noun) == "GPU");
  CHECK_FALSE(gpu.speed_is_threads);
  CHECK_FALSE(gpu.arithmetic_varies);
  CHECK(gpu.overlaps_sums);
  CHECK(gpu.pass_bytes == std::int64_t{2} << 30);
  CHECK(gpu.max_samples == 16384);
  CHECK(gpu.steps_ahead == 6);
  CHECK(parse_device("cpu:1024").threads == 1024);
  CHECK(contains(error_of([] { parse_device("cpu:1025"); }).what(), "N = 1 to 1024 threads"));
  CHECK(error_of([] { resolve_devices({}, 8); }).what() ==
        std::string("devices: expected at least one device or \"auto\", found an empty list"));
  CHECK(contains(error_of([] {
                   resolve_devices({"cpu", "auto", "cpu"}, 8);
                 }).what(),
                 "\"auto\" must be the only entry, found it in a list of 3"));
}

TEST_CASE("the machine describes itself") {
  Machine machine;
  CHECK(host_system::processor_model(machine.root()) == "unknown processor");
  machine.write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A Fast One\nmodel\t: 7");
  CHECK(host_system::processor_model(machine.root()) == "A Fast One");
  machine.write("/proc/cpuinfo", "model names: 3\nmodel name:");
  CHECK(host_system::processor_model(machine.root()).empty());
  const CpuInfo info = cpu_info();
  CHECK(info.physical_allowed <= info.logical_allowed);
  CHECK(info.memory_bytes > 0);
  CHECK(!info.instruction_set.empty());
  CHECK(info.bf16 == onednn::has_bf16());
  CHECK((info.bf16 || !info.bf16_is_faster));
  CHECK(contains(backends_built_in(), "oneDNN "));
}

}  // namespace
}  // namespace dpt::testing
