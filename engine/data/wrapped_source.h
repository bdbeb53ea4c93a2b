// Base class of data sets that read the samples of another data set in a different way.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// A data set with the labels, names and other properties of `source()`; a derived class implements
/// `read`. It has no resident samples, even if `source()` has.
class WrappedSource : public DataSource {
 public:
  std::int64_t size() const override { return source_->size(); }
  SampleShape shape() const override { return source_->shape(); }
  DType type() const override { return source_->type(); }
  const std::vector<std::string>& classes() const override { return source_->classes(); }
  TargetShape targets() const override { return source_->targets(); }
  const std::vector<std::string>& features() const override { return source_->features(); }
  void read_targets(std::int64_t index, std::span<float> row) const override {
    source_->read_targets(index, row);
  }
  std::int32_t label(std::int64_t index) const override { return source_->label(index); }
  std::span<const std::int64_t> groups() const override { return source_->groups(); }
  std::string describe(std::int64_t index) const override { return source_->describe(index); }
  FileFacts file_facts(std::int64_t index) const override { return source_->file_facts(index); }
  std::vector<std::int64_t> samples_to_try() const override { return source_->samples_to_try(); }
  std::string fingerprint() const override { return source_->fingerprint(); }
  /// Returns the underlying data set.
  const DataSource& wrapped() const { return *source_; }

 protected:
  explicit WrappedSource(std::shared_ptr<const DataSource> source) : source_(std::move(source)) {}
  const DataSource& source() const { return *source_; }

 private:
  std::shared_ptr<const DataSource> source_;
};

}  // namespace dpt
