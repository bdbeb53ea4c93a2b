// The contract of a data set: numbered samples of one shape, read by index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/train_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/types.h"
#include "kernels/image/image.h"

namespace dpt {

/// All samples in memory, one after another: what lets a device hold the data set itself.
struct ResidentSamples {
  std::span<const std::byte> pixels;     ///< size() samples of shape().elements() of type()
  std::span<const std::int32_t> labels;  ///< size()
  std::span<const float> targets{};      ///< size() rows of targets().floats()
};

/// A sample as an epoch sees it.
struct Occurrence {
  std::int64_t epoch = 0;
  std::int64_t index = 0;
  /// Key of the sample's random draws: its index, or a fresh key for each repetition in an epoch.
  std::int64_t key = 0;
};

/// Samples numbered 0 .. size()-1. Const and thread-safe. Throws ErrorKind::data naming the file
/// with offset or index for anything wrong with the data.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::int64_t size() const = 0;
  virtual SampleShape shape() const = 0;  ///< shape of every raw sample, (H,W,C)
  virtual DType type() const = 0;         ///< u8 (0..255) or f32
  /// Names of the classes, or of the outputs where there are none.
  virtual const std::vector<std::string>& classes() const = 0;
  /// Returns the shape of the samples' targets besides the label. Soft labels are at least 0 and
  /// add up to 1, and their label is the first of the largest; multi-hot targets are 0 to 1;
  /// without labels, the label is 0. Weights are finite, and at least 0.
  virtual TargetShape targets() const { return {}; }
  /// Names of the values of a sample, where they are columns of a table; else none.
  virtual const std::vector<std::string>& features() const;
  /// Writes the sample's row of targets().floats(); only called where that is above 0.
  virtual void read_targets(std::int64_t index, std::span<float> row) const;
  /// Writes one raw sample, shape().elements() of type(), and its label.
  virtual void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const = 0;
  /// The sample as an epoch sees it: augmented, where that is done on the host.
  virtual void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                             std::int32_t& label) const;
  /// Returns true if samples are images of various sizes, which read() resizes to shape().
  virtual bool resizes() const { return false; }
  /// The part of a sample that `choose` asks for, and its label: of the image as it is in its
  /// file where samples are such files, else of what `read` gives. REQUIRES: type() is u8.
  virtual Image read_part(std::int64_t index, const ChoosePart& choose, std::int32_t& label) const;
  /// The label alone.
  virtual std::int32_t label(std::int64_t index) const;
  /// The number of each sample's group (DataRequirements::group): size() of them, or none.
  virtual std::span<const std::int64_t> groups() const { return {}; }
  /// Set when everything is in memory; valid as long as the source.
  virtual std::optional<ResidentSamples> resident() const { return std::nullopt; }
  /// Returns the sample's name in messages: "train-images.gz, sample 17" or a file path.
  virtual std::string describe(std::int64_t index) const = 0;
  /// Examines the file of a sample again, for a check of the data.
  virtual FileFacts file_facts(std::int64_t /*index*/) const { return {}; }
  /// Some samples of every class, to be read as a check of the files; none if opening has read
  /// everything.
  virtual std::vector<std::int64_t> samples_to_try() const { return {}; }
  /// Changes when the data does (XXH3 of the bytes, or of the sorted file list with sizes).
  virtual std::string fingerprint() const = 0;
};

/// A cache of the samples is damaged, not a sample.
class DamagedCache : public Error {
 public:
  explicit DamagedCache(const std::string& text) : Error(ErrorKind::data, text) {}
};

/// Part of a data set that has its own files.
enum class DataPart : std::uint8_t { train, test, val };

/// Requirements of a model on its data: the size of samples and the labels that are allowed.
struct DataRequirements {
  SampleShape input;         ///< the model's input: image formats resize to it, others must match
  std::int64_t classes = 0;  ///< width of the last layer
  bool salvage = false;      ///< damaged JPEGs are taken as far as they go
  bool any_size = false;     ///< transforms on the host may change the size: channels alone count
  /// The column that training samples are grouped by; empty = none.
  std::string group = {};
  /// The classes of the checkpoint that the data is for; empty where the data decides.
  std::vector<std::string> known_classes = {};
  /// Features and type of the samples of the checkpoint's run, if known; for samples to predict.
  std::vector<std::string> features = {};
  std::optional<DType> type = {};
  bool applies_orientation = false;  ///< images are turned by the orientation in their file
  /// Files of the data set that cannot be samples are left out, with a note, not refused.
  bool leaves_out_files = false;
  /// The only part to open: the files of other parts need not exist. Unset: all parts. REQUIRES:
  /// known_classes, and for tables features.
  std::optional<DataPart> only = {};

