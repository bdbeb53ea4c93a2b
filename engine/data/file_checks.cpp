#include "engine/data/file_checks.h"

#include <algorithm>

#include <fmt/format.h>

namespace dpt {
namespace {

/// Images of up to this many bits become nearly black, because only the upper 8 of 16 bits are
/// kept.
constexpr int kNearlyBlack = 12;

/// Finds 16-bit images that are dark because their values need fewer bits. An image with 13 to 15
/// bits may simply show a dark scene, unless no image of the data needs more bits.
void find_few_bits(DataReport& report) {
  int most = 0;
  for (const SurveyedSplit& split : report.splits) {
    for (const SampleRecord& record : split.records) most = std::max<int>(most, record.used_bits);
  }
  const int limit = most < 16 ? most : kNearlyBlack;
  int bits = 0;
  std::vector<SampleRef> dark = samples_where(report, [&](const SampleRecord& record) {
    if (record.used_bits == 0 || record.used_bits > limit) return false;
    bits = std::max<int>(bits, record.used_bits);
    return true;
  });
  if (dark.empty()) return;
  const int largest = (1 << bits) - 1;
  const char* look = bits <= 8 ? "black" : bits <= kNearlyBlack ? "nearly black" : "dark";
  const bool is_one = dark.size() == 1;
  report.findings.push_back(
      {FindingKind::few_bits,
       fmt::format("{} 16-bit image{} values of at most {} bits (0 to {}). Only the upper 8 of 16 "
                   "bits are kept: {} 0 to {} of 255, {}. Multiply the values by {} first, for "
                   "example with mogrify -evaluate multiply {} FILE: {}",
                   dark.size(), is_one ? " has" : "s have", bits, largest,
                   is_one ? "it becomes" : "they become", largest >> 8, look, 1 << (16 - bits),
                   1 << (16 - bits), some_named(report, dark)),
       dark});
}

void find_ignored_orientations(DataReport& report) {
  std::vector<SampleRef> sideways = samples_where(report, [](const SampleRecord& record) {
    return record.orientation != 1 && !record.is_turned;
  });
  if (sideways.empty()) return;
  const bool is_one = sideways.size() == 1;
  report.findings.push_back(
      {FindingKind::exif_orientation,
       fmt::format("{} image{} stored rotated or mirrored (Exif orientation) and read as stored. "
                   "data.exif_orientation=apply turns {} upright: {}",
                   sideways.size(), is_one ? " is" : "s are", is_one ? "it" : "them",
                   some_named(report, sideways)),
       sideways});
}

}  // namespace

StoredOrientations stored_orientations(const SurveyedSplit& split) {
  StoredOrientations found;
  for (const SampleRecord& record : split.records) {
    if (!record.is_read || record.orientation == 1) continue;
    ++found.counts[record.orientation];
    if (record.is_turned) ++found.turned[record.orientation];
  }
  return found;
}

void find_file_problems(DataReport& report) {
  find_few_bits(report);
  find_ignored_orientations(report);
}

}  // namespace dpt
