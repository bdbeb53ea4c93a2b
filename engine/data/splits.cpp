// Choice of the training samples that are held out for validation. All draws come from Philox
// counters.
#include "engine/data/splits.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "engine/config/target_kinds.h"
#include "engine/data/data_sets.h"
#include "engine/data/sampling.h"
#include "kernels/base/error.h"
#include "kernels/base/xxhash.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

using Indices = std::vector<std::int64_t>;

/// Returns true if the fold holds out the sample at this position of a shuffled list.
bool is_in_fold(std::int64_t position, const ValSplitSpec& spec) {
  return position % (*spec.fold)[1] == (*spec.fold)[0] - 1;
}

Indices plain_choice(const ValSplitSpec& spec, std::int64_t n, std::uint64_t seed) {
  const Indices order = permutation(n, seed, philox::Use::split, 0);
  Indices chosen;
  const std::int64_t count = held_out_count(spec, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (spec.fold ? is_in_fold(i, spec) : i < count) {
      chosen.push_back(order[i]);
    }
  }
  return chosen;
}

/// Returns the samples of each class in shuffled order.
std::vector<Indices> shuffled_classes(const DataSource& source, std::uint64_t seed) {
  std::vector<Indices> classes(source.classes().size());
  for (std::int64_t i = 0; i < source.size(); ++i) {
    classes[source.label(i)].push_back(i);
  }
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const Indices order =
        permutation(static_cast<std::int64_t>(classes[c].size()), seed, philox::Use::split, 1 + c);
    Indices shuffled;
    for (const std::int64_t at : order) shuffled.push_back(classes[c][at]);
    classes[c] = std::move(shuffled);
  }
  return classes;
}

/// Divides `count` in proportion to the sizes of the classes. Quotas with the largest remainders
/// are rounded up; on a tie, that of the first class.
Indices quotas(const std::vector<Indices>& classes, std::int64_t count, std::int64_t n) {
  Indices quota(classes.size()), by_remainder(classes.size());
  std::vector<std::int64_t> remainder(classes.size());
  std::int64_t left = count;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const std::int64_t product = static_cast<std::int64_t>(classes[c].size()) * count;
    quota[c] = product / n;
    remainder[c] = product % n;
    left -= quota[c];
  }
  std::iota(by_remainder.begin(), by_remainder.end(), 0);
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::int64_t a, std::int64_t b) { return remainder[a] > remainder[b]; });
  for (std::int64_t i = 0; i < left; ++i) {
    ++quota[by_remainder[i]];
  }
  return quota;
}

Indices stratified_choice(const ValSplitSpec& spec, const DataSource& source, std::uint64_t seed) {
  const std::vector<Indices> classes = shuffled_classes(source, seed);
  Indices chosen;
  if (spec.fold) {
    // Deal samples to the parts in turn, class by class. The sizes of the parts then differ by at
    // most one, for each class and in total.
    std::int64_t position = 0;
    for (const Indices& members : classes) {
      for (const std::int64_t index : members) {
        if (is_in_fold(position++, spec)) chosen.push_back(index);
      }
    }
    return chosen;
  }
  const Indices quota = quotas(classes, held_out_count(spec, source.size()), source.size());
  for (std::size_t c = 0; c < classes.size(); ++c) {
    chosen.insert(chosen.end(), classes[c].begin(), classes[c].begin() + quota[c]);
  }
  return chosen;
}

/// Samples that must all go to the same part.
struct SampleGroup {
  Indices members;
  std::map<std::int32_t, double> counts;  ///< number of samples of each class
};

std::vector<SampleGroup> groups_of(const DataSource& source, bool by_class) {
  const std::span<const std::int64_t> numbers = source.groups();
  std::vector<SampleGroup> groups;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    const auto g = static_cast<std::size_t>(numbers[i]);
    if (g >= groups.size()) groups.resize(g + 1);
    groups[g].members.push_back(i);
    groups[g].counts[by_class ? source.label(i) : 0] += 1;
  }
  return groups;
}

/// Deals whole groups to parts, the largest first. Each group goes to the part that keeps the
/// parts' shares of every class closest to `shares`, by the sum of squares (like scikit-learn's
/// StratifiedGroupKFold). `shares` add up to 1. Returns the part of each group.
std::vector<std::size_t> deal_groups(const std::vector<SampleGroup>& groups,
                                     const std::vector<double>& shares, std::uint64_t seed) {
  std::vector<std::int64_t> order =
      permutation(static_cast<std::int64_t>(groups.size()), seed, philox::Use::split, 0);
  const auto group = [&](std::int64_t at) -> const SampleGroup& { return groups[at]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return group(a).members.size() > group(b).members.size();
  });
  std::map<std::int32_t, double> totals;
  for (const SampleGroup& each : groups) {
    for (const auto& [label, count] : each.counts) totals[label] += count;
  }
  std::vector<std::map<std::int32_t, double>> dealt(shares.size());
  std::vector<std::size_t> part_of(groups.size());
  for (const std::int64_t at : order) {
    std::size_t best = 0;
    double least = INFINITY;
    for (std::size_t part = 0; part < shares.size(); ++part) {
      double cost = 0;
      for (const auto& [label, count] : group(at).counts) {
        cost += count * (2 * dealt[part][label] + count) / (shares[part] * totals[label]);
      }
      if (cost < least) {
        least = cost;
        best = part;
      }
    }
    part_of[at] = best;
    for (const auto& [label, count] : group(at).counts) dealt[best][label] += count;
  }
  return part_of;
}

