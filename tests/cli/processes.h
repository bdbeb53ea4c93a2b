// Several dpt processes of one world on this machine, as `--nproc` starts them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/safetensors.h"
#include "tests/cli/program.h"

namespace dpt::testing {

/// Returns a loopback port that was free a moment ago.
inline int free_port() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::runtime_error("no free port");
  }
  close(listener);
  return ntohs(address.sin_port);
}

/// Runs several processes. Their arguments may differ; all run in the same folder.
class Processes {
 public:
  Processes(const std::vector<std::vector<std::string>>& arguments, const std::string& cwd,
            const std::function<void(int rank)>& in_child = {}) {
    const int size = static_cast<int>(arguments.size());
    const std::string ports = std::to_string(free_port()) + "," + std::to_string(free_port());
    for (int rank = 0; rank < size; ++rank) {
      logs_.push_back(std::make_unique<TempDir>());
      programs_.push_back(std::make_unique<Program>(arguments[rank], cwd, *logs_.back(), [&, rank] {
        setenv("DPT_RANK", std::to_string(rank).c_str(), 1);
        setenv("DPT_WORLD_SIZE", std::to_string(size).c_str(), 1);
        setenv("DPT_LOCAL_RANK", std::to_string(rank).c_str(), 1);
        setenv("DPT_LOCAL_SIZE", std::to_string(size).c_str(), 1);
        setenv("DPT_PORTS", ports.c_str(), 1);
        setenv("DPT_TOKEN", "only for this test", 1);
        if (in_child) in_child(rank);
      }));
    }
  }
  Program& operator[](int rank) { return *programs_[rank]; }
  std::vector<Finished> wait() {
    std::vector<Finished> all;
    for (const auto& program : programs_) all.push_back(program->wait());
    return all;
  }

 private:
  std::vector<std::unique_ptr<TempDir>> logs_;
  std::vector<std::unique_ptr<Program>> programs_;
};

/// Returns the same command for each process, with these devices.
inline std::vector<std::vector<std::string>> on_devices(std::vector<std::string> command,
                                                        const std::vector<std::string>& devices) {
  std::vector<std::vector<std::string>> all;
  for (const std::string& each : devices) {
    all.push_back(command);
    all.back().insert(all.back().end(), {"--devices", each});
  }
  return all;
}

/// Returns the name of a run's newest checkpoint and the bytes of its tensors.
inline std::string tensor_bytes(const std::string& run) {
  const std::vector<std::string> files = list_checkpoints(run + "/checkpoints");
  if (files.empty()) throw std::runtime_error(run + " has no checkpoint");
  std::string all = files[0].substr(files[0].rfind('/'));
  const SafetensorsFile file = SafetensorsFile::open(files[0]);
  for (const TensorEntry& tensor : file.tensors()) {
    if (tensor.name == "dpt.integrity") continue;  // its checksum covers the devices' names, too
    all += tensor.name;
    for (const std::byte byte : file.read(tensor)) all += static_cast<char>(byte);
  }
  return all;
}

}  // namespace dpt::testing
