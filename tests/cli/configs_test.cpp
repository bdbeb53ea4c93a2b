// Shipped and generated files agree with the program: configs/*.yaml, docs/reference/config.md.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "app/base/catalog.h"
#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/reference.h"
#include "engine/config/schema.h"
#include "engine/config/show_spec.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "tests/cli/program.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

const std::filesystem::path kSource = source_dir();

std::vector<std::string> shipped_configs() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "configs")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("every shipped config reads without issues, and so does its shown form") {
  const std::vector<std::string> files = shipped_configs();
  CHECK(files.size() >= 3);
  for (const std::string& file : files) {
    const ReadResult result = read_spec(catalog(), file);
    for (const ConfigIssue& issue : result.issues) {
      FAIL_CHECK(issue.where.text() << ": " << issue.text);
    }
    if (!result.issues.empty()) continue;
    CHECK(make_plan(result.spec).param_count > 0);
    const std::string shown = show_spec(catalog(), result.spec);
    CHECK(show_spec(catalog(), load_spec_text(catalog(), shown, "/elsewhere/config.yaml")) ==
          shown);
  }
}

TEST_CASE("docs/reference/config.md is what dpt config reference prints") {
  const std::string page = read_file((kSource / "docs" / "reference" / "config.md").string());
  CHECK_MESSAGE(page == config_reference(catalog()),
                "run: dpt config reference > docs/reference/config.md");
}

TEST_CASE("docs/reference/config.schema.json is what dpt config schema prints") {
  const std::string file = (kSource / "docs" / "reference" / "config.schema.json").string();
  CHECK_MESSAGE(read_file(file) == config_schema(catalog()) + "\n",
                "run: dpt config schema > docs/reference/config.schema.json");
}

TEST_CASE("spoilt shipped configs never crash the reader or the planner") {
  std::mt19937 random(42);
  for (const std::string& file : shipped_configs()) {
    const std::string good = read_file(file);
    for (int round = 0; round < 300; ++round) {
      std::string text = good;
      const std::size_t at = random() % text.size();
      const std::size_t length = random() % 12;
      if (random() % 2) {
        text.erase(at, length);
      } else {
        text.insert(random() % text.size(), text.substr(at, length));
      }
      const ReadResult result = read_spec_text(catalog(), text, file);
      if (!result.issues.empty()) continue;
      try {
        make_plan(result.spec);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::usage);
      }
    }
  }
}
