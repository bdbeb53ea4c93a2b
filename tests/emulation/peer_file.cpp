#include "tests/emulation/peer_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr int kMaxRanks = 64;
constexpr std::size_t kFloats = 1 << 16;  ///< floats per rank; longer sums run in parts

}  // namespace

struct PeerFile::Header {
  std::atomic<std::uint64_t> arrivals[kMaxRanks];  ///< number of arrivals of each rank
  std::atomic<std::uint64_t> given_up;
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // Processes share them.

namespace {

constexpr std::size_t kHeaderBytes = 4096;

std::size_t file_bytes(int total) {
  return kHeaderBytes + static_cast<std::size_t>(total) * kFloats * sizeof(float);
}

}  // namespace

PeerFile::PeerFile(const std::string& id, int total, bool owns)
    : path_(std::filesystem::temp_directory_path() / ("dpt-emulated-sums-" + id)),
      total_(total),
      owns_(owns) {
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const std::size_t bytes = file_bytes(total);
  void* memory = MAP_FAILED;
  // Each process sets the same length; the file's initial zeros mean that no rank has arrived.
  if (file >= 0 && total <= kMaxRanks && ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  if (file >= 0) close(file);
  if (memory == MAP_FAILED) {
    fail(ErrorKind::device, "emulated sums: cannot map {} for {} ranks", path_, total);
  }
  static_assert(sizeof(Header) <= kHeaderBytes);
  header_ = static_cast<Header*>(memory);
}

PeerFile::~PeerFile() {
  munmap(header_, file_bytes(total_));
  if (owns_) remove_name();
}

void PeerFile::give_up() {
  header_->given_up = 1;
}

void PeerFile::remove_name() {
  unlink(path_.c_str());
}

PeerFile::Met PeerFile::meet(int first, int count, const std::atomic<bool>& aborted) {
  std::uint64_t mine = 0;
  for (int rank = first; rank < first + count; ++rank) mine = ++header_->arrivals[rank];
  for (int rank = 0; rank < total_; ++rank) {
    while (header_->arrivals[rank] < mine) {
      if (aborted) return Met::aborted;
      if (header_->given_up != 0) return Met::given_up;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  return Met::all;
}

float* PeerFile::part(int rank) const {
  return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(header_) + kHeaderBytes) +
         static_cast<std::size_t>(rank) * kFloats;
}

bool PeerFile::sum(int rank, std::vector<float>& values, const std::atomic<bool>& aborted) {
  for (std::size_t begin = 0; begin < values.size(); begin += kFloats) {
    const std::size_t count = std::min(values.size() - begin, kFloats);
    std::copy_n(values.data() + begin, count, part(rank));
    if (meet(rank, 1, aborted) != Met::all) return false;
    std::copy_n(part(0), count, values.data() + begin);
    for (int other = 1; other < total_; ++other) {
      for (std::size_t i = 0; i < count; ++i) values[begin + i] += part(other)[i];
    }
    // A rank may write its next part only after all ranks have read this one.
    if (meet(rank, 1, aborted) != Met::all) return false;
  }
  return true;
}

}  // namespace dpt
