// The content of the program's symbol table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulation {

/// A thread_local variable that a function declares, as this thread's copy.
struct LocalVariable {
  std::ptrdiff_t offset = 0;  ///< offset from an anchor, whose address differs in each thread
  std::size_t bytes = 0;
  unsigned char* here() const;
};

/// Returns all such variables; none if the program was stripped.
const std::vector<LocalVariable>& thread_local_variables();

/// Returns the name of the function at this address, or the address as text.
std::string function_name(const void* function);

}  // namespace emulation
