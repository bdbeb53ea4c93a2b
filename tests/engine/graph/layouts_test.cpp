#include <doctest/doctest.h>

#include <numeric>

#include "engine/graph/layouts.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "engine/layers/param_spec.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

Param param(ParamLayout layout, std::vector<std::int64_t> file_shape, SampleShape hwc = {}) {
  Param made;
  made.count =
      std::accumulate(file_shape.begin(), file_shape.end(), std::int64_t{1}, std::multiplies<>());
  made.spec.file_shape = std::move(file_shape);
  made.spec.layout = layout;
  made.spec.hwc = hwc;
  return made;
}

std::vector<float> counting(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

void check_round_trip(const Param& p) {
  const std::vector<float> file = counting(p.count);
  std::vector<float> buffer(file.size(), -1), back(file.size(), -1);
  from_file_layout(p, file.data(), buffer.data());
  to_file_layout(p, buffer.data(), back.data());
  CHECK(back == file);
}

TEST_CASE("OIHW <-> OHWI") {
  const Param p = param(ParamLayout::ohwi, {2, 3, 4, 5});
  const std::vector<float> file = counting(p.count);
  std::vector<float> buffer(file.size());
  from_file_layout(p, file.data(), buffer.data());
  for (std::size_t o = 0; o < 2; ++o) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t h = 0; h < 4; ++h) {
        for (std::size_t w = 0; w < 5; ++w) {
          CHECK(buffer[((o * 4 + h) * 5 + w) * 3 + i] == file[((o * 3 + i) * 4 + h) * 5 + w]);
        }
      }
    }
  }
  check_round_trip(p);
  check_round_trip(param(ParamLayout::ohwi, {7, 1, 3, 3}));
  check_round_trip(param(ParamLayout::ohwi, {1, 5, 1, 1}));
}

TEST_CASE("a Linear after an image: (C,H,W) columns <-> (H,W,C) columns") {
  const Param p = param(ParamLayout::linear_hwc, {2, 12}, {2, 2, 3});
  const std::vector<float> file = counting(p.count);
  std::vector<float> buffer(file.size());
  from_file_layout(p, file.data(), buffer.data());
  CHECK(std::vector<float>(buffer.begin(), buffer.begin() + 12) ==
        std::vector<float>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(buffer[12] == 12);
  check_round_trip(p);
}

TEST_CASE("plain parameters stay") {
  const Param p = param(ParamLayout::plain, {3, 5});
  const std::vector<float> file = counting(p.count);
  std::vector<float> buffer(file.size());
  from_file_layout(p, file.data(), buffer.data());
  CHECK(buffer == file);
}

TEST_CASE("LeNet's parameters come back") {
  const Plan plan = make_plan(lenet_spec());
  for (const Param& each : plan.params) check_round_trip(each);
}

}  // namespace
}  // namespace dpt::testing
