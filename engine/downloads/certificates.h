// The file of trusted certificate authorities for downloads. A libcurl that came with the program
// (the wheel) knows the path of the distribution that it was built on, which others do not have.
#pragma once

#include <string>

namespace dpt {

/// Returns the file to give to libcurl, or an empty string if libcurl finds certificates by itself.
/// The variable SSL_CERT_FILE comes first, then `built_in` (libcurl's own default; empty: none), if
/// it exists, then SSL_CERT_DIR, which replaces a search, then the files of Debian, Red Hat,
/// openSUSE and Alpine. `root` precedes every path except that of the variable, for tests. Throws
/// ErrorKind::usage if the variable names no file.
std::string certificate_file(const std::string& built_in, const std::string& root = "");

}  // namespace dpt
