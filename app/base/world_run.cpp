#include "app/base/world_run.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/process_options.h"
#include "engine/config/secrets.h"
#include "engine/processes/control_types.h"
#include "engine/processes/detect_world.h"
#include "engine/processes/facts.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/secret.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/text.h"

namespace dpt {

namespace {

bool is_of_process(const std::string& override) {
  const std::string field = override.substr(0, override.find('='));
  const std::vector<std::string>& fields = fields_of_process();
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

std::string digest(const std::string& text) {
  constexpr std::size_t kDigits = 32;
  return hexadecimal(hmac_sha256("", text)).substr(0, kDigits);
}

/// Returns the digest of a small regular file. Returns an empty string for anything else, because a
/// pipe can be read only once.
std::string digest_of_file(const std::string& path) {
  constexpr std::uintmax_t kMaxConfig = 16 << 20;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) > kMaxConfig) {
    return {};
  }
  try {
    return digest(read_whole_file(path));
  } catch (const Error&) {
    return {};  // the command reports the error
  }
}

/// Returns the last value of an option among the words, or null. The value of a word OPTION=VALUE
/// is copied into `place`, to which the result then points.
const std::string* value_in(const std::vector<std::string>& words, const std::string& option,
                            std::string& place) {
  const std::string* value = nullptr;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind(option + "=", 0) == 0) {
      place = words[i].substr(option.size() + 1);
      value = &place;
    } else if (words[i] == option && i + 1 < words.size()) {
      value = &words[i + 1];
    }
  }
  return value;
}

int number_in(const std::vector<std::string>& words, const std::string& option) {
  std::string place;
  const std::string* value = value_in(words, option, place);
  int number = -1;
  if (value) std::from_chars(value->data(), value->data() + value->size(), number);
  return number;
}

/// Returns the identity that a run with these words would have if they were valid.
RunIdentity identity_in(const std::vector<std::string>& words) {
  const std::string& command = words[1];
  std::string target;
  std::vector<std::string> overrides;
  for (std::size_t i = 2; i < words.size(); ++i) {
    std::error_code ignored;
    if (target.empty() && std::filesystem::is_regular_file(words[i], ignored)) target = words[i];
    const bool is_override = words[i][0] != '-' && words[i].find('=') != std::string::npos;
    if (is_override && command != "predict") overrides.push_back(words[i]);
  }
  return identity_of(command, target.empty() && words.size() > 2 ? words[2] : target, overrides);
}

ProcessGroup::Options group_options_of(const std::string& join_timeout, const RunIdentity& run) {
  ProcessGroup::Options options;
  options.run = run;
  options.join_timeout = std::chrono::seconds(duration_of("--join-timeout", join_timeout));
  return options;
}

}  // namespace

RunIdentity identity_of(const std::string& command, const std::string& target,
                        const std::vector<std::string>& overrides) {
  constexpr std::size_t kLongestTitle = 200;
  std::string options = command;
  std::vector<std::string> sorted = overrides;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& each : sorted) {
    if (!is_of_process(each)) options += '\n' + each;
  }
  std::error_code error;
  const std::string path = std::filesystem::absolute(target, error).lexically_normal().string();
  const std::string title = printable(hide_secrets(command + " " + (error ? target : path)));
  return {title.substr(0, kLongestTitle), digest(options), digest(path), digest_of_file(target)};
}

void report_wrong_words(const std::vector<std::string>& words, const std::string& problem) {
  constexpr std::array kCommands = {"train", "eval", "predict"};
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (words.size() < 2 || has("") ||
      std::find(kCommands.begin(), kCommands.end(), words[1]) == kCommands.end() ||
      has("--smoke")) {
    return;
  }
  std::string place;
  // A launcher (--nproc) has no processes to inform, because it has not started any yet.
  if (value_in(words, "--nproc", place) && !std::getenv("DPT_RANK")) return;
  try {
    WorldFlags flags;
    flags.rank = number_in(words, "--rank");
    flags.size = number_in(words, "--world-size");
    if (const std::string* value = value_in(words, "--coordinator", place)) {
      flags.coordinator = *value;
    }
    const World world = detect_world(flags);
    if (world.alone()) return;
    const std::string* timeout = value_in(words, "--join-timeout", place);
    ProcessGroup::report_failed_start(
        world,
        group_options_of(timeout ? *timeout : ProcessOptions().join_timeout, identity_in(words)),
        problem, ErrorKind::usage);
  } catch (const Error&) {
    // The words do not tell which process this is.
  }
}

int run_in_world(const ProcessOptions& options, const RunIdentity& run,
                 const std::function<int(ProcessGroup*)>& body) {
  const World world = detect_world(options.flags);
  if (world.alone()) {
    check_stop();
    return body(nullptr);
  }
  ProcessGroup::Options group_options = group_options_of(options.join_timeout, run);
  group_options.warn = [](const std::string& text) { say(text); };
  group_options.end_process = [](const std::string& text, int exit_code) {
    // Write directly, with a time limit: the thread that hangs may hold the lock of the stream.
    const std::string line = fmt::format("dpt: error: {}\n", text);
    pollfd messages = {2, POLLOUT, 0};
    [[maybe_unused]] ssize_t written = 0;
    if (poll(&messages, 1, 100) == 1) written = write(2, line.data(), line.size());
    _exit(exit_code);
  };
  ProcessGroup processes(world, group_options);
  return processes.guard([&] {
    const int code = body(&processes);
    processes.leave();
    return code;
  });
}

}  // namespace dpt
