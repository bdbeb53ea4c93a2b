#include "app/base/command_support.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/console.h"
#include "app/base/training_statistics.h"
#include "datasets/dataset.h"
#include "engine/checkpoints/run_metadata.h"
#include "engine/config/show_spec.h"
#include "engine/config/target_kinds.h"
#include "engine/data/data_sets.h"
#include "engine/data/packed_cache.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "engine/graph/make_plan.h"
#include "engine/job/objective.h"
#include "engine/processes/process_devices.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/file_io.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {

std::string version_text() {
  return fmt::format("dpt {} ({})", DPT_VERSION, backends_built_in());
}

std::vector<std::string> with_devices(std::vector<std::string> overrides,
                                      const std::string& devices) {
  if (!devices.empty()) overrides.push_back("devices=[" + devices + "]");
  return overrides;
}

std::vector<std::string> problems_of_samples(const DataSource* source) {
  if (!source) return {};
  constexpr std::size_t kMaxLines = 20;
  const auto width = source->type() == DType::u8 ? 1 : sizeof(float);
  std::vector<std::byte> pixels(static_cast<std::size_t>(source->shape().elements()) * width);
  std::vector<std::string> lines;
  std::size_t bad = 0;
  for (const std::int64_t index : source->samples_to_try()) {
    std::int32_t label = 0;
    try {
      source->read(index, pixels, label);
    } catch (const Error& error) {
      if (++bad <= kMaxLines) lines.emplace_back(error.what());
    }
  }
  if (bad > kMaxLines) lines.push_back(fmt::format("(and {} more)", bad - kMaxLines));
  return lines;
}

void try_samples(std::initializer_list<const DataSource*> sources, OnBadSample policy) {
  std::vector<std::string> lines;
  for (const DataSource* source : sources) {
    for (std::string& line : problems_of_samples(source)) lines.push_back(std::move(line));
  }
  if (lines.empty()) return;
  if (policy != OnBadSample::skip) {
    throw Error(ErrorKind::data, fmt::format("{}", fmt::join(lines, "\n")));
  }
  for (const std::string& line : lines) {
    say(fmt::format("warning: left out (data.on_bad_sample: skip): {}", line));
  }
}

std::string difference_of_data(const char* name, const std::string& expected,
                               const DataSource& source) {
  const std::string found = source.fingerprint();
  if (expected.empty() || expected == found) return {};
  return fmt::format(
      "expected the run's {} data (fingerprint {}), found other data (fingerprint {}, {})", name,
      expected, found, counted(source.size(), "sample"));
}

std::string difference_of_validation(const std::string& expected, const Splits& splits) {
  const std::string found = validation_fingerprint(splits);
  if (expected.empty() || expected == found) return {};
  return fmt::format(
      "expected the run's validation samples (fingerprint {}), found other ones (fingerprint {}, "
      "{}){}",
      expected, found.empty() ? "none" : found, counted(splits.val.size(), "sample"),
      splits.has_own_val
          ? ""
          : ": the values that data.val_split depends on, such as the group column, have changed");
}

void check_outputs(const TrainSpec& spec, std::int64_t outputs) {
  if (outputs != 1 || dataset_kind(spec.data.dataset).any_targets) return;
  fail(ErrorKind::usage,
       "model: data set {} has class labels: expected a last layer with one output per class (at "
       "least 2), found 1 output",
       spec.data.dataset.type);
}

DataSets with_caches(DataSets sets, const DataSpec& spec, UsedFiles used, MissingCache missing) {
  if (spec.cache.empty()) return sets;
  if (!sets.train->resizes()) {
    fail(ErrorKind::usage,
         "data.cache: expected a data set of images that are decoded when they are read "
         "(image_folder, webdataset, csv with path), found {}: remove data.cache",
         spec.dataset.type);
  }
  PackedCacheOptions options;
  options.shorter_side = spec.cache_shorter_side;
  options.applies_orientation = spec.exif_orientation == ExifOrientation::apply;
  options.salvage = spec.on_bad_sample == OnBadSample::salvage;
  options.threads = cpu_info().logical_allowed;
  options.info = [](const std::string& text) { say(text); };
  const auto cached = [&](const std::shared_ptr<const DataSource>& source, const char* name) {
    if (!source) return source;
    options.path = (std::filesystem::path(spec.cache) / name).string();
    std::error_code error;
    if (missing == MissingCache::leave && !std::filesystem::exists(options.path, error)) {
      say(fmt::format(
          "note: {} (data.cache) does not exist yet: the images are read from their files{}",
          options.path,
          spec.cache_shorter_side > 0 ? ", and are not resized to data.cache_shorter_side first, "
                                        "as they will be in training"
                                      : ""));
      return source;
    }
    return with_packed_cache(source, options);
  };
  const bool defaults = used == UsedFiles::default_split;
  if (used == UsedFiles::all || used == UsedFiles::train || (defaults && !sets.test)) {
    sets.train = cached(sets.train, "train.pack");
  }
  if (used == UsedFiles::all || used == UsedFiles::train || used == UsedFiles::val) {
    sets.val = cached(sets.val, "val.pack");
  }
  if (used == UsedFiles::all || used == UsedFiles::test || defaults) {
    sets.test = cached(sets.test, "test.pack");
  }
  return sets;
}

