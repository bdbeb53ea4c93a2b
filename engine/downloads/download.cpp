#include "engine/downloads/download.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/downloads/cache_folder.h"
#include "engine/downloads/http_request.h"
#include "engine/downloads/refusals.h"
#include "engine/downloads/remote_file.h"
#include "kernels/base/error.h"
#include "kernels/base/secret.h"
#include "kernels/base/sha256.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/user_cache.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Returns true if HF_HUB_OFFLINE has a value that huggingface_hub counts as true.
bool is_offline() {
  std::string value = variable("HF_HUB_OFFLINE");
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

/// Returns HF_TOKEN. Throws ErrorKind::usage if a header cannot contain it.
std::string hub_token() {
  std::string token = variable("HF_TOKEN");
  const bool is_fit =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c != '\x7f'; });
  if (!is_fit) {
    fail(ErrorKind::usage, "HF_TOKEN: expected printable characters without spaces, found others");
  }
  return token;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Description of a file that a server sends before the file itself.
struct Announcement {
  std::string url;     ///< address to request
  std::string etag;    ///< without quotes; empty = unknown or weak
  std::string sha256;  ///< empty = unknown
  std::optional<std::uint64_t> size;
};

/// Returns an ETag without its quotes. Empty for a weak ETag, because it does not identify bytes.
std::string plain_etag(std::string_view etag) {
  if (etag.starts_with("W/")) return {};
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') {
    etag = etag.substr(1, etag.size() - 2);
  }
  return std::string(etag);
}

Announcement announcement_of(const RemoteFile& file, const HttpAnswer& answer) {
  Announcement said;
  said.url = url_at_commit(file, answer.first_header("x-repo-commit"));
  const std::string linked = answer.first_header("x-linked-etag");
  said.etag = plain_etag(linked.empty() ? answer.header("etag") : linked);
  // An ETag of another server may look like a SHA-256 without being one.
  if (file.is_of_hub && is_sha256(said.etag)) said.sha256 = said.etag;
  const std::string size = answer.first_header("x-linked-size");
  said.size = number_in(size.empty() ? answer.header("content-length") : size);
  return said;
}

/// Download of one file into the folder.
class Download {
 public:
  Download(const RemoteFile& file, const DownloadOptions& options)
      : file_(file),
        options_(options),
        base_(fmt::format("{}/{}", options.folder, hexadecimal(sha256(file.url)).substr(0, 24))),
        token_(file.is_of_hub ? hub_token() : "") {}

  DownloadedFile get() {
    if (is_sha256(options_.sha256)) {
      if (auto kept = kept_file(options_.sha256, file_.file_name)) {
        return {*kept, file_.url, options_.sha256};
      }
    }
    std::error_code ignored;
    fs::create_directories(options_.folder, ignored);
    const CacheLock lock(base_ + ".lock", [&] {
      options_.note(fmt::format("waiting for another process to download {}", file_.name));
    });
    record_ = read_record(base_ + ".json");
    if (record_ && !kept_file(record_->sha256, record_->file_name)) record_.reset();
    if (record_ && file_.is_fixed) return recorded();
    if (is_offline()) {
      if (record_) return recorded();
      refuse_offline(file_.name, options_.folder);
    }
    const std::optional<Announcement> said = ask();
    if (!said) return recorded();
    if (record_ && is_same(*said)) return recorded();
    if (auto kept = kept_file(said->sha256, file_.file_name)) return keep(*said, said->sha256);
    if (!lock.is_held()) {
      make_cache_folder(options_.folder);
      fail(ErrorKind::data,
           "{}.lock: cannot open: {}. Make the folder writable, or set XDG_CACHE_HOME to another "
           "folder",
           base_, lock.problem());
    }
    return fetch(*said);
  }

 private:
  std::string path_of(const std::string& sha256, const std::string& name) const {
    return fmt::format("{}/{}/{}", options_.folder, sha256, name);
  }

  /// Returns the path of the file with this hash if the folder has an intact copy.
  std::optional<std::string> kept_file(const std::string& sha256, const std::string& name) const {
    if (!is_sha256(sha256)) return {};
    const std::string path = path_of(sha256, name);
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return {};
    if (sha256_of_file(path) == sha256) return path;
    options_.note(fmt::format("{} is damaged: downloading it again", path));
    return {};
  }

