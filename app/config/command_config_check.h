#pragma once

#include "app/config/config_options.h"

namespace dpt {

int run_config_check(const ConfigOptions& options);

}  // namespace dpt
