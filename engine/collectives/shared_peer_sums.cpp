#include "engine/collectives/shared_peer_sums.h"

#include <algorithm>
#include <numeric>
#include <sstream>
#include <utility>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr const char* kSettingUp = "set_up_overlapped_sums";

/// Returns the texts of all processes, by rank; without links, only `mine`.
std::vector<std::string> gather_over(ProcessLinks* links, const std::string& mine) {
  if (!links) return {mine};
  const auto processes = static_cast<std::size_t>(links->size());
  const auto own = static_cast<std::size_t>(links->rank());
  std::vector<std::span<const std::byte>> send(processes);
  std::vector<std::span<std::byte>> receive(processes);
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(processes);
  for (std::size_t p = 0; p < processes; ++p) {
    send[p] = std::as_bytes(std::span(&size, 1));
    receive[p] = std::as_writable_bytes(std::span(&sizes[p], 1));
  }
  links->exchange(send, receive, kSettingUp);
  std::vector<std::string> texts(processes);
  for (std::size_t p = 0; p < processes; ++p) {
    if (p != own) texts[p].resize(sizes[p]);
    send[p] = std::as_bytes(std::span<const char>(mine));
    receive[p] = std::as_writable_bytes(std::span<char>(texts[p]));
  }
  links->exchange(send, receive, kSettingUp);
  texts[own] = mine;
  return texts;
}

/// Returns `readiness` as text, one value per line.
std::string text_of_readiness(const PeerReadiness& readiness) {
  std::string why_not = readiness.why_not;
  std::replace(why_not.begin(), why_not.end(), '\n', ' ');
  std::string text = why_not + '\n' + readiness.library + '\n';
  for (const PeerReadiness::Gpu& gpu : readiness.gpus) {
    text += gpu.name + '\n' + gpu.uuid + '\n' + gpu.place + '\n';
  }
  return text;
}

PeerReadiness parse_readiness(const std::string& text) {
  PeerReadiness readiness;
  std::istringstream lines(text);
  std::getline(lines, readiness.why_not);
  std::getline(lines, readiness.library);
  PeerReadiness::Gpu gpu;
  while (std::getline(lines, gpu.name) && std::getline(lines, gpu.uuid) &&
         std::getline(lines, gpu.place)) {
    readiness.gpus.push_back(gpu);
  }
  return readiness;
}

bool are_one_gpu(const PeerReadiness::Gpu& a, const PeerReadiness::Gpu& b) {
  return a.uuid == b.uuid || a.place == b.place;
}

/// Returns the first text that is not empty, prefixed with its process; empty if there is none.
std::string first_of(const std::vector<std::string>& texts) {
  for (std::size_t p = 0; p < texts.size(); ++p) {
    if (!texts[p].empty()) return fmt::format("rank {}: {}", p, texts[p]);
  }
  return {};
}

}  // namespace

std::string problem_of_peers(const std::vector<PeerReadiness>& processes) {
  const bool alone = processes.size() == 1;
  struct Known {
    std::size_t process;
    const PeerReadiness::Gpu* gpu;
  };
  std::vector<Known> known;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    const PeerReadiness& each = processes[p];
    if (!each.why_not.empty()) {
      return alone ? each.why_not : fmt::format("rank {}: {}", p, each.why_not);
    }
    if (each.library != processes[0].library) {
      return fmt::format("rank 0 has {}, but rank {} has {}: expected one version in all processes",
                         processes[0].library, p, each.library);
    }
    for (const PeerReadiness::Gpu& gpu : each.gpus) {
      const auto same = std::find_if(known.begin(), known.end(), [&](const Known& other) {
        return are_one_gpu(*other.gpu, gpu);
      });
      if (same == known.end()) {
        known.push_back({p, &gpu});
      } else if (alone) {
        return "replicas share a GPU";
      } else {
        return fmt::format("{} of rank {} and {} of rank {} are the same GPU ({})", same->gpu->name,
                           same->process, gpu.name, p, gpu.place);
      }
    }
  }
  return {};
}

std::string SharedPeerSums::set_up(std::span<Backend* const> backends,
                                   std::span<const int> ranks_of, ProcessLinks* links,
                                   const TellWaiting& waiting) {
  const int process = links ? links->rank() : 0;
  std::vector<PeerReadiness> all;
  for (const std::string& text : gather_over(links, text_of_readiness(peer_readiness(backends)))) {
    all.push_back(parse_readiness(text));
  }
  const std::string problem = problem_of_peers(all);
  if (!problem.empty()) return problem;

  // From here on all processes take the same steps, which may still fail on some of them.
  PeerWorld world;
  world.total = std::accumulate(ranks_of.begin(), ranks_of.end(), 0);
  world.first = std::accumulate(ranks_of.begin(), ranks_of.begin() + process, 0);
  std::string failure;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const Error& error) {
      if (!links || error.kind() != ErrorKind::device) throw;
      failure = error.what();
    }
  };
  if (process == 0) attempt([&] { world.id = make_peer_id(); });
  std::string none = first_of(gather_over(links, failure));
  if (!none.empty()) return none;
  world.id = gather_over(links, world.id)[0];

  attempt([&] {
    replace(make_peer_sums(backends));
    const WaitsFor wait(waiting, kSettingUp);
    sums_->connect(world);
  });
  none = first_of(gather_over(links, failure));
  if (!none.empty()) replace(nullptr);
  return none;
}

void SharedPeerSums::replace(std::unique_ptr<PeerSums> sums) {
  const std::lock_guard lock(mutex_);
  sums_ = std::move(sums);
  if (sums_ && was_aborted_) sums_->abort();
}

void SharedPeerSums::abort() noexcept {
  const std::lock_guard lock(mutex_);
  was_aborted_ = true;
  if (sums_) sums_->abort();
}

}  // namespace dpt
