#include "engine/downloads/http_request.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <memory>

#include "engine/downloads/certificates.h"
#include "engine/downloads/remote_file.h"
#include "kernels/base/error.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

struct CurlDeleter {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using Curl = std::unique_ptr<CURL, CurlDeleter>;
using HeaderList = std::unique_ptr<curl_slist, CurlDeleter>;

void add_header(HeaderList& list, const std::string& line) {
  curl_slist* longer = curl_slist_append(list.get(), line.c_str());
  if (!longer) throw std::bad_alloc();
  static_cast<void>(list.release());
  list.reset(longer);
}

/// Returns the file of certificates that libcurl uses by default; empty if libcurl does not report
/// it.
std::string built_in_certificate_file() {
#if LIBCURL_VERSION_NUM >= 0x074600
  const curl_version_info_data* info = curl_version_info(CURLVERSION_NOW);
  if (info->age >= CURLVERSION_SEVENTH && info->cainfo) return info->cainfo;
#endif
  return {};
}

/// A request to one server, without redirects.
class Hop {
 public:
  Hop(const HttpRequest& request, const BodySink& sink, HttpAnswer& answer)
      : request_(request), sink_(sink), answer_(answer) {
    static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
    curl_.reset(initialized == CURLE_OK ? curl_easy_init() : nullptr);
    if (!curl_) fail(ErrorKind::unexpected, "libcurl cannot be initialised");
  }