Indices grouped_choice(const ValSplitSpec& spec, const DataSource& source, std::uint64_t seed) {
  const std::vector<SampleGroup> groups = groups_of(source, spec.stratify);
  const auto parts = static_cast<std::size_t>(spec.fold ? (*spec.fold)[1] : 2);
  if (groups.size() < parts) {
    fail(ErrorKind::usage,
         "data.val_split.group: column '{}' has {} distinct value{}, expected at least {}, one "
         "for each part",
         spec.group, groups.size(), groups.size() == 1 ? "" : "s", parts);
  }
  std::vector<double> shares(parts, 1.0 / static_cast<double>(parts));
  std::size_t wanted = 0;
  if (spec.fold) {
    wanted = static_cast<std::size_t>((*spec.fold)[0] - 1);
  } else {
    shares[0] = static_cast<double>(held_out_count(spec, source.size())) /
                static_cast<double>(source.size());
    shares[1] = 1 - shares[0];
  }
  const std::vector<std::size_t> part_of = deal_groups(groups, shares, seed);
  Indices chosen;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (part_of[g] != wanted) continue;
    chosen.insert(chosen.end(), groups[g].members.begin(), groups[g].members.end());
  }
  return chosen;
}

void check_val_split(const ValSplitSpec& spec, const DataSource& source) {
  const std::int64_t n = source.size();
  const std::int64_t count = held_out_count(spec, n);
  if (count < 0 || count >= n) {
    fail(ErrorKind::usage,
         "data.val_split: {} of the {} training samples would be held out, which leaves nothing to "
         "train on: choose a number from 0 to {}",
         count, n, n - 1);
  }
  if (spec.fold && (*spec.fold)[1] > n) {
    fail(ErrorKind::usage,
         "data.val_split.fold: cannot divide {} training samples into {} parts: choose at most as "
         "many parts as samples",
         n, (*spec.fold)[1]);
  }
  if (spec.stratify && source.targets().kind != TargetKind::class_index) {
    fail(ErrorKind::usage,
         "data.val_split.stratify needs class labels, and this data set has none: leave it out");
  }
}

[[noreturn]] void refuse_two_validation_sets(const ValSplitSpec& spec, const DataSource& val) {
  fail(ErrorKind::usage,
       "data.val_split: {}: the data set has its own validation set (the first of its {} samples: "
       "{}), so no samples can be held out. Remove val_split, or leave the validation set out of "
       "the config; for an image folder, data.test=val makes it the test set",
       text_of(spec), val.size(), val.describe(0));
}

}  // namespace

std::vector<std::int64_t> class_counts(const Split& split, std::int64_t classes) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(classes), 0);
  for (const std::int64_t index : split.indices) {
    ++counts[split.source->label(index)];
  }
  return counts;
}

std::int64_t held_out_count(const ValSplitSpec& spec, std::int64_t n) {
  if (spec.fold) return (n - (*spec.fold)[0]) / (*spec.fold)[1] + 1;
  if (spec.fraction > 0) {
    return std::max<std::int64_t>(std::llround(spec.fraction * static_cast<double>(n)), 1);
  }
  return spec.count;
}

std::string text_of(const ValSplitSpec& spec) {
  std::vector<std::string> parts;
  if (spec.fold) parts.push_back(fmt::format("fold: [{}]", fmt::join(*spec.fold, ", ")));
  if (spec.fraction > 0) parts.push_back(fmt::format("fraction: {}", spec.fraction));
  if (spec.stratify) parts.emplace_back("stratify: true");
  if (!spec.group.empty()) parts.push_back("group: " + spec.group);
  if (parts.empty()) return std::to_string(spec.count);
  if (spec.count > 0) parts.insert(parts.begin(), fmt::format("count: {}", spec.count));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

Splits make_splits(const DataSets& sets, const ValSplitSpec& spec, std::uint64_t seed) {
  const auto all = [](const std::shared_ptr<const DataSource>& source) {
    Split split{source, {}};
    if (source) split.indices = epoch_order(source->size(), 0, 0, false);
    return split;
  };
  const DataSource& source = *sets.train;
  check_val_split(spec, source);
  Splits splits;
  splits.test = all(sets.test);
  splits.train = all(sets.train);
  splits.has_own_val = sets.val != nullptr;
  if (splits.has_own_val) {
    if (spec.holds_out()) refuse_two_validation_sets(spec, *sets.val);
    splits.val = all(sets.val);
    return splits;
  }
  splits.val.source = sets.train;
  if (!spec.holds_out()) return splits;
  Indices& chosen = splits.val.indices;
  chosen = !spec.group.empty() ? grouped_choice(spec, source, seed)
           : spec.stratify     ? stratified_choice(spec, source, seed)
                               : plain_choice(spec, source.size(), seed);
  std::sort(chosen.begin(), chosen.end());
  if (chosen.empty() || chosen.size() == splits.train.indices.size()) {
    fail(ErrorKind::usage,
         "data.val_split: {}: the groups of column '{}' leave nothing to {}: change the count, "
         "fraction or fold, or split up large groups",
         text_of(spec), spec.group, chosen.empty() ? "hold out" : "train on");
  }
  Indices rest;
  std::set_difference(splits.train.indices.begin(), splits.train.indices.end(), chosen.begin(),
                      chosen.end(), std::back_inserter(rest));
  splits.train.indices = std::move(rest);
  return splits;
}

std::string validation_fingerprint(const Splits& splits) {
  const Split& split = splits.val;
  if (split.indices.empty()) return {};
  if (splits.has_own_val) return split.source->fingerprint();
  return fmt::format("xxh3:{:016x}", XXH3_64bits(split.indices.data(),
                                                 split.indices.size() * sizeof(std::int64_t)));
}

}  // namespace dpt