  bool wants(DataPart part) const { return !only || *only == part; }
};

/// Description of a model's outputs.
struct ModelOutputs {
  std::vector<std::string> names;  ///< names of the classes, or of the outputs
  TargetShape targets;             ///< shape of the targets on which they were trained
};

/// The parts of a data set: what is trained on, the test set, and the validation set. Where there
/// is no validation set, data.val_split holds samples out of the training set. The classes are one
/// table.
struct DataSets {
  std::shared_ptr<const DataSource> train;  ///< null only if only another part is opened
  std::shared_ptr<const DataSource> test = {}, val = {};  ///< may be null
  std::vector<std::string> notes = {};                    ///< notes to report to the user once
};

/// Properties of a data set's samples that follow from its options, before any file is opened.
struct DeclaredSamples {
  bool pictures = false;              ///< files of various sizes, which are decoded when read
  std::optional<TargetKind> targets;  ///< unset = the files know
  bool weighted = false;              ///< samples have weights
  std::optional<DType> type;          ///< unset = the files know
  /// Has a validation set of its own; unset = the files know.
  std::optional<bool> validation = false;
  /// Separator of the labels of a sample in one column; 0 if a column has one label.
  char label_separator = 0;
};

class UnreadableSamples;

/// One kind of data set.
struct DatasetKind {
  const ObjectTable* table;
  DataSets (*open)(const Variant& options, const DataRequirements& requirements);
  /// The samples of one part, to be predicted; null where there is no such part. The other parts,
  /// and labels, targets and weights, are not looked at and need not be there: no caller asks the
  /// source for them. What is wrong with single samples may go to `unreadable`.
  std::shared_ptr<const DataSource> (*open_unlabelled)(const Variant& options, DataPart part,
                                                       const DataRequirements& requirements,
                                                       UnreadableSamples& unreadable);
  /// A data set that is refused because of some of its files may be opened without them.
  bool lists_only = false;
  std::optional<DataFacts> facts = {};  ///< set if all data of the kind have the same
  bool any_targets = false;             ///< may have others than class labels
  bool any_type = false;                ///< samples may be floats, which only opening them tells
  /// Null: samples of 8-bit pixels, all of one size, with class labels.
  DeclaredSamples (*declares)(const Variant& options) = nullptr;
  /// Returns the number of outputs for the training samples: their classes or targets. Reads only
  /// the labels. Unset if the model decides; null: `facts`, if any.
  std::optional<std::int64_t> (*outputs)(const Variant& options) = nullptr;
};

/// Returns all kinds (datasets/registry.cpp), with the tag "dataset".
const Registry<DatasetKind>& dataset_kinds();
/// The kind of the data set of a config. Throws ErrorKind::usage where there is none.
const DatasetKind& dataset_kind(const Variant& options);
/// Returns the facts of the kind with this name, if all its data have the same.
std::optional<DataFacts> data_facts(const std::string& dataset);
/// Returns whether a data set has a validation set of its own; unset if only its files tell.
std::optional<bool> declares_validation(const Variant& options);
/// Returns DatasetKind::outputs of a data set. Throws an Error if its files cannot be read.
std::optional<std::int64_t> data_outputs(const Variant& options);
/// Opens the data set of a config. Throws ErrorKind::data where its classes are not one table, or
/// not requirements.known_classes.
DataSets open_dataset(const Variant& options, const DataRequirements& requirements);
/// Opens one part of it to be predicted; null where it has no such part. Each sample has the label
/// 0 and targets of 0, as a model with `outputs` asks for, whether or not the data has any. One
/// that cannot be read is added to `unreadable`, and is 0 in all values. Throws ErrorKind::data
/// where the samples are not what `requirements` asks for.
std::shared_ptr<const DataSource> open_unlabelled(const Variant& options, DataPart part,
                                                  const DataRequirements& requirements,
                                                  const ModelOutputs& outputs,
                                                  std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
