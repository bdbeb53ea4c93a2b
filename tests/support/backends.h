// The backends that kernel tests run on: each test body runs on every backend of this list.
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

/// Returns names for make_backend: one CPU thread, several, and a GPU if present. The environment
/// variable DPT_TEST_BACKENDS replaces the list; it is for slow tools, under which each additional
/// backend takes minutes.
inline std::vector<std::string> backend_names() {
  if (const char* only = std::getenv("DPT_TEST_BACKENDS")) return {only};
  std::vector<std::string> names = {"cpu"};
  // Under ThreadSanitizer, OMP_THREAD_LIMIT allows no team of threads.
  if (omp_get_thread_limit() >= 2) names.emplace_back("cpu:2");
  if (cuda_info().unavailable.empty()) names.push_back("cuda:0");
  return names;
}

inline std::vector<std::unique_ptr<Backend>> backends() {
  std::vector<std::unique_ptr<Backend>> all;
  for (const std::string& name : backend_names()) all.push_back(make_backend(parse_device(name)));
  return all;
}

/// Returns the message of the device error that `make` throws, or an empty string if it throws
/// none.
template <class Make>
std::string refused(const Make& make) {
  try {
    make();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::device ? std::string(error.what()) : std::string();
  }
  return {};
}

/// Returns the device kinds for whole runs, as in a config: "cpu", and "cuda:0" if there is a GPU.
inline std::vector<std::string> device_kinds() {
  std::vector<std::string> kinds = {"cpu"};
  if (cuda_info().unavailable.empty()) kinds.push_back("cuda:0");
  return kinds;
}

/// Returns true if the CPU emulates this device (tests/emulation). An emulated run takes a second
/// or more, so tests make only a few.
inline bool is_emulated(const std::string& device) {
  return device != "cpu" && cuda_info().devices.at(0).name.find("Emulated") != std::string::npos;
}

/// Returns the config override for replicas that share one device, for example
/// "devices=[cpu,cpu,cpu]".
inline std::string replicas_on(const std::string& device, int count) {
  std::string text = "devices=[" + device;
  for (int i = 1; i < count; ++i) text += "," + device;
  return text + "]";
}

/// Returns true if there is a GPU. Otherwise reports the test case as skipped.
inline bool have_gpu() {
  if (cuda_info().unavailable.empty()) return true;
  skip_test("no CUDA device: " + cuda_info().unavailable);
  return false;
}

}  // namespace dpt::testing
