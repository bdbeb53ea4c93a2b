// Names of files on servers, and the URLs that they stand for.
#pragma once

#include <string>

namespace dpt {

/// A file on a server.
struct RemoteFile {
  std::string name;        ///< as the user gave it: https://..., hf://OWNER/REPO...
  std::string url;         ///< the address to ask, https://...
  std::string file_name;   ///< last part of its path; letters, digits, '.', '_' and '-' only
  bool is_of_hub = false;  ///< hf://: requests carry HF_TOKEN
  bool is_fixed = false;   ///< the revision is a commit, so the content never changes
};

/// Reads a name. The hub's server is HF_ENDPOINT, by default https://huggingface.co. Throws
/// ErrorKind::usage for a name or an HF_ENDPOINT that is no such thing.
RemoteFile remote_file_of(const std::string& name);

/// Returns the URL of a file of the hub at a commit: the one of `file` with the commit in place of
/// its revision.
std::string url_at_commit(const RemoteFile& file, const std::string& commit);

/// Returns "https://host:port" of a URL, in lower case: what may see HF_TOKEN is compared by it.
std::string origin_of(const std::string& url);

}  // namespace dpt
