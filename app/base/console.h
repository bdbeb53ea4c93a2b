// The standard streams of the commands. A command fails if a result cannot be written. It does not
// fail if a message cannot be written, because the reader of the messages may have gone.
#pragma once

#include <string>

namespace dpt {

/// Prepares the streams. Call this at the start of the process, before anything is opened. A write
/// into a closed pipe then fails with an error instead of ending the process (SIGPIPE). A closed
/// standard stream is opened on /dev/null, so that no other file gets its descriptor. Writes to a
/// closed stdout fail, and writes to a closed stderr are discarded.
void prepare_standard_streams();

/// Writes "dpt: TEXT" to stderr, unless nobody reads it (kernels/base/message_writer.h). Never
/// fails.
void say(const std::string& text) noexcept;

/// Flushes stdout. Throws ErrorKind::data if not everything could be written.
void flush_results();

/// Returns true if any write to stdout has failed.
bool results_are_lost();

}  // namespace dpt
