// The threads of a process that decode samples, for all of its loaders.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace dpt {

/// Threads that work for their clients in turn, a small piece of work at a time; for idle-time
/// clients only if no other client has work. Thread-safe. It must outlive its clients.
class DecoderPool {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    /// Does a piece of work, or returns false where there is none. Several threads call it at once.
    virtual bool work() noexcept = 0;
  };

  /// At least one thread; they start with the first client.
  explicit DecoderPool(int threads);
  ~DecoderPool();

  int threads() const { return threads_wanted_; }
  /// Throws ErrorKind::device when the system starts no more threads.
  void add(Client& client);
  /// Adds a client that gets threads only if no other client has work. Throws like `add`.
  void add_idle(Client& client);
  /// Returns when no thread works for the client, and none will. Nothing for one that is not added.
  void remove(Client& client);
  /// A client has work now.
  void wake();

 private:
  struct Member {
    Client* client;
    int at_work = 0;  ///< threads
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
