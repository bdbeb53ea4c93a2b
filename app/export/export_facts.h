// Metadata of an exported model, from a checkpoint.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"
#include "engine/export/facts.h"

namespace dpt {

/// Returns the metadata. `weights`: the exported weights, "raw", "ema" or "swa"; `raw_type`: type
/// of the data's samples, if known.
ExportFacts export_facts_of(const TrainSpec& spec, const CheckpointHeader& header,
                            const std::string& weights, std::optional<DType> raw_type);

}  // namespace dpt
