// The page of dpt report: everything about some runs in one HTML file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/report/evaluation.h"
#include "app/report/history.h"
#include "app/runs/run_comparison.h"
#include "engine/run/run_files.h"

namespace dpt {

struct ReportedRun {
  std::string label;  ///< short and unique label
  RunHistory history;
  std::string config_text;          ///< content of its config.yaml
  std::optional<RunConfig> config;  ///< unset if this release cannot read it
  std::string config_problem;       ///< reason if `config` is unset
  std::optional<ReportedEvaluation> evaluation;
  std::string evaluation_problem;  ///< reason if a requested evaluation is missing
};

/// Returns the whole page, which depends only on the runs.
std::string report_page(const std::vector<ReportedRun>& runs);

// The sections of the page.
std::string runs_section(const std::vector<ReportedRun>& runs);
std::string differences_section(const std::vector<ReportedRun>& runs);
std::string ledger_section(const std::vector<ReportedRun>& runs);
std::string events_section(const std::vector<ReportedRun>& runs);
std::string configs_section(const std::vector<ReportedRun>& runs);
std::string evaluation_section(const std::vector<ReportedRun>& runs);
/// Returns the number of evaluations in a page.
std::size_t evaluations_in(const std::string& page);

/// HTML of the section of curves, and the points for its script.
struct CurvesSection {
  std::string html, json;
};
CurvesSection curves_section(const std::vector<ReportedRun>& runs);

/// Returns <section id="ID"><h2>HEADING</h2>BODY</section>.
std::string section(const std::string& id, const std::string& heading, const std::string& body);

}  // namespace dpt
