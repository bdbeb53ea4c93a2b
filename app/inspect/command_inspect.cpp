// dpt inspect FILE: shows the contents of a safetensors or PyTorch file and verifies its checksum.
#include "app/inspect/command_inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/base/command_support.h"
#include "app/evaluate/checkpoint_choice.h"
#include "app/train/weights_source.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/safetensors.h"
#include "engine/checkpoints/torch_file.h"
#include "engine/config/paths.h"
#include "kernels/base/error.h"
#include "kernels/base/json_text.h"

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

nlohmann::ordered_json json_of(const std::vector<TensorEntry>& tensors) {
  auto list = nlohmann::ordered_json::array();
  for (const TensorEntry& entry : tensors) {
    list.push_back({{"name", entry.name},
                    {"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"bytes", entry.bytes()}});
  }
  return list;
}

void print_tensors(const std::vector<TensorEntry>& tensors) {
  fmt::print("\n{:<40} {:<6} {:<20} {:>12}\n", "tensor", "dtype", "shape", "bytes");
  for (const TensorEntry& entry : tensors) {
    fmt::print("{:<40} {:<6} {:<20} {:>12}\n", printable(entry.name), entry.dtype,
               fmt::format("[{}]", fmt::join(entry.shape, ", ")), entry.bytes());
  }
}

int inspect_safetensors(const std::string& path, bool json) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const Integrity integrity = file.check_integrity();
  if (json) {
    nlohmann::ordered_json out;
    out["file"] = path;
    out["integrity"] = verdict_of(integrity);
    out["metadata"] = file.metadata();
    out["tensors"] = json_of(file.tensors());
    fmt::print("{}\n", json_text(out));
  } else {
    for (const auto& [key, value] : file.metadata()) {
      // Print only the first line of the config; --json has it all.
      const std::size_t line = value.find('\n');
      fmt::print("{}: {}{}\n", printable(key), printable(value.substr(0, line)),
                 line == std::string::npos ? "" : " ...");
    }
    print_tensors(file.tensors());
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
  // A correct checksum does not prove that the counters are possible for a run: check them.
  if (file.metadata().contains("dpt.version")) read_checkpoint_header(path);
  return 0;
}

/// Describes a dictionary in a PyTorch file in one line.
std::string line_of(const TorchDictionary& dictionary, bool is_usual) {
  constexpr std::size_t kMax = 10;
  std::vector<std::string> others;
  for (std::size_t i = 0; i < std::min(dictionary.others.size(), kMax); ++i) {
    others.push_back(printable(dictionary.others[i]));
  }
  if (dictionary.others.size() > kMax) others.emplace_back("...");
  return fmt::format(
      "{}: {} tensor{}{}{}",
      dictionary.key.empty() ? "the file's own dictionary" : printable(dictionary.key),
      dictionary.tensors.size(), dictionary.tensors.size() == 1 ? "" : "s",
      others.empty() ? "" : fmt::format("; no tensors: {}", fmt::join(others, ", ")),
      is_usual ? " (used unless weights.key names another)" : "");
}

int inspect_torch(const std::string& path, bool json) {
  TorchFile file = TorchFile::open(path);
  const TorchDictionary* usual = file.usual();
  Integrity integrity = Integrity::good;
  nlohmann::ordered_json out;
  out["file"] = path;
  out["format"] = "pytorch";
  out["integrity"] = "";
  out["usual"] = usual ? nlohmann::ordered_json(usual->key) : nlohmann::ordered_json();
  out["dictionaries"] = nlohmann::ordered_json::array();
  for (const TorchDictionary& each : file.dictionaries()) {
    file.choose(each.key);
    integrity = file.check_integrity();
    if (json) {
      out["dictionaries"].push_back(
          {{"key", each.key}, {"others", each.others}, {"tensors", json_of(each.tensors)}});
      continue;
    }
    fmt::print("{}{}\n", &each == &file.dictionaries()[0] ? "" : "\n",
               line_of(each, &each == usual));
    print_tensors(each.tensors);
  }
  out["integrity"] = verdict_of(integrity);
  if (json) {
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  fmt::print("\nintegrity: {}\nA run can start from these weights: dpt train CONFIG --weights {}\n",
             integrity == Integrity::good ? "good: the values have the archive's checksums (CRC-32)"
                                          : "unknown: the file was written without checksums",
             printable(path));
  return 0;
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  std::error_code error;  // for a name that is too long or an inaccessible folder
  const bool is_folder = std::filesystem::is_directory(options.file, error);
  const std::string path = is_folder                 ? find_checkpoint(options.file, kToInspect)
                           : is_remote(options.file) ? weights_source(options.file).path
                                                     : options.file;
  return is_torch_file(path) ? inspect_torch(path, options.json)
                             : inspect_safetensors(path, options.json);
}

}  // namespace dpt
