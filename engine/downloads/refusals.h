// Error messages of downloads, with remedies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/downloads/http_request.h"
#include "engine/downloads/remote_file.h"

namespace dpt {

/// Progress of a download.
struct DownloadState {
  std::uint64_t size = 0;
  std::optional<std::uint64_t> total;
  bool can_continue = false;  ///< true if a later start can continue the download
};

/// Returns a text such as " (46.8 MB)"; empty if the size is unknown.
std::string size_text(std::optional<std::uint64_t> bytes);

/// Describes the failure of a request in one clause.
std::string problem_of(const HttpAnswer& answer);

/// Throws ErrorKind::data for a request that failed, or whose answer is an error.
[[noreturn]] void refuse_answer(const RemoteFile& file, const HttpAnswer& answer, bool has_token,
                                const std::optional<DownloadState>& state = {});

/// Throws ErrorKind::data for a file that the folder lacks while HF_HUB_OFFLINE is set.
[[noreturn]] void refuse_offline(const std::string& name, const std::string& folder);

}  // namespace dpt
