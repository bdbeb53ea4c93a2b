#include "engine/config/secrets.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>

#include "engine/config/scalars.h"

namespace dpt {
namespace {

constexpr std::array<std::string_view, 4> kSecretWords = {"token", "password", "secret", "key"};
constexpr std::size_t kMinSecret = 4;
/// Minimum length of a value that is hidden anywhere in a text. Shorter values are hidden only as a
/// whole part of a path or after a '=': "train" may be the value of a secret variable, but every
/// log contains that word.
constexpr std::size_t kMinAnywhere = 8;

/// Remembered secrets. Nothing is removed, because a process reads its environment and arguments
/// once.
struct Memory {
  std::mutex mutex;
  std::map<std::string, std::string> shown;  ///< value -> text shown in its place
  std::atomic<bool> has_values = false;
};

Memory& memory() {
  static Memory all;
  return all;
}

bool is_word_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Returns the part of an override's path that names the setting, without names that the user has
/// given to layers and tensors.
std::string_view name_of_override(std::string_view path) {
  const bool has_given_names = path.starts_with("model.") || path.starts_with("weights.map.");
  return has_given_names ? path.substr(path.rfind('.') + 1) : path;
}

/// Returns the position in a word at which a value with a secret name begins; nothing if the word
/// has none.
std::optional<std::size_t> secret_in(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const std::string_view name = std::string_view(word).substr(0, equals);
  const bool is_secret =
      name[0] == '-' ? is_secret_name(name) : is_secret_name(name_of_override(name));
  return is_secret ? std::optional(equals + 1) : std::nullopt;
}

/// Returns true if the word is an option that has a secret name and takes the next word as its
/// value.
bool is_open_option(const std::string& word) {
  return word.starts_with("--") && word.find('=') == std::string::npos && is_secret_name(word);
}

/// Calls `secret(word, begin)` for each word with a secret value. The value begins at `begin`.
template <class Words, class Secret>
void visit_secrets(Words& words, Secret secret) {
  bool is_value = false;
  for (auto& word : words) {
    if (is_value && !word.starts_with("--")) {
      secret(word, std::size_t{0});
    } else if (const auto begin = secret_in(word)) {
      secret(word, *begin);
    }
    is_value = is_open_option(word);
  }
}

/// User and password of the first URL at or after a position: [begin, end), with end at the '@'.
struct Login {
  std::size_t begin = std::string::npos, end = std::string::npos;
  explicit operator bool() const { return begin != std::string::npos; }
};

Login find_login(std::string_view text, std::size_t from) {
  for (std::size_t at = text.find(":/", from); at != std::string_view::npos;
       at = text.find(":/", at + 1)) {
    if (at == 0 || !is_word_letter(text[at - 1])) continue;
    const bool is_url = text.substr(at, 3) == "://";
    const std::size_t begin = at + (is_url ? 3 : 2);
    const std::size_t end = std::min(text.find_first_of("/?#'\"` \t\n", begin), text.size());
    const std::size_t mark = text.substr(0, end).rfind('@');
    if (mark == std::string_view::npos || mark <= begin) continue;
    // Text with one slash may be a URL that was normalised as a path, or "host:/a@b".
    if (is_url || text.substr(begin, mark - begin).find(':') != std::string_view::npos) {
      return {begin, mark};
    }
  }
  return {};
}

/// Returns true if the text from `at` to `end` is a whole part of a path, or the whole value of an
/// assignment.
bool is_whole_value(const std::string& text, std::size_t at, std::size_t end) {
  const char before = at == 0 ? ' ' : text[at - 1], after = end == text.size() ? ' ' : text[end];
  if (is_word_letter(before) || is_word_letter(after)) return false;
  return before == '/' || before == '=' || after == '/';
}

std::string replace_all(std::string text, const std::string& value, const std::string& shown) {
  for (std::size_t at = text.find(value); at != std::string::npos; at = text.find(value, at)) {
    const std::size_t end = at + value.size();
    if (value.size() < kMinAnywhere && !is_whole_value(text, at, end)) {
      ++at;
      continue;
    }
    text.replace(at, value.size(), shown);
    at += shown.size();
  }
  return text;
}

}  // namespace

bool is_secret_name(std::string_view name) {
  if (name == "weights.key") return false;  // the name of a dictionary in a file
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("_-."), name.size());
    const std::string word = lower_case(std::string(name.substr(0, end)));
    if (std::find(kSecretWords.begin(), kSecretWords.end(), word) != kSecretWords.end()) {
      return true;
    }
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return false;
}

bool has_url_login(std::string_view text) {
  return static_cast<bool>(find_login(text, 0));
}

std::vector<std::string> without_secrets(const std::vector<std::string>& words) {
  std::vector<std::string> shown = words;
  visit_secrets(shown, [](std::string& word, std::size_t begin) {
    word.replace(begin, std::string::npos, kHidden);
  });
  for (std::string& word : shown) word = hide_secrets(std::move(word));
  return shown;
}

void remember_secret(const std::string& value, const std::string& shown) {
  if (value.size() < kMinSecret) return;
  Memory& all = memory();
  const std::lock_guard lock(all.mutex);
  all.shown.emplace(value, shown);
  all.has_values = true;
}

void remember_secrets_of(const std::vector<std::string>& words) {
  visit_secrets(words, [](const std::string& word, std::size_t begin) {
    remember_secret(word.substr(begin));
  });
}

std::string hide_secrets(std::string text) {
  for (Login login = find_login(text, 0); login; login = find_login(text, login.begin + 4)) {
    text.replace(login.begin, login.end - login.begin, kHidden);
  }
  Memory& all = memory();
  if (!all.has_values) return text;
  const std::lock_guard lock(all.mutex);
  // Replace longer values first, because a secret may be the beginning of another one.
  std::vector<std::pair<std::string, std::string>> values(all.shown.begin(), all.shown.end());
  std::stable_sort(values.begin(), values.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  for (const auto& [value, shown] : values) text = replace_all(std::move(text), value, shown);
  return text;
}

}  // namespace dpt
