// A thing that all kernels of one backend share, such as a library's handle.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// One T for each context, made when it is first asked for, gone with its last user. Any thread may
/// ask; only the context's own thread asks for that context's.
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
    // Making a handle takes long, and other devices need not wait for it.
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
