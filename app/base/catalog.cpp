#include "app/base/catalog.h"

#include "datasets/dataset.h"
#include "engine/data/loader.h"
#include "engine/data/transform_kinds.h"
#include "engine/layers/layer.h"
#include "engine/losses/loss.h"
#include "engine/measurements/kinds.h"
#include "engine/metrics/metric.h"
#include "engine/optimizers/optimizer.h"
#include "engine/schedules/schedule.h"
#include "engine/zoo/zoo.h"

namespace dpt {

const Catalog& catalog() {
  static const Catalog all{layer_kinds().table(),
                           loss_kinds().table(),
                           metric_kinds().table(),
                           optimizer_kinds().table(),
                           schedule_kinds().table(),
                           dataset_kinds().table(),
                           transform_kinds().table(),
                           batch_transform_kinds().table(),
                           zoo_nets().table(),
                           &zoo_layers,
                           &data_facts,
                           &measured_names,
                           &better_direction,
                           &declares_validation,
                           &data_outputs,
                           measurement_switches()};
  return all;
}

}  // namespace dpt
