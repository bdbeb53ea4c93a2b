#include "engine/data/data_check.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/config/secrets.h"
#include "engine/data/file_checks.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "kernels/base/worker_threads.h"
#include "kernels/image/perceptual_hash.h"

namespace dpt {
namespace {

// ---- Single samples ----------------------------------------------------------------------------

void find_bad_samples(DataReport& report) {
  for (std::size_t s = 0; s < report.splits.size(); ++s) {
    const SurveyedSplit& split = report.splits[s];
    for (const auto& [position, why] : split.unreadable) {
      report.findings.push_back(
          {FindingKind::unreadable, fmt::format("{}: {}", split.name, why), {{s, position}}});
    }
  }
  for (const SampleRef& sample :
       samples_where(report, [](const SampleRecord& r) { return !r.is_finite; })) {
    report.findings.push_back({FindingKind::not_finite,
                               named(report, sample) + " has values that are NaN or infinite",
                               {sample}});
  }
  for (const SampleRef& sample :
       samples_where(report, [](const SampleRecord& r) { return r.is_constant && r.is_finite; })) {
    report.findings.push_back(
        {FindingKind::constant, named(report, sample) + " has one colour only", {sample}});
  }
}

// ---- Classes -----------------------------------------------------------------------------------

void count_classes(DataReport& report) {
  for (const SurveyedSplit& split : report.splits) {
    std::vector<std::int64_t> counts;
    if (has_labels(split.split.source->targets().kind)) {
      counts.resize(split.split.source->classes().size());
      for (const SampleRecord& record : split.records) {
        const auto label = static_cast<std::size_t>(record.label);
        if (record.is_read && label < counts.size()) ++counts[label];
      }
    }
    report.class_counts.push_back(std::move(counts));
  }
}

/// Finds classes without samples or with few: fewer than 10, or fewer than a tenth of the mean over
/// the classes.
void find_class_gaps(DataReport& report) {
  constexpr std::int64_t kFew = 10;
  if (report.splits.empty() || report.splits[0].name != "train") return;
  const std::vector<std::int64_t>& train = report.class_counts[0];
  const std::vector<std::string>& classes = report.splits[0].split.source->classes();
  const std::int64_t total = std::accumulate(train.begin(), train.end(), std::int64_t{0});
  const auto add = [&](FindingKind kind, std::string text) {
    report.findings.push_back({kind, std::move(text), {}});
  };
  for (std::size_t c = 0; c < train.size(); ++c) {
    std::int64_t elsewhere = 0;
    for (std::size_t s = 1; s < report.splits.size(); ++s) {
      const std::int64_t count = report.class_counts[s][c];
      elsewhere += count;
      if (count == 0 && train[c] > 0) {
        add(FindingKind::class_not_measured,
            fmt::format("class {}: {} has no samples of it, but train has {}", classes[c],
                        report.splits[s].name, train[c]));
      }
    }
    const double mean = static_cast<double>(total) / static_cast<double>(train.size());
    if (train[c] == 0 && elsewhere > 0) {
      add(FindingKind::class_not_trained,
          fmt::format("class {}: train has no samples of it, but the other splits have {}",
                      classes[c], elsewhere));
    } else if (train[c] == 0) {
      add(FindingKind::class_missing,
          fmt::format("class {}: no split has samples of it", classes[c]));
    } else if (train[c] < kFew || static_cast<double>(train[c]) < mean / 10) {
      add(FindingKind::few_samples,
          fmt::format("class {}: {} training sample{}; on average, a class has {:.1f}", classes[c],
                      train[c], train[c] == 1 ? "" : "s", mean));
    }
  }
}

void find_constant_channels(DataReport& report) {
  for (const SurveyedSplit& split : report.splits) {
    if (split.name != "train") continue;
    for (std::size_t c = 0; c < split.statistics.stddev.size(); ++c) {
      if (split.statistics.stddev[c] > 0) continue;
      report.findings.push_back(
          {FindingKind::constant_channel,
           fmt::format("channel {} is {:.6g} in all training samples: Normalize cannot divide by "
                       "its standard deviation of 0; use 1",
                       c, split.statistics.mean[c]),
           {}});
    }
  }
}

// ---- Equal samples -----------------------------------------------------------------------------

/// Adds the findings about a group of equal samples, and counts copies. REQUIRES: the group is
/// sorted by split.
void describe_group(DataReport& report, const std::vector<SampleRef>& group) {
  std::vector<std::int64_t> of_split(report.splits.size());
  bool conflicts = false;
  for (const SampleRef& sample : group) {
    ++of_split[sample.split];
    conflicts = conflicts || record_of(report, sample).target != record_of(report, group[0]).target;
  }
  for (CopyCount& copy : report.copies) {
    if (of_split[copy.in] > 0) copy.samples += of_split[copy.of];
  }
  const bool crosses = of_split[group[0].split] < static_cast<std::int64_t>(group.size());
  const std::string names = some_named(report, group);
  if (!source_of(report, group[0]).features().empty()) {
    // Equal rows are a warning: they are common where features take few values.
    report.findings.push_back({FindingKind::equal_rows,
                               fmt::format("{} rows have equal features{}: {}", group.size(),
                                           conflicts ? " and different targets" : "", names),
                               group});
    return;
  }
  if (conflicts) {
    report.findings.push_back(
        {FindingKind::label_conflict,
         fmt::format("{} equal samples have different targets: {}", group.size(), names), group});
  }
  if (crosses) {
    report.findings.push_back({FindingKind::duplicate_across_splits,
                               fmt::format("{} equal samples: {}", group.size(), names), group});
  }
  if (!conflicts && !crosses) {
    report.findings.push_back(
        {FindingKind::duplicate, fmt::format("{} equal samples: {}", group.size(), names), group});
  }
}

/// Reports equal samples. Returns, for the search for near duplicates, one sample for each
/// combination of content and split.
std::vector<SampleRef> find_equal_samples(DataReport& report) {
  for (std::size_t in = 0; in < report.splits.size(); ++in) {
    for (std::size_t of = in + 1; of < report.splits.size(); ++of)
      report.copies.push_back({in, of});
  }
  std::vector<SampleRef> all = samples_where(report, [](const SampleRecord&) { return true; });
  std::sort(all.begin(), all.end(), [&](const SampleRef& a, const SampleRef& b) {
    return std::tuple(record_of(report, a).content, a.split, a.position) <
           std::tuple(record_of(report, b).content, b.split, b.position);
  });
  std::vector<SampleRef> distinct;
  std::vector<std::vector<SampleRef>> groups;
  for (std::size_t first = 0; first < all.size();) {
    const std::uint64_t content = record_of(report, all[first]).content;
    std::size_t last = first;
    for (; last < all.size() && record_of(report, all[last]).content == content; ++last) {
      if (last == first || all[last].split != all[last - 1].split) distinct.push_back(all[last]);
    }
    if (last - first > 1) {
      groups.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(first),
                          all.begin() + static_cast<std::ptrdiff_t>(last));
    }
    first = last;
  }
  // The image with the most copies comes first.
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    if (a.size() != b.size()) return a.size() > b.size();
    return std::pair(a[0].split, a[0].position) < std::pair(b[0].split, b[0].position);
  });
  for (const std::vector<SampleRef>& group : groups) describe_group(report, group);
  return distinct;
}

