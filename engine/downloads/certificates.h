// The file of trusted certificate authorities for downloads. The libcurl in the Python wheel looks
// for it where the distribution on which the wheel was built has it; others may have it elsewhere.
#pragma once

#include <string>

namespace dpt {

/// Returns the file to give to libcurl, or an empty string if libcurl finds certificates by itself.
/// The first match counts: the variable SSL_CERT_FILE; `built_in` (libcurl's own default; empty:
/// none), if it exists; SSL_CERT_DIR, for which the result is empty; the files of Debian, Red Hat,
/// openSUSE and Alpine. `root`, for tests, is prepended to every path except that in a variable.
/// Throws ErrorKind::usage if the variable names no file.
std::string certificate_file(const std::string& built_in, const std::string& root = "");

}  // namespace dpt
