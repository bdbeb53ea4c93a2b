// The __shared__ variables of kernels: finds those that a kernel uses, and fills them with NaNs
// between blocks.
//
// Shared variables are thread_local variables of functions, but not all of these are shared memory.
// A variable that changes while a block runs is shared, since kernels write no other thread_local
// variables. The first blocks of a kernel are therefore watched.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace emulation {

class SharedVariables {
 public:
  /// Must be called before a block of this kernel runs, on the thread that runs it.
  void before_block(const void* kernel);
  void after_block();

 private:
  struct Kernel {
    int watched = 0;                 ///< number of watched blocks
    std::vector<std::size_t> known;  ///< variables that the kernel writes
  };
  std::map<const void*, Kernel> kernels_;
  Kernel* running_ = nullptr;
  bool watching_ = false;
  std::vector<unsigned char> before_;
};

}  // namespace emulation
