#include "engine/data/data_report.h"
#include "engine/config/secrets.h"
#include "engine/data/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>

namespace dpt {
namespace {

struct KindFacts {
  const char* name;
  bool is_error;
};
constexpr std::array<KindFacts, kFindingKinds> kKinds{{{"not_opened", true},
                                                       {"unreadable", true},
                                                       {"not_finite", true},
                                                       {"label_conflict", true},
                                                       {"duplicate_across_splits", true},
                                                       {"class_not_trained", true},
                                                       {"few_bits", false},
                                                       {"exif_orientation", false},
                                                       {"duplicate", false},
                                                       {"equal_rows", false},
                                                       {"near_duplicate_across_splits", false},
                                                       {"near_duplicate", false},
                                                       {"constant", false},
                                                       {"constant_channel", false},
                                                       {"class_missing", false},
                                                       {"class_not_measured", false},
                                                       {"few_samples", false}}};

}  // namespace

const SampleRecord& record_of(const DataReport& report, const SampleRef& sample) {
  return report.splits[sample.split].records[sample.position];
}

const DataSource& source_of(const DataReport& report, const SampleRef& sample) {
  return *report.splits[sample.split].split.source;
}

std::string named(const DataReport& report, const SampleRef& sample) {
  const DataSource& source = source_of(report, sample);
  std::string text =
      fmt::format("{}: {}", report.splits[sample.split].name, name_of_sample(report, sample));
  if (!has_labels(source.targets().kind)) return text;
  const auto label = static_cast<std::size_t>(record_of(report, sample).label);
  const std::vector<std::string>& classes = source.classes();
  return text + fmt::format(" ({})", label < classes.size() ? classes[label] : "?");
}

std::string some_named(const DataReport& report, const std::vector<SampleRef>& samples) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(samples.size(), kNamed); ++i) {
    names.push_back(named(report, samples[i]));
  }
  if (samples.size() > kNamed) names.push_back(fmt::format("and {} more", samples.size() - kNamed));
  return fmt::format("{}", fmt::join(names, "; "));
}

const char* name_of(FindingKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].name;
}

bool is_error(FindingKind kind) {
  return kKinds[static_cast<std::size_t>(kind)].is_error;
}

std::string name_of_sample(const DataReport& report, const SampleRef& sample) {
  const Split& split = report.splits[sample.split].split;
  return hide_secrets(split.source->describe(split.indices[sample.position]));
}

std::vector<SampleRef> samples_where(const DataReport& report,
                                     const std::function<bool(const SampleRecord&)>& holds) {
  std::vector<SampleRef> found;
  for (std::size_t s = 0; s < report.splits.size(); ++s) {
    const std::vector<SampleRecord>& records = report.splits[s].records;
    for (std::size_t k = 0; k < records.size(); ++k) {
      if (records[k].is_read && holds(records[k])) {
        found.push_back({s, static_cast<std::int64_t>(k)});
      }
    }
  }
  return found;
}

}  // namespace dpt
