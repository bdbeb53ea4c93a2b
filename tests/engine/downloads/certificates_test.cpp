// The file of trusted certificates, searched for in synthetic systems.
#include "engine/downloads/certificates.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "kernels/base/error.h"
#include "tests/support/temp_dir.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

void make_file(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "certificates\n";
}

}  // namespace

TEST_CASE("certificates: libcurl's own file, if it exists, then those of other distributions") {
  unsetenv("SSL_CERT_FILE");
  unsetenv("SSL_CERT_DIR");
  const TempDir system;
  const std::string root = system.path();
  const std::string debian = "/etc/ssl/certs/ca-certificates.crt";
  CHECK(certificate_file(debian, root) == "");  // not found; the error suggests SSL_CERT_FILE
  CHECK(certificate_file("", root) == "");

  const std::string alpine = root + "/etc/ssl/cert.pem";
  make_file(alpine);
  CHECK(certificate_file(debian, root) == alpine);
  const std::string red_hat = root + "/etc/pki/tls/certs/ca-bundle.crt";
  make_file(red_hat);
  CHECK(certificate_file(debian, root) == red_hat);
  CHECK(certificate_file("", root) == red_hat);

  make_file(root + debian);
  CHECK(certificate_file(debian, root) == "");
  CHECK(certificate_file("/opt/own.pem", root) == root + debian);
}

TEST_CASE("certificates: SSL_CERT_FILE comes first, and SSL_CERT_DIR before a search") {
  const TempDir system;
  const std::string root = system.path();
  make_file(root + "/etc/ssl/cert.pem");
  setenv("SSL_CERT_DIR", "/etc/own", 1);
  CHECK(certificate_file("/missing.crt", root) == "");
  const std::string own = root + "/etc/ssl/cert.pem";
  setenv("SSL_CERT_FILE", own.c_str(), 1);
  CHECK(certificate_file("/missing.crt", root) == own);
  setenv("SSL_CERT_FILE", "/no/own.pem", 1);
  CHECK_THROWS_WITH_AS(certificate_file("/missing.crt", root),
                       "SSL_CERT_FILE=/no/own.pem: no such file: set the variable to a file with "
                       "trusted certificates, or unset it to use those of this system",
                       Error);
  unsetenv("SSL_CERT_FILE");
  unsetenv("SSL_CERT_DIR");
}