// ---- Similar images --------------------------------------------------------------------------

/// Returns the deviations from the mean, scaled so that the dot product of two images is their
/// correlation.
std::vector<float> unit_deviations(const std::vector<std::byte>& pixels, DType type) {
  std::vector<float> values(pixels.size() / size_of(type));
  if (type == DType::f32) {
    std::memcpy(values.data(), pixels.data(), pixels.size());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(std::to_integer<int>(pixels[i]));
    }
  }
  double mean = 0, squares = 0;
  for (const float value : values) mean += static_cast<double>(value);
  mean /= static_cast<double>(values.size());
  for (float& value : values) {
    value -= static_cast<float>(mean);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const auto scale = static_cast<float>(squares > 0 ? 1 / std::sqrt(squares) : 0);
  for (float& value : values) value *= scale;
  return values;
}

/// Compares images pixel by pixel, after reading them again.
class Comparison {
 public:
  explicit Comparison(const DataReport& report) : report_(report) {}

  double correlation(const SampleRef& a, const SampleRef& b) {
    // Consecutive pairs often have the same first sample.
    if (!has_first_ || a.split != at_.split || a.position != at_.position) {
      load(a, first_);
      at_ = a;
      has_first_ = true;
    }
    load(b, second_);
    return std::inner_product(first_.begin(), first_.end(), second_.begin(), 0.0);
  }

 private:
  void load(const SampleRef& sample, std::vector<float>& to) {
    SampleRecord record;
    read_sample(report_.splits[sample.split].split, sample.position, pixels_, record);
    to = unit_deviations(pixels_, source_of(report_, sample).type());
  }

  const DataReport& report_;
  bool has_first_ = false;
  SampleRef at_;
  std::vector<std::byte> pixels_;
  std::vector<float> first_, second_;
};

struct NearPair {
  double correlation;
  SampleRef a, b;
};