  DownloadedFile recorded() const {
    return {path_of(record_->sha256, record_->file_name), record_->url, record_->sha256};
  }

  bool is_same(const Announcement& said) const {
    if (!said.sha256.empty()) return said.sha256 == record_->sha256;
    return !said.etag.empty() && said.etag == record_->etag;
  }

  /// Returns the server's description of the file. Returns nothing if the server cannot be reached
  /// but the folder has the file.
  std::optional<Announcement> ask() {
    HttpRequest request;
    request.url = file_.url;
    request.head_only = true;
    request.token = token_;
    request.stall_seconds = options_.stall_seconds;
    const HttpAnswer answer = make_request(request, {});
    // Accept a redirect as an answer: the download itself follows it.
    const bool leads_on = !answer.failure && answer.status >= 301 && answer.status <= 308 &&
                          !answer.header("location").empty();
    if (answer.is_good() || leads_on) return announcement_of(file_, answer);
    const bool is_unreachable = answer.failure || answer.status >= 500;
    if (is_unreachable && record_) {
      options_.note(fmt::format("{}; using the copy of {} that was downloaded earlier",
                                problem_of(answer), file_.name));
      return {};
    }
    // Some servers refuse HEAD but answer GET.
    const bool may_get = !file_.is_of_hub && !answer.failure &&
                         (answer.status == 403 || answer.status == 405 || answer.status == 501);
    if (may_get) return Announcement{file_.url, {}, {}, {}};
    refuse_answer(file_, answer, !token_.empty());
  }

  /// Records a file in the folder as the content of the URL.
  DownloadedFile keep(const Announcement& said, const std::string& sha256) {
    const std::string path = path_of(sha256, file_.file_name);
    FileRecord record;
    record.name = file_.name;
    record.url = said.url;
    record.etag = said.etag;
    record.sha256 = sha256;
    record.file_name = file_.file_name;
    std::error_code ignored;
    record.size = fs::file_size(path, ignored);
    try {
      write_record(base_ + ".json", record);
    } catch (const Error& error) {
      options_.note(error.what());  // not fatal: the file exists, and a later start asks again
    }
    return {path, said.url, sha256};
  }

  /// Returns true if the unfinished download is of the announced file.
  bool can_continue(const Announcement& said) const {
    if (said.etag.empty()) return false;
    const auto part = read_record(base_ + ".part.json");
    return part && part->etag == said.etag;
  }

  DownloadedFile fetch(const Announcement& said) {
    constexpr int kMaxTries = 5;
    const bool continues = can_continue(said);
    PartFile part(base_ + ".part", continues);
    if (said.size && part.size() > *said.size) part.clear();
    if (!said.etag.empty()) {
      FileRecord record;
      record.name = file_.name;
      record.url = said.url;
      record.etag = said.etag;
      write_record(base_ + ".part.json", record);
    }
    options_.note(part.size() == 0 ? fmt::format("downloading {}{} to {}", said.url,
                                                 size_text(said.size), options_.folder)
                                   : fmt::format("continuing the download of {}{} at byte {}",
                                                 said.url, size_text(said.size), part.size()));
    for (int tries = 1; !said.size || part.size() < *said.size; ++tries) {
      const std::uint64_t before = part.size();
      const HttpAnswer answer = get_part(said, part);
      if (answer.is_good()) break;
      const bool may_retry = answer.failure && !answer.failure->is_timeout &&
                             !answer.failure->is_untrusted && part.size() > before;
      if (answer.status == 416) discard();  // the server's file is shorter than the part
      if (!may_retry || tries == kMaxTries) {
        refuse_answer(
            file_, answer, !token_.empty(),
            DownloadState{part.size(), said.size, !said.etag.empty() && answer.status != 416});
      }
      if (said.etag.empty()) part.clear();
    }
    return accept(said, part);
  }

