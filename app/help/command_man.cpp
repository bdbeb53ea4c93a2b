// dpt man FOLDER --prose FOLDER [--markdown]: writes manual pages, for the build of dpt and its
// documentation. SOURCE_DATE_EPOCH, if set, is the date of the pages, for reproducible packages.
#include "app/help/command_man.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "app/help/manual.h"
#include "app/help/reference_pages.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

namespace fs = std::filesystem;

std::string page_date() {
  const char* const epoch = std::getenv("SOURCE_DATE_EPOCH");
  std::time_t seconds = std::time(nullptr);
  if (epoch && *epoch != '\0') {
    char* end = nullptr;
    seconds = std::strtoll(epoch, &end, 10);
    if (*end != '\0' || seconds < 0) {
      fail(ErrorKind::usage, "SOURCE_DATE_EPOCH: expected seconds since 1970, found '{}'", epoch);
    }
  }
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(seconds));
}

/// Returns the prose of a page; empty if a command has no such file.
std::string prose_of(const fs::path& file) {
  if (!fs::exists(file)) return "";
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    fail(ErrorKind::data, "{}: cannot be read", file.string());
  }
  return text.str();
}

void write_page(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(ErrorKind::data, "{}: cannot be written", file.string());
}

/// Throws if a file of prose has no command, for example because the command was renamed.
void check_no_others(const fs::path& folder, const std::set<std::string>& names) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!names.contains(entry.path().filename().string())) {
      fail(ErrorKind::data, "{}: no command of dpt has a page of this name", entry.path().string());
    }
  }
}

}  // namespace

int run_man(const ManOptions& options, const Command& root) {
  const fs::path folder = options.folder, prose = options.prose;
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder)) {
    fail(ErrorKind::data, "{}: expected a folder to write manual pages into: {}", folder.string(),
         error ? error.message() : "it is a file");
  }
  if (!fs::is_directory(prose)) {
    fail(ErrorKind::data, "--prose {}: expected a folder, found none", prose.string());
  }
  if (options.markdown) {
    const auto prose_for = [&](const Command& command) {
      return prose_of(prose / (page_name(command) + ".roff"));
    };
    write_page(folder / "commands.md", commands_page(root, prose_for));
    write_page(folder / "exit-codes.md", exit_codes_page());
    return 0;
  }
  const std::string date = page_date();
  std::set<std::string> names;
  for (const Command* command : shown_commands(root)) {
    const std::string name = page_name(*command);
    names.insert(name + ".roff");
    write_page(folder / (name + ".1"),
               manual_page(root, *command, prose_of(prose / (name + ".roff")), date));
  }
  check_no_others(prose, names);
  return 0;
}

}  // namespace dpt
