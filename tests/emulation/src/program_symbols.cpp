#include "program_symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <fmt/format.h>
#include <sys/auxv.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace emulation {

// Anchors from which the addresses of thread_local variables and functions are counted. They have C
// names, so that the symbol table lists them unmangled.
extern "C" {
__attribute__((used)) thread_local unsigned char emulation_thread_local_anchor = 0;
__attribute__((used)) void emulation_code_anchor() {}
}

namespace {

struct Symbols {
  std::vector<LocalVariable> locals;
  std::map<std::uintptr_t, std::string> functions;  ///< mangled names by address at run time
};

template <class T>
T read_at(const std::string& file, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= file.size()) std::memcpy(&value, file.data() + at, sizeof(T));
  return value;
}

Symbols read_symbols() {
  std::ifstream stream("/proc/self/exe", std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  const std::string file = std::move(bytes).str();
  Symbols result;
  const auto header = read_at<Elf64_Ehdr>(file, 0);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return result;
  std::vector<std::pair<std::string, Elf64_Sym>> all;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    const auto section = read_at<Elf64_Shdr>(file, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto names =
        read_at<Elf64_Shdr>(file, header.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    for (std::size_t at = 0; at < section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(file, section.sh_offset + at);
      const std::size_t name = names.sh_offset + symbol.st_name;
      if (name < file.size()) all.emplace_back(file.data() + name, symbol);
    }
  }
  std::intptr_t code_offset = 0, anchor = -1;
  for (const auto& [name, symbol] : all) {
    if (name == "emulation_code_anchor") {
      code_offset = reinterpret_cast<std::intptr_t>(&emulation_code_anchor) -
                    static_cast<std::intptr_t>(symbol.st_value);
    }
    if (name == "emulation_thread_local_anchor") {
      anchor = static_cast<std::intptr_t>(symbol.st_value);
    }
  }
  for (const auto& [name, symbol] : all) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    if (type == STT_FUNC && symbol.st_value != 0) {
      result.functions[static_cast<std::uintptr_t>(static_cast<std::intptr_t>(symbol.st_value) +
                                                   code_offset)] = name;
    }
    // The mangled names of variables that functions declare begin with _ZZ.
    if (type == STT_TLS && name.starts_with("_ZZ") && anchor >= 0) {
      result.locals.push_back(
          {static_cast<std::intptr_t>(symbol.st_value) - anchor, symbol.st_size});
    }
  }
  return result;
}

const Symbols& symbols() {
  static const Symbols& instance = *new Symbols(read_symbols());
  return instance;
}

}  // namespace

unsigned char* LocalVariable::here() const {
  return &emulation_thread_local_anchor + offset;
}

const std::vector<LocalVariable>& thread_local_variables() {
  return symbols().locals;
}

std::string function_name(const void* function) {
  const auto found = symbols().functions.find(reinterpret_cast<std::uintptr_t>(function));
  if (found == symbols().functions.end()) return fmt::format("{}", function);
  int status = 0;
  char* name = abi::__cxa_demangle(found->second.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? name : found->second;
  std::free(name);
  return result;
}

}  // namespace emulation
