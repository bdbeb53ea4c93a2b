// The file of trusted certificate authorities for downloads. A libcurl that is part of the program
// (the wheel) has the path of the distribution on which it was built, which may not exist
// elsewhere.
#pragma once

#include <string>

namespace dpt {

/// Returns the file to give to libcurl, or an empty string if libcurl finds certificates by itself.
/// The first match counts: the variable SSL_CERT_FILE; `built_in` (libcurl's own default; empty:
/// none), if it exists; SSL_CERT_DIR, for which the result is empty; the files of Debian, Red Hat,
/// openSUSE and Alpine. `root`, for tests, precedes every path except that of the variable. Throws
/// ErrorKind::usage if the variable names no file.
std::string certificate_file(const std::string& built_in, const std::string& root = "");

}  // namespace dpt
