// A hash that distinguishes data sets: XXH3 over everything that was added.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace dpt {

class Fingerprint {
 public:
  Fingerprint();
  void add(const void* bytes, std::size_t count);
  /// Adds the characters and a separator, so that consecutive texts are not joined.
  void add(const std::string& text);
  /// Returns "xxh3:" and 16 hexadecimal digits.
  std::string text() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  std::unique_ptr<void, Free> state_;
};

}  // namespace dpt
