// Held-out samples: fractions and folds, by class and by group.
#include <algorithm>
#include <map>
#include <set>

#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "tests/engine/data/labelled.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;
using Folds = std::vector<std::vector<std::int64_t>>;

ValSplitSpec fraction(double part) {
  ValSplitSpec spec;
  spec.fraction = part;
  return spec;
}

ValSplitSpec fold(std::int64_t k, std::int64_t parts) {
  ValSplitSpec spec;
  spec.fold = {k, parts};
  return spec;
}

ValSplitSpec stratified(ValSplitSpec spec) {
  spec.stratify = true;
  return spec;
}

ValSplitSpec grouped(ValSplitSpec spec) {
  spec.group = "patient";
  return spec;
}

std::vector<std::int64_t> held_out(const std::shared_ptr<const DataSource>& source,
                                   const ValSplitSpec& spec, std::uint64_t seed = 1) {
  const Splits splits = make_splits({source, nullptr}, spec, seed);
  std::vector<std::int64_t> all = splits.train.indices;
  all.insert(all.end(), splits.val.indices.begin(), splits.val.indices.end());
  std::sort(all.begin(), all.end());
  REQUIRE(static_cast<std::int64_t>(all.size()) == source->size());
  for (std::size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == static_cast<std::int64_t>(i));
  CHECK(std::is_sorted(splits.val.indices.begin(), splits.val.indices.end()));
  CHECK(std::is_sorted(splits.train.indices.begin(), splits.train.indices.end()));
  return splits.val.indices;
}

std::map<std::int32_t, int> classes_of(const DataSource& source,
                                       const std::vector<std::int64_t>& indices) {
  std::map<std::int32_t, int> counts;
  for (const std::int64_t index : indices) ++counts[source.label(index)];
  return counts;
}

/// Returns 70 samples of class 0, 25 of class 1 and 8 of class 2, shuffled.
std::shared_ptr<const Labelled> mixed_classes() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 103; ++i) labels.push_back(i % 13 == 5 ? 2 : i % 4 == 0 ? 1 : 0);
  return std::make_shared<Labelled>(labels);
}

/// Returns 60 samples in 14 groups of unequal size, each with samples of some of 3 classes.
std::shared_ptr<const Labelled> some_groups() {
  std::vector<std::int32_t> labels;
  std::vector<std::int64_t> groups;
  for (std::int64_t i = 0; i < 60; ++i) {
    groups.push_back(std::min<std::int64_t>(i * i / 260, 13));
    labels.push_back(static_cast<std::int32_t>((i / 3) % 3));
  }
  return std::make_shared<Labelled>(labels, groups);
}

Folds folds_of(const std::shared_ptr<const DataSource>& source, std::int64_t parts,
               const std::function<ValSplitSpec(ValSplitSpec)>& with) {
  Folds folds;
  std::set<std::int64_t> all;
  std::size_t total = 0;
  for (std::int64_t k = 1; k <= parts; ++k) {
    folds.push_back(held_out(source, with(fold(k, parts))));
    all.insert(folds.back().begin(), folds.back().end());
    total += folds.back().size();
  }
  // Each sample occurs once.
  CHECK(static_cast<std::int64_t>(all.size()) == source->size());
  CHECK(total == all.size());
  return folds;
}

TEST_CASE("a fraction is as many samples as a count, and the same ones") {
  const auto source = mixed_classes();
  CHECK(held_out(source, fraction(0.1)) == held_out(source, {10}));
  CHECK(held_out(source, fraction(0.249)).size() == 26);
  CHECK(held_out(source, fraction(0.0001)).size() == 1);
  CHECK(held_out(source, {10}, 2) != held_out(source, {10}, 1));
}

TEST_CASE("folds hold each sample out once, and differ by one sample at most") {
  const auto source = mixed_classes();
  for (const std::int64_t parts : {2, 5, 103}) {
    CAPTURE(parts);
    for (std::size_t k = 0;
         const auto& each : folds_of(source, parts, [](ValSplitSpec spec) { return spec; })) {
      ++k;
      const auto size = static_cast<std::int64_t>(each.size());
      CHECK(size == held_out_count(fold(static_cast<std::int64_t>(k), parts), 103));
      CHECK(size >= 103 / parts);
      CHECK(size <= 103 / parts + 1);
    }
  }
}

