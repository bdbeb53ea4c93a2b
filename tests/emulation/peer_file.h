// Emulated sums between processes: a file that all of them map, named by the id of the sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

class PeerFile {
 public:
  /// `owns`: one of them, with which the file goes where its name is still there.
  PeerFile(const std::string& id, int total, bool owns);
  ~PeerFile();
  PeerFile(const PeerFile&) = delete;

  enum class Met : std::uint8_t { all, given_up, aborted };
  /// For `count` ranks from `first` on: waits until all ranks have come as often as these, one has
  /// given up, or `aborted` is set.
  Met meet(int first, int count, const std::atomic<bool>& aborted);
  /// Nobody waits any more.
  void give_up();
  /// When all have the file, its name may go.
  void remove_name();
  /// values[i] = the sum over ranks of values[i], added in the order of the ranks. False if it was
  /// aborted: then some are the sum, and others not.
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
