#include "engine/downloads/remote_file.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "kernels/base/error.h"

namespace dpt {
namespace {

constexpr std::string_view kHub = "hf://";
constexpr std::string_view kHttps = "https://";
constexpr std::string_view kForm = "hf://OWNER/REPO[@REVISION][/FILE]";

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

/// Returns `text` with every byte that a URL may not contain written as %XX.
std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_plain(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = path.find('/', begin);
    parts.push_back(path.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

/// Returns a name under which a file is stored on this machine.
std::string local_name(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !is_plain(c); }, '_');
  const std::size_t first = out.find_first_not_of('.');
  return first == std::string::npos ? "weights" : out.substr(first).substr(0, 100);
}

std::string hub_endpoint() {
  const char* value = std::getenv("HF_ENDPOINT");
  std::string endpoint = value && *value ? value : "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!endpoint.starts_with(kHttps) || endpoint.size() == kHttps.size()) {
    fail(ErrorKind::usage, "HF_ENDPOINT: expected a URL that begins with https://, found '{}'",
         endpoint);
  }
  return endpoint;
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 &&
         revision.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

[[noreturn]] void refuse(const std::string& name, const char* why) {
  fail(ErrorKind::usage, "{}: expected {}, such as hf://timm/resnet18.tv_in1k, found {}", name,
       kForm, why);
}

RemoteFile file_of_hub(const std::string& name) {
  const std::vector<std::string_view> parts = parts_of(std::string_view(name).substr(kHub.size()));
  if (parts.size() < 2) refuse(name, "no repository");
  const std::string_view owner = parts[0];
  const std::size_t at = parts[1].find('@');
  const std::string_view repo = parts[1].substr(0, at);
  const std::string_view revision = at == std::string_view::npos ? "main" : parts[1].substr(at + 1);
  for (const std::string_view part : {owner, repo, revision}) {
    if (part.empty() || part == "." || part == "..") refuse(name, "an empty part");
    // The revision refs/pr/1 is written refs%2Fpr%2F1.
    if (!std::all_of(part.begin(), part.end(), [](char c) { return is_plain(c) || c == '%'; })) {
      refuse(name, "a character other than letters, digits, '.', '_' and '-'");
    }
  }
  std::string path;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    if (parts[i].empty() || parts[i] == "." || parts[i] == "..") refuse(name, "an empty part");
    path += '/';
    path += percent_encoded(parts[i]);
  }
  if (path.empty()) path = "/model.safetensors";
  RemoteFile file;
  file.name = name;
  file.url = fmt::format("{}/{}/{}/resolve/{}{}", hub_endpoint(), owner, repo, revision, path);
  file.file_name = local_name(path.substr(path.rfind('/') + 1));
  file.is_of_hub = true;
  file.is_fixed = is_commit(revision);
  return file;
}

}  // namespace

RemoteFile remote_file_of(const std::string& name) {
  const bool is_printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c != '\x7f'; });
  if (!is_printable) {
    fail(ErrorKind::usage,
         "'{}': expected a URL of printable ASCII characters: write others as %XX", name);
  }
  if (name.starts_with(kHub)) return file_of_hub(name);
  if (!name.starts_with(kHttps)) {
    fail(ErrorKind::usage, "{}: expected https:// or hf:// at the beginning of a URL", name);
  }
  RemoteFile file;
  file.name = name;
  file.url = name.substr(0, name.find('#'));
  const std::string_view address = std::string_view(file.url).substr(kHttps.size());
  const std::string_view path = address.substr(0, address.find('?'));
  if (path.find('/') == std::string_view::npos || path.ends_with('/') || path.starts_with('/')) {
    fail(ErrorKind::usage, "{}: expected the URL of a file (https://HOST/PATH), found no file",
         name);
  }
  file.file_name = local_name(path.substr(path.rfind('/') + 1));
  return file;
}

std::string url_at_commit(const RemoteFile& file, const std::string& commit) {
  constexpr std::string_view kMark = "/resolve/";
  if (!file.is_of_hub || !is_commit(commit)) return file.url;
  const std::size_t begin = file.url.find(kMark) + kMark.size();
  return file.url.substr(0, begin) + commit + file.url.substr(file.url.find('/', begin));
}

std::string origin_of(const std::string& url) {
  std::string origin = url.substr(0, url.find_first_of("/?#", url.find("://") + 3));
  std::transform(origin.begin(), origin.end(), origin.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return origin;
}

}  // namespace dpt
