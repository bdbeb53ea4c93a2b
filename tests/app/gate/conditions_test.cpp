// Conditions of --require: their form, bounds, and outcomes.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "app/gate/conditions.h"
#include "kernels/base/error.h"
#include "tests/support/text.h"

using namespace dpt::testing;
using dpt::Condition;
using dpt::Error;
using dpt::ErrorKind;
using dpt::Json;
using dpt::parse_condition;

namespace {

std::string requirement_error(const std::string& requirement) {
  try {
    parse_condition(requirement);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a bound may be that of a baseline, plus, minus or times a number") {
  const auto bound = [](const std::string& text) {
    return parse_condition("test/accuracy>=" + text).bound_for(0.5);
  };
  CHECK(bound("0.75") == 0.75);
  CHECK(bound("baseline") == 0.5);
  CHECK(bound("baseline+0.25") == 0.75);
  CHECK(bound("baseline - 0.125") == 0.375);
  CHECK(bound("baseline*1.5") == 0.75);
  CHECK(bound("-0.5") == -0.5);
  CHECK_FALSE(parse_condition("test/loss<1").of_baseline);
  CHECK(parse_condition("test/loss<baseline").of_baseline);
  for (const char* bad : {"baseline/2", "baseline-", "baseline--1", "baseline0.5", "baselines",
                          "baseline+nan", "baseline*inf", "base", "baseline+1x", "0.5*baseline"}) {
    CAPTURE(bad);
    check_contains(requirement_error(std::string("test/loss<=") + bad),
                   "baseline, baseline+N, baseline-N or baseline*F");
  }
  // Each relation is tested at its bound; NaN on either side meets no condition.
  const auto met = [](const std::string& relation, double value, double baseline) {
    return parse_condition("val/loss" + relation + "baseline+1").is_met(value, baseline);
  };
  for (const char* relation : {">=", "<="}) CHECK(met(relation, 1.5, 0.5));
  for (const char* relation : {">", "<"}) CHECK_FALSE(met(relation, 1.5, 0.5));
  for (const char* relation : {">=", "<=", ">", "<"}) {
    CHECK_FALSE(met(relation, std::nan(""), 0.5));
    CHECK_FALSE(met(relation, 0.5, std::nan("")));
  }
}

TEST_CASE("--require: each relation below, at and above its bound") {
  const auto met = [](const std::string& text, double value) {
    return parse_condition("val/accuracy" + text).is_met(value);
  };
  const double bound = 0.7, below = std::nextafter(bound, 0.0), above = std::nextafter(bound, 1.0);
  CHECK_FALSE(met(">=0.7", below));
  CHECK(met(">=0.7", bound));
  CHECK(met(">=0.7", above));
  CHECK_FALSE(met(">0.7", below));
  CHECK_FALSE(met(">0.7", bound));
  CHECK(met(">0.7", above));
  CHECK(met("<=0.7", below));
  CHECK(met("<=0.7", bound));
  CHECK_FALSE(met("<=0.7", above));
  CHECK(met("<0.7", below));
  CHECK_FALSE(met("<0.7", bound));
  CHECK_FALSE(met("<0.7", above));
  // A value that was not measured meets no condition.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* text : {">=0.7", ">0.7", "<=0.7", "<0.7"}) CHECK_FALSE(met(text, nan));

  const Condition condition = parse_condition("test/loss <= 1.5e-1");
  CHECK(condition.split() == "test");
  CHECK(condition.metric == "loss");
  CHECK(condition.relation == "<=");
  CHECK(condition.bound == 0.15);
  for (const char* bad :
       {"", "val", "val/accuracy", "val/accuracy>=", "accuracy>=1", "valaccuracy>1", "val/>1",
        "val/loss=1", "val/loss<1x", "val/loss<one", "val/loss<=nan", "val/loss<inf"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_condition(bad), dpt::Error);
  }
}

TEST_CASE("--require of a result that is not measured names those that are") {
  dpt::MetricSet metrics;
  metrics.metrics.resize(3);
  metrics.metrics[0].name = "accuracy";
  metrics.metrics[1].name = "accuracy_top5";
  metrics.metrics[2].name = "r2";
  metrics.metrics[2].in_training = false;
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      dpt::check_metrics_of({parse_condition(text)}, metrics);
    } catch (const dpt::Error& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(error_of("val/accuracy_top5>=0.9") == "no error");
  CHECK(error_of("test/r2>0") == "no error");
  CHECK(error_of("val/acuracy>0.5") ==
        "--require val/acuracy>0.5: expected a metric of val: loss, accuracy, accuracy_top5, r2; "
        "found 'acuracy'; did you mean 'accuracy'?");
  CHECK(error_of("train/r2>0") ==
        "--require train/r2>0: expected a metric of train: loss, accuracy, accuracy_top5; found "
        "'r2'; add it to the config: metrics: [{type: r2}]");
  metrics.metrics[2].name = "macro_f1";
  CHECK(error_of("val/f1>0") ==
        "--require val/f1>0: expected a metric of val: loss, accuracy, accuracy_top5, macro_f1; "
        "found 'f1'; did you mean 'macro_f1'?");
}

TEST_CASE("--require reports all conditions that are not met, and why") {
  const Json summary = {{"val", {{"loss", 0.5}, {"accuracy", nullptr}}}, {"train", 3}};
  const auto verdict = [&](const std::vector<std::string>& texts) -> std::string {
    std::vector<Condition> conditions;
    for (const std::string& text : texts) conditions.push_back(parse_condition(text));
    judge(conditions, summary, {});
    const std::string problems = problems_of(conditions);
    return problems.empty() ? "met" : problems;
  };
  CHECK(verdict({}) == "met");
  CHECK(verdict({"val/loss<=0.5", "val/loss > 0.4"}) == "met");
  CHECK(verdict({"val/loss<=0.5", "val/loss<0.5"}) ==
        "--require val/loss<0.5: not met: the value is 0.5");
  CHECK(verdict({"test/loss<1"}) == "--require test/loss<1: this run has no test result");
  CHECK(verdict({"val/accuracy>0"}) ==
        "--require val/accuracy>0: not met: the value is not finite");
  CHECK(verdict({"train/loss>0"}) == "--require train/loss>0: this run has no train result");
  CHECK(verdict({"val/r2>0"}) == "--require val/r2>0: this run has no val/r2");
  CHECK(verdict({"val/loss<0.5", "val/loss>0", "test/loss<1"}) ==
        "--require val/loss<0.5: not met: the value is 0.5\n"
        "--require test/loss<1: this run has no test result");
  // A summary in memory holds non-finite values as numbers.
  for (const double value : {NAN, INFINITY, -INFINITY}) {
    const Json results = {{"val", {{"loss", value}}}};
    for (const char* relation : {"<", ">"}) {
      std::vector<Condition> conditions{parse_condition(std::string("val/loss") + relation + "0")};
      judge(conditions, results, {});
      check_contains(problems_of(conditions), "the value is not finite");
    }
  }
  // Six digits cannot distinguish these values.
  CHECK(verdict({"val/loss<0.49999999"}) ==
        "--require val/loss<0.49999999: not met: the value is 0.5");
}
