#include "app/export/export_facts.h"

#include "engine/config/json_values.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/loader.h"
#include "engine/data/transforms.h"

namespace dpt {
namespace {

/// Returns the transforms that `dpt predict` applies to an image of any size.
nlohmann::ordered_json transforms_of(const TrainSpec& spec) {
  const std::vector<Variant>& transforms = spec.data.transforms.eval;
  auto out = nlohmann::ordered_json::array();
  if (!gives_size(transforms)) {
    out.push_back({{"type", "Resize"}, {"size", {spec.model.input[1], spec.model.input[2]}}});
  }
  for (const Variant& each : transforms) out.push_back(json_of(each));
  return out;
}

}  // namespace

ExportFacts export_facts_of(const TrainSpec& spec, const CheckpointHeader& header,
                            const std::string& weights, std::optional<DType> raw_type) {
  ExportFacts facts;
  facts.version = fmt::format("dpt {}", DPT_VERSION);
  facts.run = spec.name;
  facts.checkpoint = header.checksum;
  facts.step = header.state.step;
  facts.epoch = header.state.epoch;
  facts.weights = weights;
  facts.loss = spec.loss.type;
  facts.classes = header.classes;
  facts.input = spec.model.input;
  if (raw_type) facts.scale = *raw_type == DType::u8 ? 255.0F : 1.0F;
  const SampleShape shape{facts.input[1], facts.input[2], facts.input[0]};
  const InputDesc input =
      make_input_desc(spec.data.transforms.eval, DType::u8, shape, shape, spec.seed);
  facts.mean = input.mean;
  facts.stddev = input.stddev;
  facts.turns_upright = spec.data.exif_orientation == ExifOrientation::apply;
  facts.transforms = transforms_of(spec);
  return facts;
}

}  // namespace dpt
