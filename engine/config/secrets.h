// Secret names and values, and their removal from everything that dpt writes.
//
// Every command line, message and log line that dpt writes passes through one of the two functions
// `without_secrets` and `hide_secrets`. Paths keep working: a config stores `${VAR}` in place of
// the value of a secret variable (`stored_path`, stored_paths.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dpt {

/// Text shown in place of a secret.
inline constexpr const char* kHidden = "***";

/// Returns true if token, password, secret or key is a word of `name`, in upper or lower case.
/// Words are separated by '_', '-' and '.'.
bool is_secret_name(std::string_view name);

/// Returns true if the text has a URL with a user or password.
bool has_url_login(std::string_view text);

/// Returns the words of a command line, with *** for the values of options and overrides with
/// secret names (`--token x`, `--token=x`, `TOKEN=x`). Also hides everything that hide_secrets
/// hides. In an override of the model or of weights.map, only the last part of the path counts as
/// its name: the other parts are names that the user has given to layers and tensors.
std::vector<std::string> without_secrets(const std::vector<std::string>& words);

/// Makes hide_secrets write `shown` for `value` from now on. Ignores values of fewer than 4 bytes,
/// which are too common in texts. Thread-safe.
void remember_secret(const std::string& value, const std::string& shown = kHidden);
/// Calls remember_secret for each value that without_secrets would hide because of its name.
void remember_secrets_of(const std::vector<std::string>& words);

/// Returns a message without the remembered values, and with *** for user and password of URLs.
/// Thread-safe.
std::string hide_secrets(std::string text);

}  // namespace dpt
