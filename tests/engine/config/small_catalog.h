// A small Catalog with one table of every sort, so that the reader is tested without the layers,
// optimizers and data sets of the program.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace dpt::testing {

struct SmallConv {
  std::int64_t out_channels = 0;
  Size2 kernel_size;
  Size2 stride{1, 1};
  bool bias = true;
  std::vector<std::int64_t> dilations;
};
struct SmallSgd {
  double lr = 0;
  double momentum = 0;
  bool nesterov = false;
};
struct SmallImages {
  std::string root = "images";
  std::vector<std::string> classes;
};

const Catalog& small_catalog();
/// Returns every value of a spec, as show_spec writes it.
std::string shown(const TrainSpec& spec);

/// A config that reads without issues.
extern const std::string kGoodConfig;

/// Returns kGoodConfig with the first `from` replaced by `to`.
std::string changed(const std::string& from, const std::string& to);

/// Returns "line:column: text" of each issue, with "file:" in front for files other than test.yaml.
std::vector<std::string> issues_of(const std::string& text,
                                   const std::vector<std::string>& overrides = {});

TrainSpec good_spec(const std::string& text, const std::vector<std::string>& overrides = {});

}  // namespace dpt::testing

namespace doctest {
template <>
struct StringMaker<std::vector<std::string>> {
  static String convert(const std::vector<std::string>& texts) {
    return fmt::format("\n  {}", fmt::join(texts, "\n  ")).c_str();
  }
};
}  // namespace doctest
