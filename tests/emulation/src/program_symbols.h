// What the program's own symbol table says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulation {

/// A thread_local variable that a function declares, in this thread's copy of it.
struct LocalVariable {
  std::ptrdiff_t offset = 0;  ///< from an address that every thread has its own of
  std::size_t bytes = 0;
  unsigned char* here() const;
};

/// All of them; none if the program was stripped.
const std::vector<LocalVariable>& thread_local_variables();

/// The name of the function at this address, or the address as text.
std::string function_name(const void* function);

}  // namespace emulation
