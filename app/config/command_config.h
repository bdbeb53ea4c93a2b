#pragma once

#include <string>

#include "app/config/config_options.h"

namespace dpt {

struct ConfigInitOptions {
  std::string data, zoo;  ///< empty `data`: a config for the digits
};

int run_config_show(const ConfigOptions& options);
int run_config_schema();
int run_config_reference();
int run_config_init(const ConfigInitOptions& options);

}  // namespace dpt
