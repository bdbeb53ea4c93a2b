// The backends that kernel tests run on: one test body, this list.
#pragma once

#include <omp.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "tests/support/skip.h"

namespace dpt::testing {

/// Names for make_backend: one thread, several, and a GPU where there is one; or the one that
/// DPT_TEST_BACKENDS names, for checkers under which every backend more costs minutes.
inline std::vector<std::string> backend_names() {
  if (const char* only = std::getenv("DPT_TEST_BACKENDS")) return {only};
  std::vector<std::string> names = {"cpu"};
  // Under ThreadSanitizer OMP_THREAD_LIMIT allows no team.
  if (omp_get_thread_limit() >= 2) names.emplace_back("cpu:2");
  if (cuda_info().unavailable.empty()) names.push_back("cuda:0");
  return names;
}

inline std::vector<std::unique_ptr<Backend>> backends() {
  std::vector<std::unique_ptr<Backend>> all;
  for (const std::string& name : backend_names()) all.push_back(make_backend(parse_device(name)));
  return all;
}

/// What the device error says that `make` throws; empty if it throws none.
template <class Make>
std::string refused(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::device ? std::string(error.what()) : std::string();
  }
  return {};
}

/// Kinds of device for whole runs, as in a config: "cpu", and "cuda:0" where there is a GPU.
inline std::vector<std::string> device_kinds() {
  std::vector<std::string> kinds = {"cpu"};
  if (cuda_info().unavailable.empty()) kinds.push_back("cuda:0");
  return kinds;
}

/// Whether the CPU plays this device (tests/emulation): a run takes a second or more, and some have
/// to do for all.
inline bool is_emulated(const std::string& device) {
  return device != "cpu" && cuda_info().devices.at(0).name.find("Emulated") != std::string::npos;
}

/// "devices=[cpu,cpu,cpu]": replicas that share one device, as an override of a config.
inline std::string replicas_on(const std::string& device, int count) {
  std::string text = "devices=[" + device;
  for (int i = 1; i < count; ++i) text += "," + device;
  return text + "]";
}

/// Whether there is a GPU; says that the test case is skipped where there is none.
inline bool have_gpu() {
  if (cuda_info().unavailable.empty()) return true;
  skip_test("no CUDA device: " + cuda_info().unavailable);
  return false;
}

}  // namespace dpt::testing