/// Parses the header that rank 0 has sent as text.
void read_header(const std::string& text, CheckpointHeader& header) {
  const nlohmann::json fields = nlohmann::json::parse(text);
  header.config = fields.at("config").get<std::string>();
  header.classes = fields.at("classes").get<std::vector<std::string>>();
  if (fields.contains("targets")) {
    header.targets = enum_of<TargetKind>(fields.at("targets").get<std::string>());
  }
  header.features = fields.at("features").get<std::vector<std::string>>();
  if (fields.contains("sample_type")) {
    header.sample_type = sample_type_of(fields.at("sample_type").get<std::string>());
  }
  header.test_fingerprint = fields.at("test_fingerprint").get<std::string>();
  header.val_fingerprint = fields.at("val_fingerprint").get<std::string>();
}

void share_header(ProcessGroup& processes, CheckpointHeader& header) {
  nlohmann::json fields = {{"config", header.config}, {"classes", header.classes}};
  if (header.targets) fields["targets"] = name_of(*header.targets);
  fields["features"] = header.features;
  if (header.sample_type) fields["sample_type"] = name_of(*header.sample_type);
  fields["test_fingerprint"] = header.test_fingerprint;
  fields["val_fingerprint"] = header.val_fingerprint;
  const std::string said = processes.share("header of the checkpoint", json_text(fields));
  read_said(0, "header of the checkpoint", [&] { read_header(said, header); });
}

void say_notes(const DataSets& sets) {
  for (const std::string& note : sets.notes) say("note: " + note);
}

Job load_job(TrainSpec spec, ProcessGroup* processes, UsedFiles used) {
  if (processes) processes->introduce(devices_of_process(spec.devices, processes->world()));
  Plan plan = make_plan(spec);
  check_outputs(spec, plan.classes);
  DataSets sets = open_dataset(spec.data.dataset, data_requirements(spec, plan));
  if (!processes || processes->is_first()) say_notes(sets);
  return job_of(std::move(spec), std::move(plan), std::move(sets), processes, used);
}

/// Throws if no job can be made of these parts. Call this before data.normalize is measured,
/// because that reads every image.
void check_before_measuring(TrainSpec spec, const Plan& plan, const DataSets& sets) {
  skip_normalization(spec);
  adopt_targets(spec, *sets.train);
  make_job(std::move(spec), plan, sets, {}, nullptr);
}

Job job_of(TrainSpec spec, Plan plan, DataSets sets, ProcessGroup* processes, UsedFiles used) {
  check_can_skip(spec.data, *sets.train);
  if (used == UsedFiles::none) {
    skip_normalization(spec);
  } else {
    if (spec.data.normalize.is_pending() && !processes) check_before_measuring(spec, plan, sets);
    measure_normalization(spec, sets, processes);
  }
  sets = with_caches(std::move(sets), spec.data, used, MissingCache::make);
  adopt_targets(spec, *sets.train);
  // Store the layers instead of model.zoo, because the zoo of another release may differ.
  TrainSpec kept = spec;
  kept.model.zoo = {};
  std::string resolved = show_spec(catalog(), kept);
  return make_job(std::move(spec), std::move(plan), sets, std::move(resolved), processes);
}

