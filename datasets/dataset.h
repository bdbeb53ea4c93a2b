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
  std::optional<TargetKind> targets;  ///< unset = the files know
  bool weighted = false;              ///< samples have weights
  std::optional<DType> type;          ///< unset = the files know
  /// Has a validation set of its own; unset = the files know.
  std::optional<bool> validation = false;
  /// Separator of the labels of a sample in one column; 0 if a column has one label.
  char label_separator = 0;
};

class UnreadableSamples;

/// Description of a model's outputs.
struct ModelOutputs {
  std::vector<std::string> names;  ///< names of the classes, or of the outputs
  TargetShape targets;             ///< shape of the targets on which they were trained
};

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
