// Which samples a step sees, and their bytes. The order of an epoch is a pure function of (seed,
// epoch); the loader's whole state is (epoch, position).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/decoder_pool.h"
#include "engine/data/sampling.h"
#include "engine/data/source.h"
#include "engine/data/split.h"
#include "engine/spec/train_spec.h"
#include "kernels/backend.h"

namespace dpt {

/// Samples of one rank for one step, in host memory. For a resident source `pixels` is the whole
/// source and slots are sample indices; otherwise it is a staging buffer and slots count from 0.
/// Valid until the next call of Loader::next.
struct HostBatch {
  std::span<const std::byte> pixels;
  std::span<const std::int32_t> labels;
  std::span<const float> targets;  ///< rows of DataSource::targets().floats(), as the labels
  std::span<const std::int32_t> slots;
  std::span<const std::int64_t> ids;  ///< keys of the samples' random draws: Occurrence::key
  double wait_seconds = 0;            ///< time the caller waited for decoding
};

/// Reads one rank's part of every batch, in order. The process' decoder threads decode ahead for
/// sources that are not resident, with bounded memory. An exception of a decoder is rethrown by the
/// `next` that would have returned the sample. Used by one thread.
class Loader {
 public:
  struct Options {
    SamplingOptions sampling = {};
    int prefetch = 4;  ///< batches decoded ahead; at least one
    /// Null: one thread of its own, where it needs one.
    std::shared_ptr<DecoderPool> decoders = {};
  };
  /// `split` must outlive the loader.
  Loader(const Split& split, const Options& options);
  ~Loader();

  /// Announces what `next` will be asked for, in order: one rank's ranges of positions in an
  /// epoch's order. Drops what was announced before.
  void start(std::int64_t epoch, std::vector<Range> ranges);
  /// The next announced range. REQUIRES: fewer calls than ranges.
  HostBatch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The device's part of the transforms of a config ("train" or "eval" list; host_pipeline.h) as a
/// description of the input kernel. `source`, or `raw`, is what the host's part leaves.
/// Throws one ErrorKind::usage with a line, the transform's place first, for each one whose shape
/// or number of channels does not fit.
InputDesc make_input_desc(const std::vector<Variant>& transforms, const DataSource& source,
                          SampleShape model_input, std::uint64_t seed);
/// The same of images of that type and shape.
InputDesc make_input_desc(const std::vector<Variant>& transforms, DType raw_type, SampleShape raw,
                          SampleShape model_input, std::uint64_t seed);

/// Checks all that needs no data: options, and sizes where they do not follow from the pictures'.
/// Throws as make_input_desc.
void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input);

/// The transforms' tables for the Catalog.
const VariantTable& transform_table();

}  // namespace dpt
