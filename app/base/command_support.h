// Helpers of several commands: making a Job from a config, writing results, and reading times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/data/data_sets.h"
#include "engine/data/split.h"
#include "engine/job/job.h"
#include "kernels/base/text.h"

namespace dpt {

/// "dpt 0.1.0 (oneDNN 2.6.3, ...)".
std::string version_text();

/// Remark of `dpt devices` and the log, until dpt has bf16 kernels of its own for CPUs.
inline constexpr const char* kBf16OnCpu =
    "train.precision: bf16 is slower than fp32 on a CPU: dpt has no bf16 CPU kernels of its own "
    "yet, and oneDNN's are slower than dpt's fp32 kernels";

/// The config with `--devices` as one more override.
std::vector<std::string> with_devices(std::vector<std::string> overrides,
                                      const std::string& devices);

/// Reads some samples of every class of `source` to check its files (a null `source` has none).
/// Returns a line for each unreadable sample, up to a limit.
std::vector<std::string> problems_of_samples(const DataSource* source);

/// Does the same for several sources. Throws ErrorKind::data with these lines, or prints them as
/// warnings if a run with `policy` leaves such samples out.
void try_samples(std::initializer_list<const DataSource*> sources, OnBadSample policy);

/// Returns the difference of the data from a run's (`expected`, empty if unknown), in a few words;
/// empty if there is none. `name`: "training" or "test".
std::string difference_of_data(const char* name, const std::string& expected,
                               const DataSource& source);

/// Describes how the validation samples differ from those of a run (`expected`, empty if unknown).
/// Returns an empty text if they do not differ.
std::string difference_of_validation(const std::string& expected, const Splits& splits);

/// Throws ErrorKind::usage for a model with one output where the data set is of a kind that has
/// class labels only. Needs no data.
void check_outputs(const TrainSpec& spec, std::int64_t outputs);

/// Files whose samples will be read: caches (data.cache) are made for these. `default_split`: the
/// test files, or the training files if there are none.
enum class UsedFiles : std::uint8_t { all, train, val, test, default_split, none };

/// Opens the data and builds everything up to, but without, the devices. Collective over
/// `processes`, if there are any, which are introduced to each other before the data is opened.
Job load_job(TrainSpec spec, ProcessGroup* processes = nullptr, UsedFiles used = UsedFiles::all);

/// The second half of it: the job of a spec, its plan and its data.
Job job_of(TrainSpec spec, Plan plan, DataSets sets, ProcessGroup* processes = nullptr,
           UsedFiles used = UsedFiles::all);

/// Treatment of a missing cache: make it, or read the files and report that.
enum class MissingCache : std::uint8_t { make, leave };

/// Returns `sets`, reading from data.cache if the config sets it. Throws ErrorKind::usage for data
/// without images, and whatever with_packed_cache throws.
DataSets with_caches(DataSets sets, const DataSpec& spec, UsedFiles used, MissingCache missing);

/// Sends config, classes, targets, kind of samples and fingerprints in `header` of rank 0, which
/// alone reads the checkpoint, to all processes. Collective.
void share_header(ProcessGroup& processes, CheckpointHeader& header);

/// Says what should be said of data once: which classes have no samples.
void say_notes(const DataSets& sets);

/// Throws ErrorKind::usage if `path` is a file that is not an earlier `what`, which begins with one
/// of `beginnings`; writing there would destroy it. Empty and missing files, devices and pipes
/// pass.
void check_replaceable(const std::string& option, const std::string& path, const char* what,
                       std::initializer_list<std::string_view> beginnings);

/// Writes results to what `path` is: a device or a pipe is written to; a file, also one that a link
/// leads to, is replaced as a whole.
void write_results(const std::string& path, std::span<const std::byte> bytes);

/// "3h50m", "90s", "2d" -> seconds. Throws ErrorKind::usage showing the form.
std::int64_t parse_duration(const std::string& text);
/// Reads the duration that an option has as its value; errors name the option.
std::int64_t duration_of(const std::string& option, const std::string& text);

}  // namespace dpt
