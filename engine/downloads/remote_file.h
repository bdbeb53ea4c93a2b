// Names of files on servers, and their URLs.
#pragma once

#include <string>

namespace dpt {

/// A file on a server.
struct RemoteFile {
  std::string name;        ///< name that the user gave: https://..., hf://OWNER/REPO...
  std::string url;         ///< address to request, https://...
  std::string file_name;   ///< name of the local copy: letters, digits, '.', '_' and '-' only
  bool is_of_hub = false;  ///< true for hf://...: requests carry HF_TOKEN
  bool is_fixed = false;   ///< true if the revision is a commit, whose content never changes
};

/// Parses the name of a file. The hub's server is HF_ENDPOINT, by default https://huggingface.co.
/// Throws ErrorKind::usage for an invalid name or HF_ENDPOINT.
RemoteFile remote_file_of(const std::string& name);

/// Returns the URL of a file of the hub at a commit. It is the URL of `file` with the revision
/// replaced by the commit.
std::string url_at_commit(const RemoteFile& file, const std::string& commit);

/// Returns the "https://host:port" of a URL, in lower case. HF_TOKEN is only sent to a server with
/// the same origin.
std::string origin_of(const std::string& url);

}  // namespace dpt
