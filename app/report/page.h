// The page of dpt report: everything about some runs in one file of HTML.
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
  std::string label;  ///< short, and another for each run
  RunHistory history;
  std::string config_text;          ///< its config.yaml
  std::optional<RunConfig> config;  ///< absent where this dpt cannot read it
  std::string config_problem;       ///< why
  std::optional<ReportedEvaluation> evaluation;
  std::string evaluation_problem;  ///< why there is none, where one was wanted
};

/// The whole page; a function of the runs alone.
std::string report_page(const std::vector<ReportedRun>& runs);

// Its sections.
std::string runs_section(const std::vector<ReportedRun>& runs);
std::string differences_section(const std::vector<ReportedRun>& runs);
std::string ledger_section(const std::vector<ReportedRun>& runs);
std::string events_section(const std::vector<ReportedRun>& runs);
std::string configs_section(const std::vector<ReportedRun>& runs);
std::string evaluation_section(const std::vector<ReportedRun>& runs);
/// Returns the number of evaluations in a page.
std::size_t evaluations_in(const std::string& page);

/// Headings of the curves, and the numbers for its script.
struct CurvesSection {
  std::string html, json;
};
CurvesSection curves_section(const std::vector<ReportedRun>& runs);

/// <section id="ID"><h2>HEADING</h2>...
std::string section(const std::string& id, const std::string& heading, const std::string& body);

}  // namespace dpt
