// Runs a function on every rank, each in its own thread with its own backend, as the trainer does.
// A rank that throws aborts the group.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/collectives/local_group.h"
#include "kernels/base/error.h"
#include "tests/engine/collectives/queued_backend.h"

namespace dpt {

struct Outcome {
  std::optional<ErrorKind> kind;  ///< none if the rank returned
  std::string text;
};

using RankBody = std::function<void(Communicator&, QueuedBackend&)>;

inline std::vector<Outcome> run_ranks(LocalGroup& group, int size, const RankBody& body,
                                      bool abort_on_error = true) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Outcome& outcome = outcomes[rank];
      QueuedBackend backend;
      try {
        body(*group.join(rank, backend), backend);
      } catch (const Error& error) {
        outcome = {error.kind(), error.what()};
      } catch (const std::exception& error) {
        outcome = {ErrorKind::unexpected, error.what()};
      }
      if (outcome.kind && abort_on_error) group.abort(rank, outcome.text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

inline std::vector<Outcome> run_ranks(
    int size, const RankBody& body, std::chrono::milliseconds deadline = std::chrono::minutes(1)) {
  LocalGroup group(size, deadline);
  return run_ranks(group, size, body);
}

/// Returns the message of the first rank that failed, or an empty string.
inline std::string first_failure(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) {
    if (outcome.kind) return outcome.text;
  }
  return {};
}

/// A device buffer of floats with a host copy on demand.
class Floats {
 public:
  Floats(QueuedBackend& backend, std::vector<float> values)
      : backend_(backend),
        host_(std::move(values)),
        memory_(backend.allocate(std::max<std::size_t>(64, bytes()), "test")) {
    backend.upload(ptr(), host_.data(), bytes());
  }
  DevPtr ptr() const { return memory_.ptr(); }
  std::vector<float> values() {
    std::vector<float> now(host_.size());
    backend_.download(now.data(), ptr(), bytes());
    backend_.synchronize();
    return now;
  }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(float); }
  QueuedBackend& backend_;
  std::vector<float> host_;
  DeviceMemory memory_;
};

}  // namespace dpt
