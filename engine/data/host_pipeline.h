// The part of a list of transforms that runs on the host, sample by sample, in the decoder threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/host_transform.h"
#include "engine/data/source.h"

namespace dpt {

/// A list of transforms in two parts. The host part is empty if the device can apply all of them.
/// Otherwise it ends with the last transform that only the host can apply, or with a later one that
/// needs images of one known size (DevicePart). The rest runs in the device's input kernel.
struct DividedTransforms {
  std::span<const Variant> host, device;
};
DividedTransforms divide_transforms(std::span<const Variant> transforms);

/// Returns true if one of the transforms brings images of different sizes to one size. If none
/// does, such images are first resized to the model's input.
bool gives_size(std::span<const Variant> transforms);

/// Error thrown if images of a batch would have different sizes after the transforms.
class SizesDiffer : public Error {
 public:
  explicit SizesDiffer(const std::string& text) : Error(ErrorKind::usage, text) {}
};

/// A list of transforms that the host applies to samples. Const and thread-safe.
class HostPipeline {
 public:
  /// `image`: the size of all images, or nothing if sizes differ. Images of different sizes are
  /// first resized to `resize_to`, unless a transform gives them a size. Throws ErrorKind::usage
  /// for invalid options, and SizesDiffer if images would keep different sizes.
  HostPipeline(std::span<const Variant> transforms, std::optional<Size2> image, Size2 resize_to,
               std::uint64_t seed);

  Size2 size() const { return size_; }  ///< size of all results
  /// Reads a sample of `source`, transformed as in its epoch: size() pixels of the source's
  /// channels.
  void read(const DataSource& source, const Occurrence& sample, std::span<std::byte> pixels,
            std::int32_t& label) const;

 private:
  struct Stage {
    std::unique_ptr<HostTransform> transform;
    int place;  ///< index in the list, on which its random draws depend
  };
  std::vector<Stage> stages_;
  std::optional<Size2> resize_first_;
  Size2 size_;
  std::uint64_t seed_;
};

/// Returns `source` with the host part of `transforms` applied, or `source` itself if that part is
/// empty. `input` is the shape of the model's input. Throws as HostPipeline does, and if samples
/// are not 8-bit pixels.
std::shared_ptr<const DataSource> with_host_transforms(std::shared_ptr<const DataSource> source,
                                                       std::span<const Variant> transforms,
                                                       SampleShape input, std::uint64_t seed);

}  // namespace dpt
