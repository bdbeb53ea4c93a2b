#include "datasets/requirements.h"

#include <filesystem>
#include <system_error>

#include "engine/config/paths.h"
#include "engine/data/data_sets.h"
#include "kernels/base/error.h"
#include "kernels/base/text.h"

namespace dpt {

std::string shape_text(SampleShape shape) {
  return fmt::format("{}x{} with {} channel{}", shape.h, shape.w, shape.c, shape.c == 1 ? "" : "s");
}

void check_shape(const std::string& name, SampleShape shape, const DataRequirements& requirements) {
  const SampleShape& input = requirements.input;
  if (shape == input || (requirements.any_size && shape.c == input.c)) return;
  if (!requirements.known_classes.empty()) {
    fail(ErrorKind::data,
         "{}: the samples are {}, but the checkpoint's model takes {}: use samples of that shape",
         name, shape_text(shape), shape_text(input));
  }
  fail(ErrorKind::data,
       "{}: the images are {}, but model.input is [{}, {}, {}] (channels, height, width): write "
       "model.input: [{}, {}, {}]",
       name, shape_text(shape), input.c, input.h, input.w, shape.c, shape.h, shape.w);
}

void check_classes(const std::string& name, std::size_t classes,
                   const DataRequirements& requirements) {
  if (requirements.classes == 0 || requirements.classes == static_cast<std::int64_t>(classes))
    return;
  if (classes == 1) {
    fail(ErrorKind::data, "{}: expected samples of at least two classes, found one class", name);
  }
  fail(ErrorKind::data,
       "{}: the data set has {} classes, but the model's last layer has {}: give it {}", name,
       classes, counted(requirements.classes, "output"), classes);
}

void check_label(std::int64_t label, std::size_t classes, const std::string& where) {
  if (0 <= label && label < static_cast<std::int64_t>(classes)) return;
  if (label < 0) {
    fail(ErrorKind::data, "{}: label {} is out of range: labels start at 0", where, label);
  }
  fail(ErrorKind::data, "{}: label {} is out of range: with {} classes, labels go from 0 to {}",
       where, label, classes, classes - 1);
}

std::string fetch_hint(const std::string& fetch) {
  return fetch.empty() ? std::string()
                       : fmt::format(" (`scripts/fetch-data {}` fetches them)", fetch);
}

void check_root(const std::string& dataset, const std::string& root, const std::string& expected,
                const std::string& fetch) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(root, error);
  if (std::filesystem::is_directory(status)) return;
  fail(ErrorKind::data,
       "{}: {}: {}; expected a folder with {}{}{}. If it is elsewhere, give data.root=FOLDER",
       dataset, root, std::filesystem::exists(status) ? "not a folder" : "no such folder", expected,
       fetch_hint(fetch), hint_of_default(root));
}

std::vector<std::string> numbered_classes(std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace dpt
