#include "engine/downloads/refusals.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr const char* kByHand =
    "On a machine without access, download the file elsewhere and give its path";

/// Returns the hub's explanation of an error, without control characters.
std::string said_by(const HttpAnswer& answer) {
  constexpr std::size_t kMax = 200;
  std::string text = answer.first_header("x-error-message").substr(0, kMax);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c == '\x7f'; }, '?');
  return text.empty() ? text : fmt::format(" (\"{}\")", text);
}

std::string advice_on_status(const RemoteFile& file, long status, bool has_token) {
  const std::string token =
      !file.is_of_hub ? "dpt sends no password or token to servers other than the hub"
      : has_token     ? "HF_TOKEN is set and was sent: has its owner been granted access?"
                  : "For a private or gated repository, set HF_TOKEN to a token that may read it";
  switch (status) {
    case 401:
    case 403:
      return fmt::format("the file is private, or its name is misspelled. {}", token);
    case 404:
      return file.is_of_hub ? fmt::format(
                                  "no such repository, revision or file, or it is private. "
                                  "Check the name. {}",
                                  token)
                            : "there is no such file. Check the URL";
    case 416:
      return "the server does not have that many bytes: its file has changed. Start again";
    case 429:
      return "too many requests. Wait a few minutes and start again";
    default:
      return status >= 500  ? "the server is at fault. Start again later"
             : status < 400 ? "the server did not send a file. Check the URL"
                            : "check the URL";
  }
}

std::string kept_text(const std::optional<DownloadState>& state) {
  if (!state || state->size == 0) return {};
  return fmt::format(
      " after {}{} bytes; {}", state->size,
      state->total ? fmt::format(" of {}", *state->total) : "",
      state->can_continue
          ? "they are kept, and the same command continues the download"
          : "the server cannot continue a download, so the same command starts over");
}

}  // namespace

std::string size_text(std::optional<std::uint64_t> bytes) {
  if (!bytes) return {};
  return fmt::format(" ({:.1f} MB)", static_cast<double>(*bytes) / 1e6);
}

std::string problem_of(const HttpAnswer& answer) {
  const std::string server = origin_of(answer.url);
  if (!answer.failure) return fmt::format("{} answered {}", server, answer.status);
  if (answer.failure->is_timeout) {
    return fmt::format("{} does not answer ({})", server, answer.failure->what);
  }
  return fmt::format("the connection to {} failed ({})", server, answer.failure->what);
}

void refuse_answer(const RemoteFile& file, const HttpAnswer& answer, bool has_token,
                   const std::optional<DownloadState>& state) {
  const std::string problem =
      fmt::format("{}: cannot download it: {}{}", file.name, problem_of(answer), said_by(answer));
  const std::string kept = kept_text(state);
  if (!answer.failure) {
    fail(ErrorKind::data, "{} for {}{}: {}", problem, answer.url.substr(0, answer.url.find('?')),
         kept, advice_on_status(file, answer.status, has_token));
  }
  const std::string head = problem + kept;
  if (answer.failure->is_untrusted) {
    fail(ErrorKind::data,
         "{}: the server's certificate is not trusted. If the server or a proxy uses a private "
         "certificate authority, set SSL_CERT_FILE to a file with that authority's certificate",
         head);
  }
  fail(ErrorKind::data, "{}. Check the network and, behind a proxy, the variable https_proxy. {}",
       head, kByHand);
}

void refuse_offline(const std::string& name, const std::string& folder) {
  fail(ErrorKind::data,
       "{}: HF_HUB_OFFLINE is set, and {} does not have the file: unset it for the first start. {}",
       name, folder, kByHand);
}

}  // namespace dpt
