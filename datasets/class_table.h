// The classes of a data set: one table for all of its splits, matched by name.
//
// The names in the table are those of the evaluated checkpoint, if there is one; otherwise those of
// data.classes; otherwise those of the training samples, sorted. Names are compared byte by byte. A
// class that is not in the table is an error in every split. A class without samples is reported
// (check_class_tables) and keeps its label. So a label always means the model's output for its
// class.
//
// In names that are not UTF-8, U+FFFD replaces invalid bytes, as in checkpoints.
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

/// Assigns the labels of a data set's samples: first of the training samples and, after close(), of
/// the others.
class ClassTable {
 public:
  /// Function that returns the place of a label, for messages.
  using Where = std::function<std::string()>;

  /// `given`: data.classes, or empty. `training` names the training samples in messages. Throws
  /// ErrorKind::usage for a name that is given twice, and ErrorKind::data if the number of names is
  /// not the model's number of outputs.
  ClassTable(std::vector<std::string> given, std::string training,
             const DataRequirements& requirements);

  /// Returns the label of a class. Throws ErrorKind::data, with the most similar name, for a class
  /// that is not in the table. Before close(), the label of a training sample may be provisional.
  std::int32_t label_of_name(std::string_view name, const Where& where);
  /// Does the same for samples whose classes are numbers from 0: positions in data.classes, if set,
  /// or in the table.
  std::int32_t label_of_number(std::int64_t number, const Where& where);

  /// Makes the `labels` of the training samples final. No class is added after this call.
  void close(ClassOrder order, std::span<std::int32_t> labels);

  /// REQUIRES: close() was called.
  const std::vector<std::string>& names() const { return names_; }
  /// Returns true if the names come from the training samples instead of the config.
  bool is_from_samples() const { return !is_given_; }

 private:
  void choose_numbers(const Where& where);
  [[noreturn]] void refuse_name(std::string_view name, const Where& where) const;

  std::vector<std::string> given_, names_;
  std::string training_, owner_;  ///< `owner_`: origin of the names
  std::int64_t outputs_;          ///< outputs of the model, 0 if unknown
  bool is_of_checkpoint_, is_given_, is_closed_ = false, has_numbers_ = false;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
  std::map<std::string, std::string> replaced_;  ///< UTF-8 name -> original name
  /// Position in the table of each class in data.classes; -1 for a class that is not in the table.
  std::vector<std::int32_t> places_;
  std::int64_t largest_ = -1;
};

/// Returns the problem of a list of class names; empty if all differ.
std::string problem_of_classes(const std::vector<std::string>& classes);

/// Throws ErrorKind::data, with the difference, unless all parts have the same table. If `known`,
/// the table of the checkpoint, is not empty, the parts must have that table. Adds a note to `sets`
/// about named classes without samples.
void check_class_tables(DataSets& sets, const std::vector<std::string>& known);

/// Returns a short description of the first difference of two tables; empty if they are equal.
std::string difference_of_classes(const std::vector<std::string>& expected,
                                  const std::vector<std::string>& found);

/// Returns "cat, dog, ..." for messages; a name that contains a comma is in quotes.
std::string some_of(const std::vector<std::string>& names);

}  // namespace dpt