/// Returns the pairs of `candidates` whose pixels are similar; unset if the check was stopped.
std::optional<std::vector<NearPair>> compare_pixels(const DataReport& report,
                                                    const std::vector<SampleRef>& samples,
                                                    const SimilarHashes& candidates,
                                                    const DataCheckOptions& options) {
  constexpr std::size_t kTaken = 64;
  std::vector<NearPair> pairs;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto compare = [&](const std::atomic<bool>& stop) {
    Comparison comparison(report);
    std::vector<NearPair> own;
    for (std::size_t begin = next.fetch_add(kTaken); begin < candidates.pairs.size() && !stop;
         begin = next.fetch_add(kTaken)) {
      const std::size_t end = std::min(begin + kTaken, candidates.pairs.size());
      for (std::size_t i = begin; i < end && !stop; ++i) {
        const SampleRef &a = samples[candidates.pairs[i].first],
                        &b = samples[candidates.pairs[i].second];
        const double correlation = comparison.correlation(a, b);
        if (correlation >= kNearCorrelation) own.push_back({correlation, a, b});
      }
    }
    const std::lock_guard lock(mutex);
    pairs.insert(pairs.end(), own.begin(), own.end());
  };
  const auto wants_stop = [&] {
    if (options.on_progress) {
      options.on_progress("compared",
                          static_cast<std::int64_t>(std::min(next.load(), candidates.pairs.size())),
                          static_cast<std::int64_t>(candidates.pairs.size()));
    }
    return options.wants_stop && options.wants_stop();
  };
  if (!run_workers(options.workers, "comparison", compare, wants_stop)) return std::nullopt;
  std::sort(pairs.begin(), pairs.end(), [](const NearPair& x, const NearPair& y) {
    return std::tuple(-x.correlation, x.a.split, x.a.position, x.b.split, x.b.position) <
           std::tuple(-y.correlation, y.a.split, y.a.position, y.b.split, y.b.position);
  });
  return pairs;
}

void find_similar_images(DataReport& report, std::vector<SampleRef> samples,
                         const DataCheckOptions& options) {
  report.looks_for_near = options.near_duplicates && !report.splits.empty() &&
                          has_perceptual_hash(report.splits[0].split.source->shape());
  if (!report.looks_for_near) return;
  // The hash of an image of one colour is meaningless.
  std::erase_if(samples, [&](const SampleRef& sample) {
    return record_of(report, sample).is_constant || !record_of(report, sample).is_finite;
  });
  std::sort(samples.begin(), samples.end(), [](const SampleRef& a, const SampleRef& b) {
    return std::pair(a.split, a.position) < std::pair(b.split, b.position);
  });
  std::vector<std::uint64_t> hashes;
  for (const SampleRef& sample : samples) hashes.push_back(record_of(report, sample).perceptual);
  SimilarHashes candidates =
      find_similar_hashes(hashes, kNearDistance, options.workers, options.wants_stop);
  report.near_is_complete = candidates.complete;
  report.interrupted = candidates.interrupted;
  if (report.interrupted) return;
  // Equal samples in two splits are already reported.
  std::erase_if(candidates.pairs, [&](const auto& pair) {
    return record_of(report, samples[pair.first]).content ==
           record_of(report, samples[pair.second]).content;
  });
  const auto pairs = compare_pixels(report, samples, candidates, options);
  report.interrupted = !pairs;
  if (report.interrupted) return;
  report.near_pairs = static_cast<std::int64_t>(pairs->size());
  std::size_t across = 0, within = 0;
  for (const NearPair& pair : *pairs) {
    const bool crosses = pair.a.split != pair.b.split;
    if ((crosses ? across : within)++ >= kMaxNearFindings) continue;
    report.findings.push_back(
        {crosses ? FindingKind::near_duplicate_across_splits : FindingKind::near_duplicate,
         fmt::format("correlation {:.4f}: {}", pair.correlation,
                     some_named(report, {pair.a, pair.b})),
         {pair.a, pair.b},
         pair.correlation});
  }
}

}  // namespace

ImageSizes image_sizes(const SurveyedSplit& split) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts;
  for (const SampleRecord& record : split.records) {
    if (record.is_read) ++counts[{record.height, record.width}];
  }
  ImageSizes sizes;
  sizes.distinct = static_cast<std::int64_t>(counts.size());
  for (const auto& [size, count] : counts) {
    const Size2 here{size.first, size.second};
    const std::int64_t pixels = here.h * here.w;
    if (sizes.of_commonest == 0 || pixels < sizes.smallest.h * sizes.smallest.w) {
      sizes.smallest = here;
    }
    if (pixels > sizes.largest.h * sizes.largest.w) sizes.largest = here;
    if (count > sizes.of_commonest) {
      sizes.commonest = here;
      sizes.of_commonest = count;
    }
  }
  return sizes;
}

DataReport check_data(const Splits& splits, const DataCheckOptions& options) {
  DataReport report;
  const auto add = [&](const char* name, const Split& split) {
    if (split.source && split.size() > 0) report.splits.push_back({name, split, {}, {}, {}});
  };
  add("train", splits.train);
  add("val", splits.val);
  add("test", splits.test);
  SurveyOptions survey;
  survey.workers = options.workers;
  survey.wants_stop = options.wants_stop;
  if (options.on_progress) {
    survey.on_progress = [&](std::int64_t done, std::int64_t total) {
      options.on_progress("read", done, total);
    };
  }
  report.interrupted = !survey_samples(report.splits, survey);
  if (report.interrupted) return report;
  count_classes(report);
  find_bad_samples(report);
  find_file_problems(report);
  find_class_gaps(report);
  find_constant_channels(report);
  find_similar_images(report, find_equal_samples(report), options);
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
  return report;
}

}  // namespace dpt
