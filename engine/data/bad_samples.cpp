#include "engine/data/bad_samples.h"

#include <algorithm>
#include <map>
#include <shared_mutex>
#include <utility>

#include "kernels/error.h"

namespace dpt {
namespace {

class SubstitutingSource final : public DataSource {
 public:
  SubstitutingSource(std::shared_ptr<const DataSource> source, std::vector<std::int64_t> indices,
                     std::shared_ptr<BadSamples> bad)
      : source_(std::move(source)), indices_(std::move(indices)), bad_(std::move(bad)) {}

  std::int64_t size() const override { return source_->size(); }
  SampleShape shape() const override { return source_->shape(); }
  DType type() const override { return source_->type(); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  TargetShape targets() const override { return source_->targets(); }
  std::string describe(std::int64_t index) const override {
    return source_->describe(instead_of(index));
  }
  std::int32_t label(std::int64_t index) const override { return source_->label(index); }
  std::string fingerprint() const override { return source_->fingerprint(); }

  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    read_in_epoch(0, index, pixels, label);
  }
  void read_in_epoch(std::int64_t epoch, std::int64_t index, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    const std::int64_t first = instead_of(index);
    std::int64_t at = first;
    do {
      try {
        source_->read_in_epoch(epoch, at, pixels, label);
        if (at != index) {
          const std::unique_lock lock(mutex_);
          substitutes_[index] = at;
        }
        return;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::data) throw;
        bad_->add(at, error.what());
      }
      at = next(at);
    } while (at != first);
    fail(ErrorKind::data, "none of the {} training samples can be read; the first was {}",
         indices_.size(), source_->describe(first));
  }
  /// Called after the sample was read.
  void read_targets(std::int64_t index, std::span<float> row) const override {
    source_->read_targets(instead_of(index), row);
  }

 private:
  std::int64_t next(std::int64_t index) const {
    const auto after = std::upper_bound(indices_.begin(), indices_.end(), index);
    return after == indices_.end() ? indices_.front() : *after;
  }
  std::int64_t instead_of(std::int64_t index) const {
    const std::shared_lock lock(mutex_);
    const auto found = substitutes_.find(index);
    return found == substitutes_.end() ? index : found->second;
  }

  std::shared_ptr<const DataSource> source_;
  std::vector<std::int64_t> indices_;
  std::shared_ptr<BadSamples> bad_;
  mutable std::shared_mutex mutex_;
  mutable std::map<std::int64_t, std::int64_t> substitutes_;  ///< of those found to be bad
};

}  // namespace

void BadSamples::add(std::int64_t index, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  if (!met_.insert(index).second) return;
  new_.push_back(problem);
  if (static_cast<std::int64_t>(met_.size()) <= most_) return;
  fail(ErrorKind::data,
       "{}. It is training sample number {} that cannot be read, and data.max_bad_samples is {}: "
       "repair or remove the files (train.log names the others), or allow more",
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

std::shared_ptr<const DataSource> with_substitutes(std::shared_ptr<const DataSource> source,
                                                   std::vector<std::int64_t> indices,
                                                   std::shared_ptr<BadSamples> bad) {
  return std::make_shared<SubstitutingSource>(std::move(source), std::move(indices),
                                              std::move(bad));
}

}  // namespace dpt
