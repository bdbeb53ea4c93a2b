// Plots of an evaluation as SVG, which need no script.
#pragma once

#include <span>
#include <string>

#include "app/report/evaluation.h"
#include "engine/metrics/class_report.h"

namespace dpt {

/// Returns how often predictions of each probability were right. REQUIRES: bins is not empty.
std::string reliability_plot(std::span<const CalibrationBin> bins);

/// Returns the predictions of one output over its targets; `of_several` names the output.
std::string scatter_plot(const ReportedScatter& scatter, bool of_several);

}  // namespace dpt
