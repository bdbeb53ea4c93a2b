// The threads of a process that decode samples, for all of its loaders.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace dpt {

/// Threads that work for their clients in turn, a small unit of work at a time. Idle-time clients
/// get threads only if no other client has work. Thread-safe. Must outlive its clients.
class DecoderPool {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    /// Does one unit of work, or returns false if there is none. Several threads call it
    /// concurrently.
    virtual bool work() noexcept = 0;
  };

  /// `threads` must be at least 1. The threads start with the first client.
  explicit DecoderPool(int threads);
  ~DecoderPool();

  int threads() const { return threads_wanted_; }
  /// Throws ErrorKind::device if the system starts no more threads.
  void add(Client& client);
  /// Adds a client that gets threads only if no other client has work. Throws like `add`.
  void add_idle(Client& client);
  /// Removes a client; returns when no thread works for it any more. Does nothing for an unknown
  /// client.
  void remove(Client& client);
  /// Announces that a client has work.
  void wake();

 private:
  struct Member {
    Client* client;
    int at_work = 0;  ///< number of threads that work for the client
    bool leaves = false;
  };
  using Members = std::list<Member>;

  void run();
  void add_to(Members& members, Client& client);
  bool serve_one(Members& members, std::unique_lock<std::mutex>& lock);

  const int threads_wanted_;
  std::mutex mutex_;
  std::condition_variable work_, idle_;
  Members members_;          ///< the client to serve next comes first
  Members idle_members_;     ///< the same for idle-time clients
  std::uint64_t calls_ = 0;  ///< number of calls of wake and add
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dpt
