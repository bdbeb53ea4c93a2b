#include "engine/data/bad_samples.h"

#include <algorithm>
#include <utility>

#include "engine/data/wrapped_source.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

class SubstitutingSource final : public WrappedSource {
 public:
  SubstitutingSource(std::shared_ptr<const DataSource> source, std::vector<std::int64_t> indices,
                     std::shared_ptr<BadSamples> bad, std::shared_ptr<LeftOutSamples> left_out)
      : WrappedSource(std::move(source)),
        indices_(std::move(indices)),
        bad_(std::move(bad)),
        left_out_(std::move(left_out)) {}

  /// Returns no samples: no particular sample has to be readable.
  std::vector<std::int64_t> samples_to_try() const override { return {}; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    read_in_epoch({0, index, index}, pixels, label);
  }
  void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    // Results are not cached: whether a file is readable may depend on the crop, and thus on the
    // epoch.
    std::int64_t at = sample.index;
    do {
      try {
        const Occurrence substitute{sample.epoch, at, sample.key + (at - sample.index)};
        return source().read_in_epoch(substitute, pixels, label);
      } catch (const DamagedCache&) {
        throw;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::data) throw;
        bad_->add(source().describe(at), error.what());
        if (left_out_) left_out_->add(at);
      }
      at = next_index(indices_, at);
    } while (at != sample.index);
    fail(ErrorKind::data, "none of the {} samples can be read; the first was {}", indices_.size(),
         source().describe(sample.index));
  }

 private:
  std::vector<std::int64_t> indices_;
  std::shared_ptr<BadSamples> bad_;
  std::shared_ptr<LeftOutSamples> left_out_;  ///< null in training
};

}  // namespace

std::int64_t next_index(const std::vector<std::int64_t>& indices, std::int64_t index) {
  const auto after = std::upper_bound(indices.begin(), indices.end(), index);
  return after == indices.end() ? indices.front() : *after;
}

void BadSamples::add(const std::string& sample, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (!met_.insert(sample).second) return;
  new_.push_back(problem);
  if (static_cast<std::int64_t>(met_.size()) <= most_) return;
  fail(ErrorKind::data,
       "{}. The number of bad samples is now {}, and data.max_bad_samples is {}: repair or remove "
       "the files (warnings name the others), or allow more",
       problem, met_.size(), most_);
}

std::vector<std::string> BadSamples::take_new() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

std::int64_t BadSamples::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(met_.size());
}

void LeftOutSamples::add(std::int64_t index) {
  const std::lock_guard lock(mutex_);
  indices_.insert(index);
}

bool LeftOutSamples::contains(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  return indices_.contains(index);
}

std::shared_ptr<const DataSource> with_substitutes(std::shared_ptr<const DataSource> source,
                                                   std::vector<std::int64_t> indices,
                                                   std::shared_ptr<BadSamples> bad,
                                                   std::shared_ptr<LeftOutSamples> left_out) {
  return std::make_shared<SubstitutingSource>(std::move(source), std::move(indices), std::move(bad),
                                              std::move(left_out));
}

}  // namespace dpt
