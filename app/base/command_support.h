// Helpers of several commands: making a Job from a config, writing results, and parsing durations.
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

/// Returns "dpt 0.1.0 (oneDNN 2.6.3, ...)".
std::string version_text();

/// Note in `dpt devices` and the log for CPUs on which bf16 is slower than fp32.
inline constexpr const char* kSlowBf16 =
    "train.precision: bf16 is slower than fp32 on this CPU: dpt's own bf16 kernels are fast only "
    "on AMD processors with AVX512-BF16, and oneDNN's are slower than dpt's fp32 kernels";

/// Appends an override with the value of `--devices`, unless that is empty.
std::vector<std::string> with_devices(std::vector<std::string> overrides,
                                      const std::string& devices);

/// Reads some samples of every class of `source` to check its files (a null `source` has none).
/// Returns a line for each unreadable sample, up to a limit.
std::vector<std::string> problems_of_samples(const DataSource* source);

/// Checks some samples of each source (problems_of_samples). Throws ErrorKind::data with the
/// problems, or prints them as warnings if a run with `policy` leaves such samples out.
void try_samples(std::initializer_list<const DataSource*> sources, OnBadSample policy);

/// Describes how the data differs from that of a run. Returns an empty string if it does not
/// differ. `expected` is the fingerprint of the run's data, or empty if unknown. `name`: "training"
/// or "test".
std::string difference_of_data(const char* name, const std::string& expected,
                               const DataSource& source);

/// Describes how the validation samples differ from those of a run. Returns an empty string if they
/// do not differ. `expected` is the fingerprint of the run's samples, or empty if unknown.
std::string difference_of_validation(const std::string& expected, const Splits& splits);

/// Throws ErrorKind::usage for a model with one output if the kind of data set allows only class
/// labels. Opens no data.
void check_outputs(const TrainSpec& spec, std::int64_t outputs);

/// Files whose samples will be read, and for which caches (data.cache) are made. `default_split`:
/// the test files, or the training files if there are no test files.
enum class UsedFiles : std::uint8_t { all, train, val, test, default_split, none };

/// Opens the data and makes the Job. Starts no device. Collective over `processes`, if not null.
/// The processes connect to each other before the data is opened.
Job load_job(TrainSpec spec, ProcessGroup* processes = nullptr, UsedFiles used = UsedFiles::all);

/// Makes the Job from a spec, its plan and its open data. This is the second half of load_job.
Job job_of(TrainSpec spec, Plan plan, DataSets sets, ProcessGroup* processes = nullptr,
           UsedFiles used = UsedFiles::all);

/// Treatment of a missing cache: make it, or report that it is missing and read the files instead.
enum class MissingCache : std::uint8_t { make, leave };

/// Returns `sets`, with images read from data.cache if the config sets it. Throws ErrorKind::usage
/// for data without images, and whatever with_packed_cache throws.
DataSets with_caches(DataSets sets, const DataSpec& spec, UsedFiles used, MissingCache missing);

/// Sends the config, classes, targets, features, sample type and fingerprints in rank 0's `header`
/// to all processes, because only rank 0 reads the checkpoint. Collective.
void share_header(ProcessGroup& processes, CheckpointHeader& header);

/// Prints the notes of the data sets, such as classes without samples.
void say_notes(const DataSets& sets);

/// Throws ErrorKind::usage if `path` is a file that begins with none of `beginnings`: it is not an
/// earlier `what` and must not be overwritten. Accepts empty and missing files, devices and pipes.
void check_replaceable(const std::string& option, const std::string& path, const char* what,
                       std::initializer_list<std::string_view> beginnings);

/// Writes results to `path`. Writes directly into a device or pipe. Replaces a file, or the target
/// of a link, atomically.
void write_results(const std::string& path, std::span<const std::byte> bytes);

/// Converts "3h50m", "90s" or "2d" to seconds. Throws ErrorKind::usage with the expected form.
std::int64_t parse_duration(const std::string& text);
/// Parses the value of an option as a duration. Errors name the option.
std::int64_t duration_of(const std::string& option, const std::string& text);

}  // namespace dpt
