// An object that all kernels of one backend share, such as a library's handle.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// One T per context, created on first use and destroyed with its last user. Any thread may use
/// this object, but only a context's own thread may ask for that context's T.
template <class T>
class PerContext {
 public:
  template <class Make>
  std::shared_ptr<T> get(const CudaContext& context, Make make) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = things_.find(&context);
      if (found != things_.end()) {
        if (auto alive = found->second.lock()) return alive;
      }
    }
    // Create it without the lock: creating a handle takes long, and other devices should not wait.
    std::shared_ptr<T> made = make();
    const std::lock_guard lock(mutex_);
    std::erase_if(things_, [](const auto& entry) { return entry.second.expired(); });
    things_[&context] = made;
    return made;
  }

 private:
  std::mutex mutex_;
  std::map<const CudaContext*, std::weak_ptr<T>> things_;
};

}  // namespace dpt
