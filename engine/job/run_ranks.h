// Starts one thread per device and runs the same function on each.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "engine/collectives/communicator.h"
#include "kernels/devices.h"

namespace dpt {

struct Job;

/// Work of one rank.
using RankBody = std::function<void(Backend&, Communicator&)>;

/// Runs body(backend, communicator) once per device, with backends made with `options`. Each call
/// has its own thread, except in a world of one, where it runs in the caller's. If a rank throws,
/// stalls or cannot be started, the others are woken and stop. The root cause is rethrown after all
/// threads have ended.
void run_ranks(const std::vector<DeviceName>& devices, const BackendOptions& options,
               const RankBody& body,
               std::chrono::milliseconds stall_timeout = std::chrono::minutes(10));

/// Runs the body on this process's devices of a job. The ranks are numbered over the whole job.
void run_ranks(const Job& job, const RankBody& body);

}  // namespace dpt
