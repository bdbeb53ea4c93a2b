#include "app/evaluate/verdict.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/utf8_text.h"

namespace dpt {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";  ///< U+FFFD

/// A cell of a table, or a line of text: what Markdown would take for its own is escaped.
std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : utf8_text(text)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += ' ';
      continue;
    }
    if (std::string_view("\\`*_[]<>|#&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : markdown_text(text);
}

std::int64_t count_of(const std::vector<Judgement>& judgements, Judgement::Verdict verdict) {
  return std::count_if(judgements.begin(), judgements.end(),
                       [&](const Judgement& judgement) { return judgement.verdict == verdict; });
}

/// ">= baseline-0.005 (0.895)".
std::string asked_text(const Judgement& judgement) {
  const Requirement& requirement = judgement.requirement;
  std::string bound = requirement.text.substr(requirement.text.find_first_of("<>"));
  bound.erase(0, requirement.relation.size());
  bound.erase(std::remove(bound.begin(), bound.end(), ' '), bound.end());
  const bool adds = requirement.of_baseline && !judgement.bound.empty();
  return fmt::format("{} {}{}", requirement.relation, bound,
                     adds ? fmt::format(" ({})", judgement.bound) : "");
}

std::string verdict_text(const Judgement& judgement) {
  switch (judgement.verdict) {
    case Judgement::Verdict::met:
      return "yes";
    case Judgement::Verdict::unchecked:
      return "not checked";
    case Judgement::Verdict::not_met:
      break;
  }
  // What the columns do not say.
  const bool is_plain = !judgement.found.empty() && !judgement.bound.empty();
  return is_plain ? "**no**" : "**no**: " + markdown_text(judgement.reason);
}

std::string verdict_heading(const VerdictFacts& facts, const std::vector<Judgement>& judgements) {
  if (!facts.error.empty()) return "failed, requirements not checked";
  const auto missed = count_of(judgements, Judgement::Verdict::not_met);
  if (missed == 0) {
    return count_of(judgements, Judgement::Verdict::unchecked) > 0 ? "requirements not checked"
                                                                   : "all requirements met";
  }
  return fmt::format("{} of {} requirements not met", missed, judgements.size());
}

}  // namespace

std::string verdict_markdown(const VerdictFacts& facts, const std::vector<Judgement>& judgements) {
  std::string text = fmt::format("{}{}: {}\n\n{}", kMarkdownMark, facts.command,
                                 verdict_heading(facts, judgements), markdown_text(facts.subject));
  if (!facts.baseline.empty()) text += ", baseline " + markdown_text(facts.baseline);
  text += "\n";
  if (!facts.error.empty()) text += "\nError: " + markdown_text(facts.error) + "\n";
  for (const std::string& warning : facts.warnings) {
    text += "\n**Warning**: " + markdown_text(warning) + "\n";
  }
  text += "\n| metric | asked | found | baseline | met |\n|---|---|---|---|---|\n";
  for (const Judgement& judgement : judgements) {
    text += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_text(judgement.requirement.name()),
                        markdown_text(asked_text(judgement)), or_dash(judgement.found),
                        or_dash(judgement.baseline), verdict_text(judgement));
  }
  // The same for all rows: the run was stopped, or the baseline refused.
  const auto unchecked =
      std::find_if(judgements.begin(), judgements.end(), [](const Judgement& each) {
        return each.verdict == Judgement::Verdict::unchecked && !each.reason.empty();
      });
  if (unchecked != judgements.end()) text += "\n" + markdown_text(unchecked->reason) + "\n";
  return text;
}

std::string xml_text(const std::string& text) {
  std::string out;
  const std::string whole = utf8_text(text);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const char c = whole[i];
    const bool is_control = static_cast<unsigned char>(c) < 0x20;
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\n' || c == '\t' || c == '\r') {
      // As they are, a reader would make them spaces in attributes.
      out += fmt::format("&#{};", static_cast<int>(c));
    } else if (is_control) {
      out += kReplacement;
    } else if (whole.compare(i, 3, "\xEF\xBF\xBE") == 0 ||
               whole.compare(i, 3, "\xEF\xBF\xBF") == 0) {
      // U+FFFE and U+FFFF.
      out += kReplacement;
      i += 2;
    } else {
      out += c;
    }
  }
  return out;
}

namespace {

/// The rest of a test case. Jenkins shows the attribute, GitLab the text.
std::string junit_outcome(const char* element, const std::string& reason) {
  return fmt::format(">\n      <{0} message=\"{1}\">{1}</{0}>\n    </testcase>\n", element,
                     xml_text(reason));
}

}  // namespace

std::string verdict_junit(const VerdictFacts& facts, const std::vector<Judgement>& judgements) {
  const bool has_error = !facts.error.empty();
  const auto n = static_cast<std::int64_t>(judgements.size());
  const std::string counts =
      fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"", n,
                  count_of(judgements, Judgement::Verdict::not_met), has_error ? n : 0,
                  has_error ? 0 : count_of(judgements, Judgement::Verdict::unchecked));
  std::string text = fmt::format("{}{}\" {}>\n", kJUnitMark, facts.command, counts);
  text += fmt::format("  <testsuite name=\"dpt {}\" {}>\n", facts.command, counts);
  text += fmt::format("    <properties>\n      <property name=\"subject\" value=\"{}\"/>\n",
                      xml_text(facts.subject));
  if (!facts.baseline.empty()) {
    text +=
        fmt::format("      <property name=\"baseline\" value=\"{}\"/>\n", xml_text(facts.baseline));
  }
  for (const std::string& warning : facts.warnings) {
    text += fmt::format("      <property name=\"warning\" value=\"{}\"/>\n", xml_text(warning));
  }
  text += "    </properties>\n";
  for (const Judgement& judgement : judgements) {
    text += fmt::format("    <testcase classname=\"dpt.{}\" name=\"{}\"", facts.command,
                        xml_text(judgement.requirement.text));
    if (has_error) {
      text += junit_outcome("error", facts.error);
    } else if (judgement.verdict == Judgement::Verdict::met) {
      text += fmt::format(">\n      <system-out>{}</system-out>\n    </testcase>\n",
                          xml_text("the value is " + judgement.found));
    } else {
      text +=
          junit_outcome(judgement.verdict == Judgement::Verdict::not_met ? "failure" : "skipped",
                        judgement.reason);
    }
  }
  return text + "  </testsuite>\n</testsuites>\n";
}

}  // namespace dpt
