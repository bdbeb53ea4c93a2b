#include "app/train/weights_source.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/ranges.h>

#include "app/base/console.h"
#include "app/base/progress_line.h"
#include "app/evaluate/checkpoint_choice.h"
#include "engine/config/paths.h"
#include "engine/config/secrets.h"
#include "engine/downloads/download.h"
#include "engine/zoo/pretrained.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToStartFrom = {"train CONFIG --weights", "start from", "taken"};

/// Returns the number of seconds without data after which a download fails:
/// HF_HUB_DOWNLOAD_TIMEOUT, or 60.
int stall_seconds() {
  constexpr int kUsual = 60, kMax = 86400;
  const char* value = std::getenv("HF_HUB_DOWNLOAD_TIMEOUT");
  if (!value || !*value) return kUsual;
  const std::string_view text = value;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc{} || end != text.data() + text.size() || seconds < 1 || seconds > kMax) {
    fail(ErrorKind::usage,
         "HF_HUB_DOWNLOAD_TIMEOUT: expected a number of seconds from 1 to {}, found '{}'", kMax,
         text);
  }
  return seconds;
}

WeightsSource downloaded(const std::string& name, const std::string& sha256) {
  constexpr std::uint64_t kMegabyte = 1'000'000;
  ProgressLine line;
  DownloadOptions options;
  options.folder = weights_folder();
  options.sha256 = sha256;
  options.stall_seconds = stall_seconds();
  options.note = [](const std::string& text) { say(hide_secrets(text)); };
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    line.update("downloaded", static_cast<std::int64_t>(done / kMegabyte),
                static_cast<std::int64_t>(total / kMegabyte), "MB");
  };
  DownloadedFile file = download(name, options);
  return {std::move(file.path), std::move(file.url), std::move(file.sha256)};
}

}  // namespace

WeightsSource weights_source(const std::string& path) {
  if (is_remote(path)) return downloaded(path, {});
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return {find_checkpoint(path, kToStartFrom), {}, {}};
  return {path, {}, {}};
}

WeightsSource weights_source(const WeightsSpec& spec) {
  if (is_remote(spec.file)) return downloaded(spec.file, spec.sha256.value_or(""));
  WeightsSource source = weights_source(spec.file);
  if (!spec.sha256) return source;
  source.sha256 = sha256_of_file(source.path);
  if (source.sha256 == *spec.sha256) return source;
  fail(ErrorKind::data,
       "{}: expected the SHA-256 {} (weights.sha256), found {}: this is another file. Restore the "
       "file, or remove weights.sha256",
       source.path, *spec.sha256, source.sha256);
}

void resolve_pretrained(const ModelSpec& model, WeightsSpec& weights) {
  if (weights.file != kPretrained) return;
  const PretrainedWeights* row = pretrained_weights(model.zoo.type);
  if (!row) {
    fail(ErrorKind::usage,
         "weights.file: pretrained: expected a network of the zoo with pretrained weights (model: "
         "{{zoo: NAME}}), found {}. Networks with pretrained weights: {}. For other weights, give "
         "a file: a path, https://... or hf://OWNER/REPO",
         model.zoo.type.empty() ? "a model of layers" : "'" + model.zoo.type + "'",
         fmt::join(pretrained_networks(), ", "));
  }
  weights.file = row->file;
  weights.map = row->map;
}

}  // namespace dpt
