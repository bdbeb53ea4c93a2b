#include "app/catalog.h"

#include "engine/data/loader.h"
#include "engine/data/source.h"
#include "engine/layers/layer.h"
#include "engine/optimizers/optimizer.h"
#include "engine/schedules/schedule.h"
#include "engine/zoo/zoo.h"

namespace dpt {

const Catalog& catalog() {
  static const Catalog all{layer_table(),     optimizer_table(), schedule_table(), dataset_table(),
                           transform_table(), zoo_table(),       &zoo_layers};
  return all;
}

}  // namespace dpt
