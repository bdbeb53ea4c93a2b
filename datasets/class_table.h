// The classes of a data set: one table for all of its splits, matched by name.
//
// Names that are not UTF-8 have U+FFFD in the place of such bytes, as checkpoints keep them.
//
// Its names are those of the checkpoint where one is evaluated, else those of data.classes, else
// those that the training samples have, sorted. Names are compared byte by byte. A class that is
// not in the table is an error, whichever split has it; a class without samples is a gap, which is
// stated (check_class_tables). So no label ever means another class than the model's output.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/data_sets.h"

namespace dpt {

/// Order of class names that come from the training samples.
enum class ClassOrder : std::uint8_t {
  bytes,         ///< torchvision's order of folders
  numbers_first  ///< numbers by value, then other names byte by byte
};

/// Gives the labels of a data set's samples: those of the training samples first, then after
/// close() those of the others.
class ClassTable {
 public:
  /// Says for a message where a label stands.
  using Where = std::function<std::string()>;

  /// `given`: data.classes, or empty. `training` names the training samples in messages. Throws
  /// ErrorKind::usage where a name is given twice, ErrorKind::data where there are as many as the
  /// model does not have outputs.
  ClassTable(std::vector<std::string> given, std::string training,
             const DataRequirements& requirements);

  /// The label of a class; throws ErrorKind::data where the table has no such class, naming the
  /// nearest. Before close() the label of a training sample may be provisional.
  std::int32_t label_of_name(std::string_view name, const Where& where);
  /// The same for samples whose classes are numbers from 0: places in data.classes, where that is
  /// given, or in the table.
  std::int32_t label_of_number(std::int64_t number, const Where& where);

  /// After the training samples: their `labels` become final. Nothing is added from here on.
  void close(ClassOrder order, std::span<std::int32_t> labels);

  /// REQUIRES: close() was called.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns true if the names come from the training samples instead of the config.
  bool is_from_samples() const { return !is_given_; }

 private:
  void choose_numbers(const Where& where);
  [[noreturn]] void refuse_name(std::string_view name, const Where& where) const;

  std::vector<std::string> given_, names_;
  std::string training_, owner_;  ///< `owner_`: whose names they are
  std::int64_t outputs_;          ///< outputs of the model, 0 if unknown
  bool is_of_checkpoint_, is_given_, is_closed_ = false, has_numbers_ = false;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
  std::map<std::string, std::string> replaced_;  ///< names that were not UTF-8, by what they became
  /// Positions of the classes of data.classes in the table, or -1.
  std::vector<std::int32_t> places_;
  std::int64_t largest_ = -1;
};

/// Returns the problem of a list of class names; empty if all differ.
std::string problem_of_classes(const std::vector<std::string>& classes);

/// Fails with ErrorKind::data unless training and test data have one table, and `known`, that of
/// the checkpoint, where it is not empty; says what differs. Adds a note to `sets` for classes with
/// names of which there are no samples.
void check_class_tables(DataSets& sets, const std::vector<std::string>& known);

/// Returns the first difference of two tables, in a few words; empty if they are equal.
std::string difference_of_classes(const std::vector<std::string>& expected,
                                  const std::vector<std::string>& found);

/// "cat, dog, ..." for messages.
std::string some_of(const std::vector<std::string>& names);

}  // namespace dpt
