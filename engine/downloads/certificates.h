// The file of trusted certificate authorities for downloads. The libcurl in the Python wheel looks
// for it where the distribution on which the wheel was built has it. Other distributions may have
// it elsewhere.
#pragma once

#include <string>

namespace dpt {

/// Returns the file to give to libcurl. This is the file in the variable SSL_CERT_FILE, if that is
/// set. Otherwise, the result is empty if libcurl needs no file: if `built_in` (libcurl's own
/// default; may be empty) exists, or SSL_CERT_DIR is set. Otherwise, it is the first existing file
/// among those of Debian, Red Hat, openSUSE and Alpine; empty if there is none. `root`, for tests,
/// is prepended to every path except one from a variable. Throws ErrorKind::usage if SSL_CERT_FILE
/// names no file.
std::string certificate_file(const std::string& built_in, const std::string& root = "");

}  // namespace dpt
