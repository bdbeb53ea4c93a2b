// The contract of a kind of data set, and how a config's data set is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/train_spec.h"
#include "engine/data/data_sets.h"

namespace dpt {

/// Properties of a data set's samples that follow from its options, before any file is opened.
struct DeclaredSamples {
  bool images = false;                ///< files of various sizes, which are decoded when read
  std::optional<TargetKind> targets;  ///< unset = known only from the files
  bool weighted = false;              ///< samples have weights
  std::optional<DType> type;          ///< unset = known only from the files
  /// True if the data set has its own validation set; unset = known only from the files.
  std::optional<bool> validation = false;
  /// Character between the labels of a sample in one column; 0 if a column has one label.
  char label_separator = 0;
};

class UnreadableSamples;

/// Description of a model's outputs.
struct ModelOutputs {
  std::vector<std::string> names;  ///< names of the classes, or of the outputs
  TargetShape targets;             ///< shape of the targets on which they were trained
};

struct DatasetKind {
  const ObjectTable* table;
  DataSets (*open)(const Variant& options, const DataRequirements& requirements);
  /// Opens the samples of one part for prediction. Returns null if there is no such part. Labels,
  /// targets, weights and the other parts are not read and need not exist: no caller asks the
  /// source for them. Problems of single samples may be added to `unreadable`.
  std::shared_ptr<const DataSource> (*open_unlabelled)(const Variant& options, DataPart part,
                                                       const DataRequirements& requirements,
                                                       UnreadableSamples& unreadable);
  /// True if a data set can be opened without those of its files that are refused.
  bool lists_only = false;
  std::optional<DataFacts> facts = {};  ///< set if they are the same for all data of the kind
  bool any_targets = false;             ///< may have targets other than class labels
  bool any_type = false;                ///< true if samples may be f32; known after opening
  /// Returns the declared properties. Null: 8-bit pixels, all of one size, with class labels.
  DeclaredSamples (*declares)(const Variant& options) = nullptr;
  /// Returns the number of outputs that the training samples need, one per class or target; unset
  /// if the model decides. Reads only the labels. Null: the number in `facts`, if set.
  std::optional<std::int64_t> (*outputs)(const Variant& options) = nullptr;
};

/// Returns the registry of all kinds (datasets/registry.cpp). Its tag is "dataset".
const Registry<DatasetKind>& dataset_kinds();
/// Returns the kind of a config's data set. Throws ErrorKind::usage if the config has none.
const DatasetKind& dataset_kind(const Variant& options);
/// Returns DatasetKind::facts of the kind with this name.
std::optional<DataFacts> data_facts(const std::string& dataset);
/// Returns true if a data set has its own validation set; unset if only its files tell.
std::optional<bool> declares_validation(const Variant& options);
/// Returns DatasetKind::outputs of a data set. Throws an Error if its files cannot be read.
std::optional<std::int64_t> data_outputs(const Variant& options);
/// Opens the data set of a config. Throws ErrorKind::data if its parts have different classes, or
/// classes other than requirements.known_classes.
DataSets open_dataset(const Variant& options, const DataRequirements& requirements);
/// Opens one part of a config's data set for prediction. Returns null if there is no such part.
/// Each sample has the label 0 and targets of 0 for a model with `outputs`, whether or not the data
/// has labels. A sample that cannot be read is added to `unreadable`, and its values are 0. Throws
/// ErrorKind::data for samples that do not meet `requirements`.
std::shared_ptr<const DataSource> open_unlabelled(const Variant& options, DataPart part,
                                                  const DataRequirements& requirements,
                                                  const ModelOutputs& outputs,
                                                  std::shared_ptr<UnreadableSamples> unreadable);

}  // namespace dpt
