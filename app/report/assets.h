// The embedded files from which dpt report builds a page. embed.cmake generates the definition.
#pragma once

#include <cstddef>
#include <string_view>

namespace dpt {

struct ReportAssets {
  std::string_view page, style, script;
  std::string_view charts;  ///< Chart.js; empty if built without it (DPT_CHARTS)
  std::string_view charts_licence;
};

ReportAssets report_assets();

}  // namespace dpt
