#include "datasets/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "kernels/base/stop_request.h"
#include "kernels/base/xxhash.h"

namespace dpt {
namespace {

XXH3_state_t* as_state(void* state) {
  return static_cast<XXH3_state_t*>(state);
}

}  // namespace

void Fingerprint::Free::operator()(void* state) const {
  XXH3_freeState(as_state(state));
}

Fingerprint::Fingerprint() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_64bits_reset(as_state(state_.get()));
}

void Fingerprint::add(const void* bytes, std::size_t count) {
  constexpr std::size_t kBetweenPolls = std::size_t{64} << 20;
  const auto* at = static_cast<const std::byte*>(bytes);
  for (std::size_t part = 0; count > 0; at += part, count -= part) {
    check_stop();
    part = std::min(count, kBetweenPolls);
    XXH3_64bits_update(as_state(state_.get()), at, part);
  }
}

void Fingerprint::add(const std::string& text) {
  add(text.c_str(), text.size() + 1);
}

std::string Fingerprint::text() const {
  return fmt::format("xxh3:{:016x}", XXH3_64bits_digest(as_state(state_.get())));
}

}  // namespace dpt