TEST_CASE("stratify: each class by its share, in a split and in folds") {
  const auto source = mixed_classes();
  std::vector<std::int64_t> everything(103);
  for (std::size_t i = 0; i < everything.size(); ++i) everything[i] = static_cast<std::int64_t>(i);
  const auto totals = classes_of(*source, everything);
  for (const double part : {0.1, 0.33, 0.5, 0.9}) {
    CAPTURE(part);
    const auto chosen = held_out(source, stratified(fraction(part)));
    CHECK(static_cast<std::int64_t>(chosen.size()) == held_out_count(fraction(part), 103));
    for (const auto& [label, count] : classes_of(*source, chosen)) {
      CHECK(std::abs(count - totals.at(label) * static_cast<double>(chosen.size()) / 103) < 1);
    }
  }
  for (const auto& each : folds_of(source, 5, stratified)) {
    CHECK(each.size() >= 20);
    CHECK(each.size() <= 21);
    for (const auto& [label, count] : totals) {
      const int mine = classes_of(*source, each)[label];
      CHECK(mine >= count / 5);
      CHECK(mine <= count / 5 + 1);
    }
  }
  CHECK(held_out(source, stratified({10}), 2) != held_out(source, stratified({10}), 1));
}

TEST_CASE("group: no group is divided, and sizes are near to those asked for") {
  const auto source = some_groups();
  const auto is_whole = [&](const std::vector<std::int64_t>& chosen) {
    std::map<std::int64_t, std::int64_t> mine, all;
    for (const std::int64_t group : source->groups()) ++all[group];
    for (const std::int64_t index : chosen) {
      ++mine[source->groups()[index]];
    }
    return std::all_of(mine.begin(), mine.end(),
                       [&](const auto& each) { return all[each.first] == each.second; });
  };
  for (const bool by_class : {false, true}) {
    CAPTURE(by_class);
    const auto with = [&](ValSplitSpec spec) {
      return by_class ? stratified(grouped(std::move(spec))) : grouped(std::move(spec));
    };
    const auto fifth = held_out(source, with(fraction(0.2)));
    CHECK(is_whole(fifth));
    CHECK(fifth.size() >= 9);
    CHECK(fifth.size() <= 15);
    for (const auto& each : folds_of(source, 3, with)) {
      CHECK(is_whole(each));
      CHECK(each.size() >= 17);
      CHECK(each.size() <= 23);
    }
  }
  // A stratified fold gets a third of each class, as nearly as groups of up to 17 samples allow.
  for (const auto& each : folds_of(
           source, 3, [](ValSplitSpec spec) { return stratified(grouped(std::move(spec))); })) {
    for (std::int32_t label = 0; label < 3; ++label) {
      CHECK(std::abs(classes_of(*source, each)[label] - 20.0 / 3) < 3);
    }
  }
}

TEST_CASE("splits that the data does not allow are refused") {
  const auto source = some_groups();
  const auto refused = [](const std::shared_ptr<const DataSource>& from, const ValSplitSpec& spec) {
    return error_of([&] { make_splits({from, nullptr}, spec, 1); }, ErrorKind::usage);
  };
  CHECK(refused(source, grouped(fold(1, 15))) ==
        "data.val_split.group: column 'patient' has 14 distinct values, expected at least 15, one "
        "for each part");
  CHECK(refused(source, fold(1, 61)) ==
        "data.val_split.fold: cannot divide 60 training samples into 61 parts: choose at most as "
        "many parts as samples");
  const auto two = std::make_shared<Labelled>(std::vector<std::int32_t>{0, 1, 0, 1, 0},
                                              std::vector<std::int64_t>{0, 0, 0, 0, 1});
  CHECK(held_out(two, grouped({1})) == std::vector<std::int64_t>{4});
  const auto values = std::make_shared<Labelled>(std::vector<std::int32_t>{0, 0, 0},
                                                 std::vector<std::int64_t>{}, TargetKind::values);
  CHECK(refused(values, stratified({1})) ==
        "data.val_split.stratify needs class labels, and this data set has none: leave it out");
}

TEST_CASE("splits never change between versions") {
  // A resumed run must hold out the same samples as the first one.
  const auto source = some_groups();
  CHECK((held_out(source, fold(2, 12)) == std::vector<std::int64_t>{35, 40, 42, 56, 59}));
  CHECK((held_out(source, stratified({6})) == std::vector<std::int64_t>{0, 18, 22, 30, 43, 44}));
  CHECK((held_out(source, grouped({6})) == std::vector<std::int64_t>{23, 24, 25, 26, 27, 59}));
  CHECK((held_out(source, stratified(grouped({12}))) ==
         std::vector<std::int64_t>{17, 18, 19, 20, 21, 22, 37, 38, 39, 49, 50, 51, 52, 53}));
}

}  // namespace
}  // namespace dpt
