// Links that report when their process waits for others.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/collectives/process_links.h"

namespace dpt {

/// Function that is called with the operation (a string literal) when this process begins to wait
/// for others, and with null when the wait ends; may be empty. There is only one wait at a time.
using TellWaiting = std::function<void(const char* operation)>;

/// Scope in which this process waits for others: reports the beginning and the end of the wait.
class WaitsFor {
 public:
  WaitsFor(const TellWaiting& tell, const char* operation) : tell_(tell) {
    if (tell_) tell_(operation);
  }
  WaitsFor(const WaitsFor&) = delete;
  ~WaitsFor() {
    if (tell_) tell_(nullptr);
  }

 private:
  const TellWaiting& tell_;
};

/// Reports the waits of exchanges. Unsuitable for links whose exchanges overlap with the
/// computation, because the process does not wait for those.
class WatchedLinks : public ProcessLinks {
 public:
  WatchedLinks(std::unique_ptr<ProcessLinks> links, TellWaiting waiting)
      : links_(std::move(links)), waiting_(std::move(waiting)) {}
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }
  void exchange(std::span<const std::span<const std::byte>> send,
                std::span<const std::span<std::byte>> receive, const char* operation) override {
    const WaitsFor wait(waiting_, operation);
    links_->exchange(send, receive, operation);
  }
  void abort(const std::string& cause) noexcept override { links_->abort(cause); }

 private:
  const std::unique_ptr<ProcessLinks> links_;
  const TellWaiting waiting_;
};

}  // namespace dpt
