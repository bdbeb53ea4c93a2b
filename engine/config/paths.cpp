#include "engine/config/paths.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "engine/config/secrets.h"

namespace dpt {
namespace {

constexpr int kMaxDefaults = 16;  ///< maximum nesting of variables in defaults of variables

bool is_variable_name(std::string_view name) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
  for (const char c : name) {
    const bool is_word =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (!is_word) return false;
  }
  return true;
}

/// Returns true for "https://..." and other schemes.
bool is_url(std::string_view text) {
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) return false;
  return text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789+.-") == colon;
}

std::string normal_path(const std::string& path) {
  std::string normal = std::filesystem::path(path).lexically_normal().string();
  while (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

/// Expansion of a text in two versions: one has the values of secret variables, the other their
/// names.
class Expansion {
 public:
  explicit Expansion(std::string_view text) : text_(text) {}

  ExpandedPath expand() {
    read(0, true, std::string_view::npos);
    end_literal();
    if (!has_secret_) result_.stored.clear();
    return std::move(result_);
  }

 private:
  /// Reads up to the '}' that ends the variable at `opened`, or to the end of the text if `opened`
  /// is npos. If not `is_used`, only checks the text. Returns false if there is a problem.
  bool read(int depth, bool is_used, std::size_t opened) {
    while (at_ < text_.size()) {
      const std::string_view rest = text_.substr(at_);
      if (opened != std::string_view::npos && rest[0] == '}') return true;
      if (rest.starts_with("$${")) {
        if (is_used) add("${");
        at_ += 3;
      } else if (rest.starts_with("${")) {
        if (!variable(depth, is_used)) return false;
      } else {
        if (is_used) add(rest.substr(0, 1));
        ++at_;
      }
    }
    return opened == std::string_view::npos || no_end();
  }

  bool variable(int depth, bool is_used) {
    const std::size_t begin = at_;
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return no_end();
    const std::size_t colon = text_.substr(0, end).find(":-", at_);
    const bool has_default = colon != std::string_view::npos;
    const std::string name(text_.substr(at_ + 2, (has_default ? colon : end) - at_ - 2));
    if (!is_variable_name(name)) {
      result_.problem = fmt::format("expected ${{NAME}} or ${{NAME:-default}}, found '{}'",
                                    text_.substr(begin, end + 1 - begin));
      return false;
    }
    const char* value = std::getenv(name.c_str());
    const bool is_set = value != nullptr && *value != '\0';
    if (is_used && is_set) add_variable(name, value);
    if (is_used && !is_set && !has_default) {
      result_.is_unset = true;
      result_.problem = fmt::format(
          "the environment variable {} is not set: set it, or give a default as in "
          "${{{}:-folder}}",
          name, name);
      return false;
    }
    if (is_used && !is_set && result_.defaulted.empty()) result_.defaulted = name;
    at_ = has_default ? colon + 2 : end;
    if (has_default) {
      if (depth == kMaxDefaults) {
        result_.problem =
            fmt::format("expected at most {} nested defaults, found more", kMaxDefaults);
        return false;
      }
      if (!read(depth + 1, is_used && !is_set, begin)) return false;
    }
    ++at_;
    return true;
  }

  bool no_end() {
    result_.problem = "expected '}' after '${'";
    return false;
  }

  void add(std::string_view part) {
    result_.path += part;
    literal_ += part;
  }

  void add_variable(const std::string& name, const std::string& value) {
    if (!is_secret_name(name) && !has_url_login(value)) return add(value);
    const std::string shown = fmt::format("${{{}}}", name);
    remember_secret(value, shown);
    remember_secret(normal_path(value), shown);
    result_.path += value;
    end_literal();
    result_.stored += shown;
    has_secret_ = true;
  }

  void end_literal() {
    result_.stored += escape_variables(literal_);
    literal_.clear();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  ExpandedPath result_;
  std::string literal_;  ///< end of `stored`, not escaped yet
  bool has_secret_ = false;
};

/// Replaces a leading "~/" of `path` by $HOME, or returns why it cannot.
std::string home_of(std::string& path) {
  if (path.empty() || path[0] != '~') return {};
  if (path.size() > 1 && path[1] != '/') {
    const std::string name = path.substr(0, path.find('/'));
    return fmt::format(
        "expected a path, found one that begins with '{}': only ~/ is expanded, to the home folder "
        "of this user; write the folder out, or ./{} for a name that begins with '~'",
        name, name);
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    return "the environment variable HOME, which '~/' stands for, is not set: write the folder out";
  }
  path.replace(0, 1, home);
  return {};
}

/// Returns the reason why a field that accepts files on servers rejects this URL; empty if the
/// field accepts it.
std::string problem_of_url(const std::string& url) {
  const std::string scheme = url.substr(0, url.find("://"));
  if (!is_remote(url)) {
    return fmt::format("expected a path, https:// or hf://, found {}://{}", scheme,
                       scheme == "http" ? ": its content could be altered in transit" : "");
  }
  if (!has_url_login(url)) return {};
  return "expected a URL without user and password, which dpt would store, found one with them: "
         "HF_TOKEN gives access to private repositories of the hub (hf://)";
}

/// Returns an error message if `text` begins with $NAME, which only a shell would expand, and that
/// variable exists; otherwise an empty string.
std::string shell_variable_problem(const std::string& text) {
  if (text.size() < 2 || text[0] != '$' || text[1] == '{') return {};
  const std::string name = text.substr(1, text.find('/') - 1);
  if (!is_variable_name(name) || std::getenv(name.c_str()) == nullptr) return {};
  return fmt::format(
      "expected a path, found one that begins with '${0}': a variable is written ${{{0}}}; write "
      "./${0} for a name that begins with '$'",
      name);
}

void finish(ExpandedPath& result, bool takes_url) {
  if (!result.problem.empty()) return;
  if (is_url(result.path)) {
    result.problem =
        takes_url ? problem_of_url(result.path)
                  : "expected a path on this machine, found a URL: dpt reads and writes files";
    return;
  }
  const bool is_stored_too = result.stored.starts_with('~');
  result.problem = home_of(result.path);
  if (is_stored_too && result.problem.empty()) home_of(result.stored);
}

}  // namespace

bool is_remote(std::string_view text) {
  return text.starts_with("https://") || text.starts_with("hf://");
}

ExpandedPath expand_variables(const std::string& text, bool takes_url) {
  ExpandedPath result = Expansion(text).expand();
  if (result.problem.empty()) result.problem = shell_variable_problem(text);
  finish(result, takes_url);
  return result;
}

ExpandedPath expand_home(const std::string& text, bool takes_url) {
  ExpandedPath result;
  result.path = text;
  // Leave the variables in a KEY=VALUE to the reader of configs, and refuse variables in any other
  // text.
  if (has_variable(text) && text.find('=') > text.find("${")) {
    result.problem = fmt::format(
        "variables are not expanded in options: let the shell expand those of '{}' (no single "
        "quotes)",
        text);
    return result;
  }
  finish(result, takes_url);
  return result;
}

namespace {

/// Paths and the unset variables whose defaults they use. Guarded by a mutex, because threads may
/// read configs concurrently.
struct DefaultedPaths {
  std::mutex mutex;
  std::map<std::string, std::string> variables;
};
DefaultedPaths& defaulted_paths() {
  static DefaultedPaths paths;
  return paths;
}

}  // namespace

void remember_defaulted(const std::string& path, const std::string& variable) {
  DefaultedPaths& paths = defaulted_paths();
  const std::lock_guard lock(paths.mutex);
  paths.variables[path] = variable;
}

std::string defaulted_variable(const std::string& path) {
  DefaultedPaths& paths = defaulted_paths();
  const std::lock_guard lock(paths.mutex);
  const auto found = paths.variables.find(path);
  return found == paths.variables.end() ? std::string() : found->second;
}

std::string hint_of_default(const std::string& path) {
  const std::string variable = defaulted_variable(path);
  if (variable.empty()) return {};
  return fmt::format(
      "; {} is not set, so this is the config's default: set it to the folder of your data sets",
      variable);
}

std::string escape_variables(const std::string& path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path.compare(i, 2, "${") == 0) out += '$';
    out += path[i];
  }
  return out;
}

bool has_variable(std::string_view text) {
  for (std::size_t at = text.find("${"); at != std::string_view::npos;
       at = text.find("${", at + 2)) {
    if (at == 0 || text[at - 1] != '$') return true;
  }
  return false;
}

std::string unescape_text(std::string text) {
  for (std::size_t at = text.find("$${"); at != std::string::npos; at = text.find("$${", at + 2)) {
    text.erase(at, 1);
  }
  return text;
}

bool is_stream(const std::string& file) {
  const std::string path = std::filesystem::path(file).lexically_normal().string();
  return path.starts_with("/dev/") || path.starts_with("/proc/");
}

std::string folder_of_config(const std::string& file) {
  return is_stream(file) ? std::string() : std::filesystem::path(file).parent_path().string();
}

std::string resolve_path(const std::string& path, const std::string& file) {
  if (path.empty() || is_remote(path)) return path;
  namespace fs = std::filesystem;
  return fs::absolute(fs::path(folder_of_config(file)) / path).lexically_normal().string();
}

}  // namespace dpt
