// Metadata of an exported model, from a checkpoint.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"
#include "engine/export/facts.h"

namespace dpt {

/// `weights`: which of the checkpoint's, "raw", "ema" or "swa"; `raw_type`: of the data's samples,
/// where that is known.
ExportFacts export_facts_of(const TrainSpec& spec, const CheckpointHeader& header,
                            const std::string& weights, std::optional<DType> raw_type);

}  // namespace dpt
