#include "engine/downloads/certificates.h"

#include <cstdlib>
#include <filesystem>

#include "kernels/base/error.h"

namespace dpt {
namespace {

/// The same paths as in Go's crypto/x509 (root_linux.go). The most common ones come first.
constexpr const char* kKnownFiles[] = {
    "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Ubuntu, Arch, Gentoo
    "/etc/pki/tls/certs/ca-bundle.crt",                   // Fedora, RHEL 6 to 9
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // RHEL 7 and later
    "/etc/ssl/ca-bundle.pem",                             // openSUSE
    "/etc/ssl/cert.pem",                                  // Alpine
};

bool is_there(const std::string& root, const std::string& path) {
  std::error_code error;
  return !path.empty() && std::filesystem::exists(root + path, error);
}

}  // namespace

std::string certificate_file(const std::string& built_in, const std::string& root) {
  if (const char* file = std::getenv("SSL_CERT_FILE"); file && *file) {
    if (!is_there("", file)) {
      fail(ErrorKind::usage,
           "SSL_CERT_FILE={}: no such file: set the variable to a file with trusted certificates, "
           "or unset it to use those of this system",
           file);
    }
    return file;
  }
  if (is_there(root, built_in)) return {};
  if (const char* folder = std::getenv("SSL_CERT_DIR"); folder && *folder) return {};
  for (const char* file : kKnownFiles) {
    if (is_there(root, file)) return root + file;
  }
  return {};
}

}  // namespace dpt
