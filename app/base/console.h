// The standard streams of the commands. A result that cannot be written is a failure; a message
// that cannot be written is not, because nobody may be reading any more.
#pragma once

#include <string>

namespace dpt {

/// At the start of the process, before anything is opened. A write into a closed pipe becomes an
/// error instead of the end of the process (SIGPIPE). A closed standard stream gets a descriptor of
/// its own, so that no file of ours takes its number: writes to stdout then fail, writes to stderr
/// are discarded.
void prepare_standard_streams();

/// "dpt: TEXT" on stderr, unless nobody reads it (kernels/base/message_writer.h); never fails.
void say(const std::string& text) noexcept;

/// Flushes stdout. Throws ErrorKind::data when not all of it arrived.
void flush_results();

/// Returns true if a write to stdout has failed so far.
bool results_are_lost();

}  // namespace dpt
