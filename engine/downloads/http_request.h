// One HTTPS request through libcurl. Redirects are followed one by one, so that HF_TOKEN never
// reaches a server other than the intended one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dpt {

/// Failure of a request before the server's answer was complete.
struct TransferFailure {
  std::string what;           ///< "cannot resolve the host name ..."
  bool is_timeout = false;    ///< no byte arrived for too long
  bool is_untrusted = false;  ///< the server's certificate is not trusted
};

/// Request for a file, or only for its headers.
struct HttpRequest {
  std::string url;
  bool head_only = false;  ///< request only headers, and stop at an answer with x-linked-etag
  std::string token;       ///< sent to the server of `url` only, never after a redirect to another
  std::uint64_t offset = 0;  ///< position of the first byte to request
  std::string if_range;      ///< strong ETag of the file that `offset` refers to; empty = none
  int stall_seconds = 60;    ///< time without a received byte after which the request times out
};

/// The answer to a request.
struct HttpAnswer {
  long status = 0;                             ///< status of the last server
  std::string url;                             ///< URL of the last request
  std::map<std::string, std::string> headers;  ///< headers of the last server, names in lower case
  /// Headers of all servers. If several sent the same header, the first one counts.
  std::map<std::string, std::string> first_headers;
  std::string text;  ///< beginning of the body of an error
  std::optional<TransferFailure> failure;

  bool is_good() const { return !failure && (status == 200 || status == 206); }
  /// Returns a header of the last server; empty if it was not sent.
  std::string header(const std::string& name) const;
  /// Returns a header of the first server that sent it; empty if none did.
  std::string first_header(const std::string& name) const;
};

/// Receiver of the body of an answer with status 200 or 206. `begin` is called before the first
/// byte of the body, with the answer received so far, and `add` is called with each part. Either
/// may throw, which ends the request.
struct BodySink {
  std::function<void(const HttpAnswer&)> begin;
  std::function<void(std::string_view)> add;
};

/// Makes a request. Follows up to ten redirects. A requested stop ends it with StopRequested
/// (check_stop). Uses the proxies of libcurl's variables (https_proxy, no_proxy), and the
/// certificates of SSL_CERT_FILE and SSL_CERT_DIR if set. Throws ErrorKind::data for a redirect
/// that does not lead to https://.
HttpAnswer make_request(const HttpRequest& request, const BodySink& sink);

}  // namespace dpt