void check_replaceable(const std::string& option, const std::string& path, const char* what,
                       std::initializer_list<std::string_view> beginnings) {
  std::error_code error;
  if (path.empty() || !std::filesystem::is_regular_file(path, error)) return;
  std::size_t longest = 0;
  for (const std::string_view beginning : beginnings) longest = std::max(longest, beginning.size());
  std::string start(longest, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  const bool is_earlier =
      std::any_of(beginnings.begin(), beginnings.end(),
                  [&](std::string_view beginning) { return start.starts_with(beginning); });
  if (start.empty() || is_earlier) return;
  fail(ErrorKind::usage, "{} {}: the file exists but is not an earlier {}: name another file",
       option, path, what);
}

void write_results(const std::string& path, std::span<const std::byte> bytes) {
  std::error_code error;
  const std::filesystem::file_type type = std::filesystem::status(path, error).type();
  if (type == std::filesystem::file_type::regular ||
      type == std::filesystem::file_type::not_found) {
    std::filesystem::path target = path;
    for (int links = 0; links < 40 && std::filesystem::is_symlink(target, error); ++links) {
      target = target.parent_path() / std::filesystem::read_symlink(target, error);
    }
    AtomicFile file(target.string());
    file.write(bytes);
    return file.commit();
  }
  const FileHandle file = open_file(path, O_WRONLY | O_NOCTTY);
  const int failure = file.is_open() ? write_all(file.fd(), bytes) : errno;
  if (failure != 0) fail(ErrorKind::data, "{}: cannot write: {}", path, std::strerror(failure));
}

namespace {

/// Returns the number of seconds in "1:30" (minutes:seconds) or "3:50:00" (with hours); nothing for
/// other text.
std::optional<std::int64_t> seconds_of_clock(const std::string& text) {
  std::vector<std::int64_t> parts;
  for (const char *at = text.data(), *end = at + text.size();;) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    const bool is_part = parsed.ec == std::errc() && *at != '-' && number <= 1'000'000;
    // All numbers except the first have two digits, below 60.
    if (!is_part || (!parts.empty() && (parsed.ptr - at != 2 || number > 59))) return std::nullopt;
    parts.push_back(number);
    if (parsed.ptr == end) break;
    if (*parsed.ptr != ':' || parts.size() == 3) return std::nullopt;
    at = parsed.ptr + 1;
  }
  if (parts.size() < 2) return std::nullopt;
  std::int64_t seconds = 0;
  for (const std::int64_t part : parts) seconds = 60 * seconds + part;
  return seconds;
}

}  // namespace

std::int64_t parse_duration(const std::string& text) {
  // Units come in descending order, each at most once. A number without a unit is in seconds.
  struct Unit {
    char letter;
    std::int64_t seconds;
  };
  constexpr std::array<Unit, 4> kUnits{{{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}}};
  const auto bad = [&] {
    fail(ErrorKind::usage,
         "'{}' is not a duration: expected whole numbers with units such as 3h50m, 90s or 2d, "
         "minutes:seconds (1:30), hours:minutes:seconds (3:50:00), or a number of seconds",
         text);
  };
  // Limit the length: deadlines must not overflow, and a longer duration is a mistake.
  constexpr std::int64_t kYear = 365 * 86400;
  const auto check_length = [&](std::int64_t count, std::int64_t seconds) {
    if (count > kYear / seconds) {
      fail(ErrorKind::usage, "'{}' is longer than a year: expected at most 365d", text);
    }
  };
  if (text.empty()) bad();
  if (const auto clock = seconds_of_clock(text)) {
    check_length(*clock, 1);
    return *clock;
  }
  std::int64_t total = 0;
  std::size_t unit = 0;
  for (const char *at = text.data(), *end = at + text.size(); at != end;) {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec == std::errc::result_out_of_range && *at != '-') check_length(kYear + 1, 1);
    if (parsed.ec != std::errc() || number < 0) bad();
    if (parsed.ptr == end && at != text.data()) {
      fail(ErrorKind::usage,
           "'{}' ends with a number without a unit: expected d, h, m or s after it", text);
    }
    const char letter = parsed.ptr == end ? 's' : *parsed.ptr;
    while (unit < kUnits.size() && kUnits[unit].letter != letter) ++unit;
    if (unit == kUnits.size()) bad();
    check_length(number, kUnits[unit].seconds);
    total += number * kUnits[unit++].seconds;
    check_length(total, 1);
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  return total;
}

std::int64_t duration_of(const std::string& option, const std::string& text) {
  try {
    return parse_duration(text);
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", option, error.what());
  }
}

}  // namespace dpt
