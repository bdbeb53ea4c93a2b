#include "datasets/unlabelled.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "datasets/dataset.h"
#include "engine/data/wrapped_source.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

class UnlabelledSource final : public WrappedSource {
 public:
  UnlabelledSource(std::shared_ptr<const DataSource> source, const ModelOutputs& outputs,
                   std::shared_ptr<UnreadableSamples> unreadable)
      : WrappedSource(std::move(source)), outputs_(outputs), unreadable_(std::move(unreadable)) {
    if (!this->source().resident()) return;
    labels_.resize(static_cast<std::size_t>(size()));
    targets_.resize(labels_.size() * static_cast<std::size_t>(outputs_.targets.floats()));
  }

  const std::vector<std::string>& classes() const override { return outputs_.names; }
  TargetShape targets() const override { return outputs_.targets; }
  bool resizes() const override { return source().resizes(); }
  std::int32_t label(std::int64_t) const override { return 0; }
  void read_targets(std::int64_t, std::span<float> row) const override {
    std::fill(row.begin(), row.end(), 0.0F);
  }
  std::optional<ResidentSamples> resident() const override {
    const std::optional<ResidentSamples> samples = source().resident();
    if (!samples) return std::nullopt;
    return ResidentSamples{samples->pixels, labels_, targets_};
  }

  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    try {
      source().read(index, pixels, label);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      unreadable_->add(index, error.what());
      std::fill(pixels.begin(), pixels.end(), std::byte{0});
    }
    label = 0;
  }

  Image read_part(std::int64_t index, const ChoosePart& choose,
                  std::int32_t& label) const override {
    // The choice must be made only once, even if the file turns out to be damaged afterwards.
    std::optional<ImagePart> part;
    const ChoosePart choose_once = [&](std::int64_t height, std::int64_t width) {
      part = choose(height, width);
      return *part;
    };
    label = 0;
    try {
      Image image = source().read_part(index, choose_once, label);
      label = 0;
      return image;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      unreadable_->add(index, error.what());
    }
    if (!part) choose_once(shape().h, shape().w);
    Image black{part->window.height, part->window.width, shape().c, {}};
    black.pixels.resize(static_cast<std::size_t>(black.height * black.width * black.channels));
    return black;
  }

 private:
  ModelOutputs outputs_;
  std::shared_ptr<UnreadableSamples> unreadable_;
  std::vector<std::int32_t> labels_;  ///< zeros for a resident source; otherwise empty
  std::vector<float> targets_;
};

}  // namespace

std::shared_ptr<const DataSource> without_labels(std::shared_ptr<const DataSource> source,
                                                 const ModelOutputs& outputs,
                                                 std::shared_ptr<UnreadableSamples> unreadable) {
  return std::make_shared<UnlabelledSource>(std::move(source), outputs, std::move(unreadable));
}

}  // namespace dpt
