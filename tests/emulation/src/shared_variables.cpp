#include "shared_variables.h"

#include <algorithm>
#include <cstring>

#include "program_symbols.h"
#include "settings.h"

namespace emulation {
namespace {

constexpr int kWatchedBlocks = 4;

}  // namespace

void SharedVariables::before_block(const void* kernel) {
  running_ = &kernels_[kernel];
  const auto& variables = thread_local_variables();
  for (const std::size_t known : running_->known) {
    std::memset(variables[known].here(), kPoison, variables[known].bytes);
  }
  watching_ = running_->watched < kWatchedBlocks;
  if (!watching_) return;
  ++running_->watched;
  before_.clear();
  for (const LocalVariable& variable : variables) {
    before_.insert(before_.end(), variable.here(), variable.here() + variable.bytes);
  }
}

void SharedVariables::after_block() {
  if (!watching_) return;
  const auto& variables = thread_local_variables();
  auto& known = running_->known;
  const unsigned char* before = before_.data();
  for (std::size_t i = 0; i < variables.size(); before += variables[i++].bytes) {
    const bool written = std::memcmp(before, variables[i].here(), variables[i].bytes) != 0;
    if (written && std::find(known.begin(), known.end(), i) == known.end()) known.push_back(i);
  }
}

}  // namespace emulation