  HttpAnswer get_part(const Announcement& said, PartFile& part) {
    HttpRequest request;
    request.url = said.url;
    request.token = token_;
    request.offset = part.size();
    request.stall_seconds = options_.stall_seconds;
    // The storage to which the hub redirects has ETags of its own. A file with a known SHA-256 is
    // verified at the end instead.
    if (said.sha256.empty()) request.if_range = fmt::format("\"{}\"", said.etag);
    BodySink sink;
    sink.begin = [&](const HttpAnswer& answer) { check_begin(answer, said, part); };
    sink.add = [&](std::string_view bytes) {
      if (said.size && part.size() + bytes.size() > *said.size) {
        discard();
        fail(ErrorKind::data,
             "{}: expected {} bytes, as the server announced, found more: the server or a proxy is "
             "at fault. The download was removed",
             said.url, *said.size);
      }
      part.add(bytes);
      options_.progress(part.size(), said.size.value_or(0));
    };
    return make_request(request, sink);
  }

  /// Checks that the server begins at the requested offset.
  void check_begin(const HttpAnswer& answer, const Announcement& said, PartFile& part) {
    if (part.size() == 0 && answer.status == 200) return;
    if (answer.status == 200) {
      options_.note("the server restarts the download at the first byte");
      part.clear();
      return;
    }
    const std::string range = answer.header("content-range");  // "bytes 100-199/200"
    const std::string expected = fmt::format("bytes {}-", part.size());
    const bool has_size =
        !said.size || range.ends_with(fmt::format("/{}", *said.size)) || range.ends_with("/*");
    if (range.starts_with(expected) && has_size) return;
    discard();
    fail(ErrorKind::data,
         "{}: expected a response that begins at byte {} of {}, found Content-Range '{}'. The "
         "unfinished download was removed: start again",
         said.url, part.size(), said.size ? fmt::format("{}", *said.size) : "the file", range);
  }

  void discard() const {
    std::error_code ignored;
    fs::remove(base_ + ".part", ignored);
    fs::remove(base_ + ".part.json", ignored);
  }

  /// Verifies a complete download and gives it its final name.
  DownloadedFile accept(const Announcement& said, PartFile& part) {
    const std::uint64_t size = part.size();
    if (said.size && size != *said.size) {
      discard();
      fail(ErrorKind::data,
           "{}: the server announced {} bytes, but its response ended normally after {}: the "
           "server or a proxy is at fault. The download was removed",
           said.url, *said.size, size);
    }
    const std::string sha256 = part.finish();
    if (!said.sha256.empty() && sha256 != said.sha256) {
      discard();
      fail(ErrorKind::data,
           "{}: expected the SHA-256 {}, as the server announced, found {} ({} bytes): the content "
           "was changed on the way, or the server is at fault. The download was removed: start "
           "again",
           said.url, said.sha256, sha256, size);
    }
    make_cache_folder(fmt::format("{}/{}", options_.folder, sha256));
    move_into_place(base_ + ".part", path_of(sha256, file_.file_name));
    discard();
    return keep(said, sha256);
  }

  const RemoteFile& file_;
  const DownloadOptions& options_;
  const std::string base_;  ///< path of the files of this URL, without suffix
  const std::string token_;
  std::optional<FileRecord> record_;  ///< record of an earlier download, if it still exists
};

}  // namespace

std::string weights_folder() {
  std::string folder = user_cache_path("weights");
  if (!folder.empty()) return folder;
  fail(ErrorKind::data,
       "there is no folder for downloaded weights: {}. Set one of them to an absolute path",
       no_user_cache_text());
}

DownloadedFile download(const std::string& name, const DownloadOptions& options) {
  const RemoteFile file = remote_file_of(name);
  DownloadedFile found = Download(file, options).get();
  if (options.sha256.empty() || found.sha256 == options.sha256) return found;
  fail(ErrorKind::data,
       "{}: expected the SHA-256 {} (weights.sha256), found {} ({}): the file on the server has "
       "changed. Give the intended revision (hf://OWNER/REPO@REVISION), or remove weights.sha256",
       name, options.sha256, found.sha256, found.url);
}

std::string sha256_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(ErrorKind::data, "{}: cannot open: {}", path, std::strerror(errno));
  Sha256 hash;
  std::vector<char> buffer(std::size_t{1} << 20);
  while (in) {
    check_stop();
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.add({buffer.data(), static_cast<std::size_t>(in.gcount())});
  }
  if (in.bad()) fail(ErrorKind::data, "{}: cannot read: {}", path, std::strerror(errno));
  return hexadecimal(hash.finish());
}

}  // namespace dpt
