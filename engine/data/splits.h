// Division of the data into training, validation and test samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/split.h"

namespace dpt {

/// Returns the number of samples of each class in the split. REQUIRES: the samples have labels.
std::vector<std::int64_t> class_counts(const Split& split, std::int64_t classes);

/// Returns the splits, with the data's own validation set or with samples held out of the training
/// set according to `spec`. The held-out samples depend only on `spec`, the seed, the labels and
/// the groups, and are in ascending order. Throws ErrorKind::usage if nothing is left to train on,
/// if the data lacks what `spec` needs, or if it has a validation set and `spec` also holds samples
/// out.
Splits make_splits(const DataSets& sets, const ValSplitSpec& spec, std::uint64_t seed);

/// Returns a text that tells validation samples of the same data apart: "xxh3:" and 16 hexadecimal
/// digits over their indices, or the fingerprint of the data set's own validation set. Empty
/// without validation samples.
std::string validation_fingerprint(const Splits& splits);

/// Returns how many of n samples are held out; with groups, an approximate number.
std::int64_t held_out_count(const ValSplitSpec& spec, std::int64_t n);

/// Returns the setting as in a config: "5000", or "{fraction: 0.1, stratify: true}".
std::string text_of(const ValSplitSpec& spec);

}  // namespace dpt
