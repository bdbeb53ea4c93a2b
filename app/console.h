// The standard streams of the commands. A result that does not arrive is a failure; a message that
// does not arrive is none: nobody may be listening any more.
#pragma once

#include <string>

namespace dpt {

/// At the start of the process, before anything is opened. A write into a closed pipe becomes an
/// error instead of the end of the process (SIGPIPE). A standard stream that is closed gets a place
/// of its own, so that no file of ours takes its number: what is written to stdout then fails, what
/// goes to stderr vanishes.
void prepare_standard_streams();

/// "dpt: TEXT" on stderr; never fails.
void say(const std::string& text) noexcept;

/// Sends what was printed to stdout on its way. Throws ErrorKind::data when not all of it arrived.
void flush_results();

/// Whether a write to stdout has failed so far.
bool results_are_lost();

}  // namespace dpt
