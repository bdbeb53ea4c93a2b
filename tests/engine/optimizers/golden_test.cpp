// Every optimizer follows PyTorch, or its paper if PyTorch lacks it, for 24 updates on every
// backend.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels/devices.h"
#include "tests/engine/optimizers/golden.h"
#include "tests/support/close.h"

namespace dpt::testing {
namespace {

constexpr double kSlack = 4.0;
constexpr std::int64_t kSteps = 24;

double largest_error(const std::vector<float>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  double error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double each = std::abs(static_cast<double>(got[i]) - want[i]);
    error = std::isnan(each) ? each : std::max(error, each);
  }
  return error;
}

TEST_CASE("optimizers follow PyTorch and their papers for 24 updates") {
  for (const GoldenCase& golden : golden_cases()) {
    CAPTURE(golden.name);
    const std::size_t count = golden.last.size();
    std::vector<float> on_first_backend;
    for (const std::string& device : backend_names()) {
      CAPTURE(device);
      const auto backend = make_backend(parse_device(device));
      // Only formulas with norms distinguish the two tensors of the golden run.
      const std::vector<UpdateRange> ranges = golden.spec.is_layerwise
                                                  ? std::vector<UpdateRange>{{0, 12, 0}, {12, 7, 0}}
                                                  : std::vector<UpdateRange>{{0, 19, 0}};
      Training training(*backend, golden.spec, ranges, golden_values(0, count));
      for (std::int64_t t = 1; t <= kSteps; ++t) {
        training.step(golden_values(static_cast<std::uint32_t>(t), count), t,
                      t < 13 ? golden.lr : golden.lr / 2, t == 3 ? 0.25F : 1.0F);
        if (t == 1) {
          CHECK(largest_error(training.params(), golden.first) <= kSlack * golden.error);
        }
      }
      CHECK(largest_error(training.params(), golden.last) <= kSlack * golden.error);
      if (on_first_backend.empty()) on_first_backend = training.params();
      if (golden.spec.is_layerwise) continue;  // backends add up norms in different orders
      CHECK(same_bits(training.params(), on_first_backend));
    }
  }
}

TEST_CASE("every optimizer has golden cases") {
  std::set<std::string> with;
  for (const GoldenCase& golden : golden_cases()) {
    with.insert(golden.name.substr(0, golden.name.find(' ')));
  }
  for (const ObjectTable* table : optimizer_kinds().table().alternatives) {
    CHECK_MESSAGE(with.count(table->name) == 1, table->name);
  }
}

}  // namespace
}  // namespace dpt::testing