  /// Makes the request. Returns the URL to which the server redirects; empty if it does not.
  std::string run(const std::string& url, bool sends_token) {
    answer_.url = url;
    answer_.headers.clear();
    answer_.text.clear();
    prepare(url, sends_token);
    const CURLcode code = curl_easy_perform(curl_.get());
    check_stop();
    if (thrown_) std::rethrow_exception(thrown_);
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &answer_.status);
    if (code != CURLE_OK) {
      note_failure(code);
      return {};
    }
    if (is_redirect()) {
      const char* next = nullptr;
      curl_easy_getinfo(curl_.get(), CURLINFO_REDIRECT_URL, &next);
      return next ? next : "";
    }
    begin_body();  // needed for an empty file, for which on_body is never called
    if (thrown_) std::rethrow_exception(thrown_);
    return {};
  }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    const CURLcode code = curl_easy_setopt(curl_.get(), option, value);
    if (code != CURLE_OK) {
      fail(ErrorKind::unexpected, "libcurl refuses option {}: {}", static_cast<int>(option),
           curl_easy_strerror(code));
    }
  }

  void prepare(const std::string& url, bool sends_token) {
    set(CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "https");
#else
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTPS));
#endif
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_NOBODY, request_.head_only ? 1L : 0L);
    set(CURLOPT_USERAGENT, "dpt");
    set(CURLOPT_CONNECTTIMEOUT, 30L);
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request_.stall_seconds));
    set(CURLOPT_ERRORBUFFER, error_.data());
    set(CURLOPT_HEADERFUNCTION, &Hop::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Hop::on_body);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &Hop::on_progress);
    set(CURLOPT_NOPROGRESS, 0L);
    // The curl program reads SSL_CERT_FILE and SSL_CERT_DIR, but libcurl does not.
    const std::string trusted = certificate_file(built_in_certificate_file());
    if (!trusted.empty()) set(CURLOPT_CAINFO, trusted.c_str());
    if (const char* folder = std::getenv("SSL_CERT_DIR"); folder && *folder) {
      set(CURLOPT_CAPATH, folder);
    }
    add_header(headers_, "Accept-Encoding: identity");
    if (sends_token) add_header(headers_, "Authorization: Bearer " + request_.token);
    if (request_.offset > 0) {
      add_header(headers_, fmt::format("Range: bytes={}-", request_.offset));
      if (!request_.if_range.empty()) add_header(headers_, "If-Range: " + request_.if_range);
    }
    set(CURLOPT_HTTPHEADER, headers_.get());
  }

  bool is_redirect() const {
    return answer_.status >= 300 && answer_.status < 400 && answer_.headers.contains("location");
  }

  void begin_body() {
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &answer_.status);
    if (has_begun_ || !answer_.is_good() || !sink_.begin) return;
    has_begun_ = true;
    guard([&] { sink_.begin(answer_); });
  }

  /// Runs `body`. If it throws, keeps the exception and returns false, because exceptions must not
  /// pass through libcurl.
  bool guard(const std::function<void()>& body) {
    try {
      body();
      return true;
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }

  void note_failure(CURLcode code) {
    TransferFailure failure;
    failure.what = error_[0] != '\0' ? error_.data() : curl_easy_strerror(code);
    failure.is_timeout = code == CURLE_OPERATION_TIMEDOUT;
    failure.is_untrusted = code == CURLE_PEER_FAILED_VERIFICATION ||
                           code == CURLE_SSL_CACERT_BADFILE || code == CURLE_SSL_ISSUER_ERROR;
    answer_.failure = std::move(failure);
  }

  void add_line(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      answer_.headers.clear();  // drop headers of a proxy or an interim answer
      return;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    std::string_view value = line.substr(colon + 1);
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = value.find_first_not_of(kBlank);
    value = first == std::string_view::npos
                ? ""
                : value.substr(first, value.find_last_not_of(kBlank) - first + 1);
    answer_.headers.insert_or_assign(name, std::string(value));
    answer_.first_headers.try_emplace(name, value);
  }

  static std::size_t on_header(const char* data, std::size_t, std::size_t size, void* self) {
    auto& hop = *static_cast<Hop*>(self);
    return hop.guard([&] { hop.add_line({data, size}); }) ? size : 0;
  }

  static std::size_t on_body(const char* data, std::size_t, std::size_t size, void* self) {
    constexpr std::size_t kMaxText = 1000;
    auto& hop = *static_cast<Hop*>(self);
    hop.begin_body();
    if (hop.thrown_) return 0;
    const bool is_done = hop.guard([&] {
      if (hop.has_begun_) {
        hop.sink_.add({data, size});
      } else if (hop.answer_.text.size() < kMaxText) {
        hop.answer_.text.append(data, std::min(size, kMaxText));
      }
    });
    return is_done ? size : 0;
  }

  static int on_progress(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return stop_request::is_starting && stop_request::is_requested ? 1 : 0;
  }

  const HttpRequest& request_;
  const BodySink& sink_;
  HttpAnswer& answer_;
  Curl curl_;
  HeaderList headers_;
  std::array<char, CURL_ERROR_SIZE> error_{};
  bool has_begun_ = false;
  std::exception_ptr thrown_;
};

std::string found_in(const std::map<std::string, std::string>& headers, const std::string& name) {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  return found_in(headers, name);
}

std::string HttpAnswer::first_header(const std::string& name) const {
  return found_in(first_headers, name);
}

HttpAnswer make_request(const HttpRequest& request, const BodySink& sink) {
  constexpr int kMaxRedirects = 10;
  HttpAnswer answer;
  std::string url = request.url;
  const std::string origin = origin_of(url);
  bool sends_token = !request.token.empty();
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    // Never send the token after a redirect to another server, even if that server redirects back.
    sends_token = sends_token && origin_of(url) == origin;
    std::string next = Hop(request, sink, answer).run(url, sends_token);
    // The hub describes a file in the answer that redirects to its storage. The storage may refuse
    // HEAD.
    const bool is_known = request.head_only && answer.first_headers.contains("x-linked-etag");
    if (next.empty() || is_known) return answer;
    if (!next.starts_with("https://")) {
      fail(ErrorKind::data, "{}: expected a redirect to https://, found one to {}", url,
           next.substr(0, next.find('?')));
    }
    url = std::move(next);
  }
  fail(ErrorKind::data, "{}: expected at most {} redirects, found more", request.url,
       kMaxRedirects);
}

}  // namespace dpt
