// SVG plots of an evaluation, without scripts.
#pragma once

#include <span>
#include <string>

#include "app/report/evaluation.h"
#include "engine/metrics/class_report.h"

namespace dpt {

/// Returns a reliability diagram: the fraction of correct predictions at each probability.
/// REQUIRES: bins is not empty.
std::string reliability_plot(std::span<const CalibrationBin> bins);

/// Returns a scatter plot of one output's predictions over its targets; `of_several` adds the
/// output's name.
std::string scatter_plot(const ReportedScatter& scatter, bool of_several);

}  // namespace dpt
