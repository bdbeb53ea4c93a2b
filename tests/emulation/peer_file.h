// Emulated sums between processes: a file that all processes map. Its name has the id of the sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

class PeerFile {
 public:
  /// `owns` is true for one process only. Its destructor removes the file if its name still exists.
  PeerFile(const std::string& id, int total, bool owns);
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;

  enum class Met : std::uint8_t { all, given_up, aborted };
  /// Adds an arrival for `count` ranks from `first` on. Waits until all ranks have arrived at
  /// least as often, a process has given up, or `aborted` is set.
  Met meet(int first, int count, const std::atomic<bool>& aborted);
  /// Ends every present and future wait.
  void give_up();
  /// Removes the name of the file; to be called when all processes have opened it.
  void remove_name();
  /// Sets values[i] to the sum over ranks of values[i], added in the order of the ranks. Returns
  /// false if aborted; then only some of the values are sums.
  bool sum(int rank, std::vector<float>& values, const std::atomic<bool>& aborted);

 private:
  struct Header;
  float* part(int rank) const;

  const std::string path_;
  const int total_;
  const bool owns_;
  Header* header_ = nullptr;
};

}  // namespace dpt
