// The samples of a step, and their bytes. The order of an epoch is a pure function of (seed,
// epoch); the loader's whole state is (epoch, position).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/decoder_pool.h"
#include "engine/data/input_draws.h"
#include "engine/data/sampling.h"
#include "engine/data/source.h"
#include "engine/data/split.h"
#include "kernels/backend.h"

namespace dpt {

/// Samples of one rank for one step, in host memory. For a resident source `pixels` is the whole
/// source and slots are sample indices; otherwise `pixels` is a staging buffer and slots count from
/// 0. Valid until the next call of Loader::next.
struct HostBatch {
  std::span<const std::byte> pixels;
  std::span<const std::int32_t> labels;
  std::span<const float> targets;  ///< one row of DataSource::targets().floats() per label
  std::span<const std::int32_t> slots;
  std::span<const std::int64_t> ids;  ///< keys of the samples' random draws: Occurrence::key
  /// Mixing of each sample with the one before it; set by the trainer.
  std::optional<BatchMix> mix = {};
  /// Slot and id of the sample before the first one, if the loader was given partners.
  std::int32_t partner_slot = 0;
  std::int64_t partner_id = 0;
  double wait_seconds = 0;  ///< time the caller waited for decoding
};

/// Reader of one rank's part of every batch, in order. For sources that are not resident, the
/// process's decoder threads decode ahead, with bounded memory. An exception of a decoder is
/// rethrown by the `next` that would have returned the sample. Used by one thread.
class Loader {
 public:
  struct Options {
    SamplingOptions sampling = {};
    int prefetch = 4;  ///< batches decoded ahead; minimum 1
    /// Null: the loader starts one thread of its own, if it needs one.
    std::shared_ptr<DecoderPool> decoders = {};
  };
  /// `split` must outlive the loader.
  Loader(const Split& split, const Options& options);
  ~Loader();

  /// Announces the ranges that `next` will return, in order: one rank's ranges of positions in an
  /// epoch's order. If samples are mixed, `partners` has the position of the partner of each
  /// range's first sample. Drops earlier announcements.
  void start(std::int64_t epoch, std::vector<Range> ranges,
             std::vector<std::int64_t> partners = {});
  /// Returns the samples of the next announced range. REQUIRES: fewer calls than ranges.
  HostBatch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
