#include "engine/data/decoder_pool.h"

#include <algorithm>

#include "kernels/base/heartbeat.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/text.h"

namespace dpt {

DecoderPool::DecoderPool(int threads) : threads_wanted_(std::max(threads, 1)) {}

DecoderPool::~DecoderPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void DecoderPool::add(Client& client) {
  add_to(members_, client);
}

void DecoderPool::add_idle(Client& client) {
  add_to(idle_members_, client);
}

void DecoderPool::add_to(Members& members, Client& client) {
  const std::lock_guard lock(mutex_);
  while (static_cast<int>(threads_.size()) < threads_wanted_) {
    threads_.push_back(
        start_thread(fmt::format("decoder thread {} of {}", threads_.size() + 1, threads_wanted_),
                     [this] { run(); }));
  }
  members.push_back({&client});
  ++calls_;
  work_.notify_all();
}

void DecoderPool::remove(Client& client) {
  std::unique_lock lock(mutex_);
  for (Members* members : {&members_, &idle_members_}) {
    const auto member = std::find_if(members->begin(), members->end(),
                                     [&](const Member& each) { return each.client == &client; });
    if (member == members->end()) continue;
    member->leaves = true;
    idle_.wait(lock, [&] { return member->at_work == 0; });
    members->erase(member);
  }
}

void DecoderPool::wake() {
  {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  work_.notify_all();
}

bool DecoderPool::serve_one(Members& members, std::unique_lock<std::mutex>& lock) {
  // Ask each client once; clients added in the meantime are asked the next time.
  for (std::size_t left = members.size(); left > 0 && !members.empty() && !stopping_; --left) {
    const auto member = members.begin();
    members.splice(members.end(), members, member);
    if (member->leaves) continue;
    ++member->at_work;
    lock.unlock();
    const bool has_worked = member->client->work();
    lock.lock();
    if (--member->at_work == 0 && member->leaves) idle_.notify_all();
    if (has_worked) return true;
  }
  return false;
}

void DecoderPool::run() {
  // Clients of several replicas share the thread; each sets the heartbeat of its replica itself.
  set_heartbeat_of_thread(nullptr);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::uint64_t seen = calls_;
    if (serve_one(members_, lock) || serve_one(idle_members_, lock)) continue;
    work_.wait(lock, [&] { return stopping_ || calls_ != seen; });
  }
}

}  // namespace dpt
