// dpt inspect FILE: what a safetensors file holds, and whether its bytes are intact.
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/checkpoint_choice.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/safetensors.h"
#include "kernels/error.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToInspect = {"inspect", "inspect", "inspected"};

const char* verdict_of(Integrity integrity) {
  switch (integrity) {
    case Integrity::good:
      return "good";
    case Integrity::mismatch:
      return "mismatch";
    case Integrity::absent:
      return "absent";
  }
  return "?";
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  std::error_code error;  // for a name that is too long or an inaccessible folder
  const bool is_folder = std::filesystem::is_directory(options.file, error);
  const std::string path = is_folder ? find_checkpoint(options.file, kToInspect) : options.file;
  const SafetensorsFile file = SafetensorsFile::open(path);
  const Integrity integrity = file.check_integrity();
  if (options.json) {
    nlohmann::ordered_json out;
    out["file"] = path;
    out["integrity"] = verdict_of(integrity);
    out["metadata"] = file.metadata();
    out["tensors"] = nlohmann::ordered_json::array();
    for (const TensorEntry& entry : file.tensors()) {
      out["tensors"].push_back({{"name", entry.name},
                                {"dtype", entry.dtype},
                                {"shape", entry.shape},
                                {"bytes", entry.bytes()}});
    }
    fmt::print("{}\n", json_text(out));
  } else {
    for (const auto& [key, value] : file.metadata()) {
      // The config has many lines: its first says enough here, --json has it all.
      const std::size_t line = value.find('\n');
      fmt::print("{}: {}{}\n", printable(key), printable(value.substr(0, line)),
                 line == std::string::npos ? "" : " ...");
    }
    fmt::print("\n{:<40} {:<6} {:<20} {:>12}\n", "tensor", "dtype", "shape", "bytes");
    for (const TensorEntry& entry : file.tensors()) {
      fmt::print("{:<40} {:<6} {:<20} {:>12}\n", printable(entry.name), entry.dtype,
                 fmt::format("[{}]", fmt::join(entry.shape, ", ")), entry.bytes());
    }
    fmt::print("\nintegrity: {}\n",
               integrity == Integrity::good ? "good: every byte is as it was written"
               : integrity == Integrity::absent
                   ? "unknown: the file has no dpt.integrity checksum (dpt writes one into "
                     "checkpoints only)"
                   : "MISMATCH: bytes have changed since the file was written");
  }
  if (integrity == Integrity::mismatch) {
    fail(ErrorKind::data,
         "{}: its bytes do not match its checksum (dpt.integrity): the file is "
         "damaged; use an earlier checkpoint",
         path);
  }
  // Its bytes are as they were written: then its counters must be ones that a run can have.
  if (file.metadata().contains("dpt.version")) read_checkpoint_header(path);
  return 0;
}

}  // namespace dpt
