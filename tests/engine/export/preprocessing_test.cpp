// Transforms become ONNX operations. The exporter does the arithmetic on known sizes, and the graph
// does the arithmetic on other sizes.
#include "engine/export/preprocessing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "tests/support/text.h"

using namespace dpt;
using namespace dpt::testing;
using Json = nlohmann::ordered_json;

namespace {

/// A writer that records operations and their inputs, in the order in which they are written.
struct Recorder final : OpWriter {
  std::string op(const std::string& type, std::vector<std::string> inputs,
                 std::vector<OpAttribute>) override {
    ops.push_back(type);
    read.push_back(std::move(inputs));
    return "op" + std::to_string(ops.size() - 1);
  }
  std::string param(const std::string&) override { return {}; }
  std::string floats(std::vector<std::int64_t>, std::vector<float> values) override {
    std::string text = "f";
    for (const float each : values) text += " " + std::to_string(static_cast<int>(each * 2));
    return text;
  }
  std::string doubles(std::vector<std::int64_t>, std::vector<double>) override { return "d"; }
  std::string either(const std::string&, const std::function<std::string()>& yes,
                     const std::function<std::string()>& no) override {
    ++choices;
    yes();
    return no();
  }
  std::string integers(std::vector<std::int64_t> values) override {
    std::string text = "i";
    for (const std::int64_t each : values) text += " " + std::to_string(each);
    return text;
  }
  std::int64_t count(const std::string& type) const {
    return std::count(ops.begin(), ops.end(), type);
  }
  /// Returns true if an operation of this type has `value` as its second input.
  bool reads(const std::string& type, const std::string& value) const {
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (ops[i] == type && read[i].at(1) == value) return true;
    }
    return false;
  }
  std::vector<std::string> last_inputs(const std::string& type) const {
    for (std::size_t i = ops.size(); i-- > 0;) {
      if (ops[i] == type) return read[i];
    }
    return {};
  }

  std::vector<std::string> ops;
  std::vector<std::vector<std::string>> read;
  int choices = 0;  ///< number of calls of `either`
};

Recorder written(const char* transforms) {
  Recorder recorder;
  write_preprocessing(recorder, "x", Json::parse(transforms));
  return recorder;
}

}  // namespace

TEST_CASE("preprocessing: a known size leaves no arithmetic in the graph") {
  const Recorder r = written(
      R"([{"type": "Resize", "size": [70, 90]}, {"type": "CenterCrop", "size": 64},
          {"type": "Normalize", "mean": [0.5], "std": [0.5]}])");
  for (const char* type : {"Mod", "Pad"}) CHECK(r.count(type) == 0);
  // The offsets are (70 - 64) / 2 and (90 - 64) / 2.
  CHECK(r.last_inputs("Slice")[1] == "i 3 13");
  CHECK(r.last_inputs("Slice")[2] == "i 67 77");
}

TEST_CASE("preprocessing: the order of the passes is Pillow's, chosen by the sizes") {
  const Recorder r = written(R"([{"type": "Resize", "size": [8, 9]}])");
  CHECK(r.choices == 1);
  CHECK(r.count("MatMul") == 4);  // two passes for each of the two orders
}

TEST_CASE("preprocessing: halves of a crop go to even numbers") {
  // Halves are rounded to even: 3 / 2 and 5 / 2 both become 2.
  const Recorder r =
      written(R"([{"type": "Resize", "size": [67, 69]}, {"type": "CenterCrop", "size": 64}])");
  CHECK(r.last_inputs("Slice")[1] == "i 2 2");
}

TEST_CASE("preprocessing: a shorter side keeps the ratio, in the graph") {
  const Recorder r = written(R"([{"type": "Resize", "size": [72], "interpolation": "nearest"}])");
  // Both sides are multiplied by 72, then divided by the shorter one.
  CHECK(r.count("Min") == 3);  // the shorter side; the last pixel of each axis
  CHECK(r.count("Div") == 4);
}

TEST_CASE("preprocessing: padding with a color for each channel") {
  const Recorder r = written(R"([{"type": "Pad", "padding": [1, 2, 3, 4], "fill": [5, 6, 7]},
                  {"type": "Resize", "size": [8, 8]}])");
  // [left, top, right, bottom] become the starts and the ends of (N, C, H, W).
  CHECK(r.last_inputs("Pad")[1] == "i 0 0 2 1 0 0 4 3");
  CHECK(r.reads("Sub", "f 10 12 14"));
}

TEST_CASE("preprocessing: transforms that ONNX lacks are refused by name") {
  for (const auto& [transforms, name] :
       {std::pair(R"([{"type": "ColorJitter"}])", "ColorJitter"),
        std::pair(R"([{"type": "Pad", "padding": [1], "padding_mode": "symmetric"}])",
                  "symmetric")}) {
    try {
      written(transforms);
      FAIL("expected an error");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      check_contains(error.what(), name);
    }
  }
}
