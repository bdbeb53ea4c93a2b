// The __shared__ variables of kernels: which a kernel uses, and filling them with NaNs between
// blocks.
//
// They are thread_local variables of functions, but not all such variables are shared memory. One
// that changes while a block runs is: kernels write nothing else that is thread_local. So the first
// blocks of a kernel are watched.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

namespace emulation {

class SharedVariables {
 public:
  /// Before a block of this kernel runs, on the thread that runs it.
  void before_block(const void* kernel);
  void after_block();

 private:
  struct Kernel {
    int watched = 0;                 ///< blocks
    std::vector<std::size_t> known;  ///< variables it writes
  };
  std::map<const void*, Kernel> kernels_;
  Kernel* running_ = nullptr;
  bool watching_ = false;
  std::vector<unsigned char> before_;
};

}  // namespace emulation
