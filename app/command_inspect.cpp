// dpt inspect FILE: what a safetensors file holds, and whether its bytes are intact.
#include <fmt/ranges.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/cli.h"
#include "engine/checkpoints/safetensors.h"

namespace dpt {
namespace {

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

/// The text with control characters shown as \\xNN: a file must not drive the reader's terminal.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

int run_inspect(const std::string& path, bool as_json) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  const Integrity integrity = file.check_integrity();
  if (as_json) {
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
    fmt::print("{}\n", out.dump());
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
                   ? "unknown: the file has no dpt.integrity checksum (dpt did not write it)"
                   : "MISMATCH: bytes have changed since the file was written");
  }
  if (integrity == Integrity::mismatch) {
    fail(ErrorKind::data,
         "{}: its bytes do not match its checksum (dpt.integrity): the file is "
         "damaged; use an earlier checkpoint",
         path);
  }
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, CommandBody& body) {
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* inspect =
      app.add_subcommand("inspect", "Show what a safetensors file holds and whether it is intact");
  inspect->add_option("file", *path, "A checkpoint or any safetensors file")->required();
  inspect->add_flag("--json", *json, "One JSON object on stdout");
  inspect->callback(
      [path, json, &body] { body = [path, json] { return run_inspect(*path, *json); }; });
}

}  // namespace dpt
