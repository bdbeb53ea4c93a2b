#include "engine/config/suggest.h"

#include <algorithm>

#include "engine/config/scalars.h"

namespace dpt {
namespace {

/// Returns the word in lower case without separators: kernelSize, kernel-size and kernel_size are
/// equal.
std::string folded(const std::string& word) {
  std::string out;
  for (const char c : word) {
    if (c != '_' && c != '-' && c != ' ') out += c;
  }
  return lower_case(std::move(out));
}

/// Returns the edit distance in which a swap of two neighbours counts once (optimal string
/// alignment).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

}  // namespace

std::string closest(const std::string& word, std::span<const std::string> candidates) {
  // A word longer than any name in a config is not a misspelt name.
  if (word.empty() || word.size() > 64) return {};
  const std::string key = folded(word);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, key.size() / 3);
  for (const std::string& candidate : candidates) {
    const std::string other = folded(candidate);
    std::size_t d = distance(key, other);
    // Suggest kernel_size for "kernel", and out_channels for "out".
    const bool is_prefix = key.size() >= 3 && (other.starts_with(key) || key.starts_with(other));
    if (is_prefix && other.size() >= 3) d = std::min<std::size_t>(d, 1);
    // Suggest val/accuracy for "accuracy".
    if (key.size() >= 4 && other.ends_with(key)) d = std::min<std::size_t>(d, 1);
    if (d < best_distance || (d == best_distance && best.empty())) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string name_ending_in(const std::string& word, std::span<const std::string> candidates) {
  const std::size_t last = word.rfind('/') + 1;  // 0 without a slash
  const std::string place = word.substr(0, last), end = "_" + word.substr(last);
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(place) && candidate.ends_with(end)) return candidate;
  }
  return {};
}

}  // namespace dpt
