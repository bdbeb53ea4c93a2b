#include "app/gate/verdict_files.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "app/base/markup_text.h"
#include "engine/run/run_files.h"
#include "kernels/base/utf8_text.h"

namespace dpt {
namespace {

using Outcome = Condition::Outcome;

// Names of the outcomes: words in the Markdown table, and XML elements in JUnit test cases.
constexpr const char* kWords[] = {"not checked", "yes", "**no**"};
constexpr const char* kElements[] = {"skipped", "system-out", "failure"};

/// Escapes text for a line or a table cell, so that it does not become Markdown.
std::string markdown_cell(const std::string& text) {
  std::string out;
  for (const char c : utf8_text(text)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) out += '\\';
    out += is_control ? ' ' : c;
  }
  return out;
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : markdown_cell(text);
}

std::ptrdiff_t count_of(const GateResult& result, Outcome outcome) {
  return std::count_if(result.conditions.begin(), result.conditions.end(),
                       [&](const Condition& each) { return each.outcome == outcome; });
}

std::string heading_of(const GateResult& result) {
  if (!result.error.empty()) return "failed, requirements not checked";
  const std::ptrdiff_t missed = count_of(result, Outcome::not_met);
  if (missed > 0) {
    return fmt::format("{} of {} requirements not met", missed, result.conditions.size());
  }
  return count_of(result, Outcome::unchecked) > 0 ? "requirements not checked"
                                                  : "all requirements met";
}

std::string markdown_row(const Condition& condition) {
  std::string asked = condition.relation + " " + condition.asked;
  if (condition.of_baseline && !condition.limit.empty()) asked += " (" + condition.limit + ")";
  std::string met = kWords[static_cast<std::size_t>(condition.outcome)];
  // If the bound is unknown, the columns do not explain why the condition is not met.
  const bool is_clear = condition.outcome != Outcome::not_met || !condition.limit.empty();
  if (!is_clear) met += ": " + markdown_cell(condition.message);
  return fmt::format("| {} | {} | {} | {} | {} |\n", markdown_cell(condition.name()),
                     markdown_cell(asked), or_dash(condition.found), or_dash(condition.baseline),
                     met);
}

/// Returns a test case with its text twice: Jenkins shows the attribute of the inner element,
/// GitLab its content.
std::string junit_case(const GateResult& result, const Condition& condition) {
  const bool is_met = condition.outcome == Outcome::met, has_error = !result.error.empty();
  const std::string text = xml_text(has_error ? result.error
                                    : is_met  ? "the value is " + condition.found
                                              : condition.message);
  return fmt::format(
      "    <testcase classname=\"dpt.{0}\" name=\"{1}\">\n      <{2}{3}>{4}</{2}>\n    "
      "</testcase>\n",
      result.command, xml_text(condition.text),
      has_error ? "error" : kElements[static_cast<std::size_t>(condition.outcome)],
      is_met ? "" : fmt::format(" message=\"{}\"", text), text);
}

}  // namespace

std::string verdict_markdown(const GateResult& result) {
  std::string text = fmt::format("{}{}: {}\n\n{}", kMarkdownMark, result.command,
                                 heading_of(result), markdown_cell(result.subject));
  if (!result.baseline.empty()) text += ", baseline " + markdown_cell(result.baseline);
  text += "\n";
  if (!result.error.empty()) text += "\nError: " + markdown_cell(result.error) + "\n";
  for (const std::string& warning : result.warnings) {
    text += "\n**Warning**: " + markdown_cell(warning) + "\n";
  }
  text += "\n| metric | asked | found | baseline | met |\n|---|---|---|---|---|\n";
  std::string why_unchecked;  // the same for all rows
  for (const Condition& condition : result.conditions) {
    text += markdown_row(condition);
    if (condition.outcome == Outcome::unchecked) why_unchecked = condition.message;
  }
  return text + (why_unchecked.empty() ? "" : "\n" + markdown_cell(why_unchecked) + "\n");
}

std::string verdict_junit(const GateResult& result) {
  const std::ptrdiff_t unchecked = count_of(result, Outcome::unchecked);
  const bool has_error = !result.error.empty();
  const std::string counts = fmt::format(
      "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"", result.conditions.size(),
      count_of(result, Outcome::not_met), has_error ? unchecked : 0, has_error ? 0 : unchecked);
  std::string text =
      fmt::format("{0}{1}\" {2}>\n  <testsuite name=\"dpt {1}\" {2}>\n    <properties>\n",
                  kJUnitMark, result.command, counts);
  const auto add_property = [&](const char* name, const std::string& value) {
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, xml_text(value));
  };
  add_property("subject", result.subject);
  if (!result.baseline.empty()) add_property("baseline", result.baseline);
  for (const std::string& warning : result.warnings) add_property("warning", warning);
  text += "    </properties>\n";
  for (const Condition& condition : result.conditions) text += junit_case(result, condition);
  return text + "  </testsuite>\n</testsuites>\n";
}

}  // namespace dpt
