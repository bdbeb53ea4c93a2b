// The files of which dpt report makes a page, embedded in the program. The definition is generated
// by embed.cmake.
#pragma once

#include <cstddef>
#include <string_view>

namespace dpt {

struct ReportAssets {
  std::string_view page, style, script;
  std::string_view charts;  ///< Chart.js; empty in a build without it (DPT_CHARTS)
  std::string_view charts_licence;
};

ReportAssets report_assets();

}  // namespace dpt
