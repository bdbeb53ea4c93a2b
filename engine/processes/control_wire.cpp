#include "engine/processes/control_wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <limits>
#include <sstream>
#include <system_error>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/base/json_text.h"
#include "kernels/base/text.h"

namespace dpt::control {
namespace {

std::string end_text(const std::error_code& error) {
  if (error == asio::error::eof) return "its connection ended";
  return fmt::format("its connection ended ({})", error.message());
}

std::string address_of(const tcp::socket& socket) {
  std::error_code failure;
  const tcp::endpoint endpoint = socket.remote_endpoint(failure);
  return failure ? "an unknown address" : text_of(endpoint);
}

}  // namespace

std::string text_of(const tcp::endpoint& endpoint) {
  std::ostringstream text;
  text << endpoint;
  return text.str();
}

Frame make_frame(const nlohmann::json& head, std::string_view bytes) {
  const std::string text = json_text(head);
  const std::size_t size = text.size() + (bytes.empty() ? 0 : 1 + bytes.size());
  std::string frame;
  frame.reserve(4 + size);
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(size >> shift & 0xff);
  frame += text;
  if (!bytes.empty()) {
    frame += '\0';
    frame += bytes;
  }
  return std::make_shared<const std::string>(std::move(frame));
}

std::string text_in(const nlohmann::json& head, const char* key) {
  return head.at(key).get<std::string>();
}

std::string printable_in(const nlohmann::json& head, const char* key) {
  return printable(text_in(head, key));
}

std::int64_t integer_in(const nlohmann::json& head, const char* key) {
  const nlohmann::json& value = head.at(key);
  // Refuse a number with a fraction, because it may exceed the range of integers. Converting an
  // object instead throws the exception for a wrong type.
  return value.is_number_integer() ? value.get<std::int64_t>()
                                   : nlohmann::json::object().get<std::int64_t>();
}

nlohmann::json json_of(const WorldFailure& failure) {
  return {{"type", "failure"},
          {"rank", failure.rank},
          {"text", failure.text},
          {"is_lost", failure.is_lost},
          {"exit_code", failure.exit_code}};
}

WorldFailure failure_in(const nlohmann::json& head) {
  // Keep newlines, because the text may be a message of several lines about a config.
  return {static_cast<int>(integer_in(head, "rank")), printable(text_in(head, "text"), "\n"),
          head.at("is_lost").get<bool>(), static_cast<int>(integer_in(head, "exit_code"))};
}

Clock::duration RunningTime::since_last_look(Clock::duration planned) {
  const Clock::time_point now = Clock::now();
  return std::min<Clock::duration>(now - std::exchange(last_, now), 2 * planned);
}

SilenceLimit SilenceLimit::at_start(const ControlOptions& options) {
  const auto join =
      std::max<std::chrono::milliseconds>(options.join_timeout, std::chrono::seconds(5));
  if (join < options.stall_timeout) return {join, "--join-timeout"};
  return {options.stall_timeout};
}

Clock::duration beat_period(std::chrono::milliseconds beat_every, Clock::duration stall_timeout) {
  return std::clamp<Clock::duration>(
      beat_every, std::chrono::milliseconds(1),
      std::max<Clock::duration>(stall_timeout / 8, std::chrono::milliseconds(1)));
}

Connection::Connection(tcp::socket socket, std::chrono::milliseconds network_timeout)
    : socket_(std::move(socket)), address_(address_of(socket_)) {
  std::error_code unknown;
  const tcp::endpoint own = socket_.local_endpoint(unknown);
  if (!unknown) own_address_ = own.address().to_string();
  std::error_code ignored;  // on failure, the end of the connection is noticed later
  socket_.set_option(tcp::no_delay(true), ignored);
  const int descriptor = socket_.native_handle();
  const auto timeout = static_cast<unsigned>(network_timeout.count());
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof timeout);
  // Programs started by this process must not keep the connection open after it ends.
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

void Connection::start(Handlers handlers, std::size_t most) {
  set_handlers(std::move(handlers));
  most_ = most;
  read_length();
}

void Connection::set_handlers(Handlers handlers) {
  handlers_ = std::make_shared<const Handlers>(std::move(handlers));
}

void Connection::read_length() {
  asio::async_read(socket_, asio::buffer(length_),
                   [self = shared_from_this()](const std::error_code& error, std::size_t) {
                     if (self->is_over_) return;
                     if (error) return self->end(end_text(error));
                     self->read_body();
                   });
}

void Connection::read_body() {
  std::size_t size = 0;
  for (const unsigned char byte : length_) size = size << 8 | byte;
  if (size > most_) {
    return end(fmt::format("{} ({} bytes of at most {})", kNoMessage, size, most_));
  }
  body_.resize(size);
  asio::async_read(socket_, asio::buffer(body_),
                   [self = shared_from_this()](const std::error_code& error, std::size_t) {
                     if (self->is_over_) return;
                     if (error) return self->end(end_text(error));
                     self->dispatch();
                   });
}

void Connection::dispatch() {
  if (is_finishing_) return read_length();
  // A handler may replace the handlers.
  const std::shared_ptr<const Handlers> handlers = handlers_;
  try {
    Message message;
    const std::size_t text_size = std::min(body_.find('\0'), body_.size());
    message.head = nlohmann::json::parse(body_.data(), body_.data() + text_size);
    if (text_size < body_.size()) message.bytes = body_.substr(text_size + 1);
    handlers->on_message(std::move(message));
  } catch (const nlohmann::json::exception&) {
    return end(kNoMessage);
  }
  if (!is_over_) read_length();
}

void Connection::send(Frame frame) {
  if (is_over_ || is_finishing_) return;
  to_send_.push_back(std::move(frame));
  if (to_send_.size() == 1) write();
}

void Connection::when_sent(std::function<void()> then) {
  when_sent_ = std::move(then);
  if (to_send_.empty() || is_over_) call_when_sent();
}

void Connection::call_when_sent() {
  if (const auto then = std::exchange(when_sent_, nullptr)) then();
}

void Connection::write() {
  asio::async_write(socket_, asio::buffer(*to_send_.front()),
                    [self = shared_from_this()](const std::error_code& error, std::size_t) {
                      if (!self->socket_.is_open()) return;
                      self->to_send_.pop_front();
                      if (error) {
                        // First read what arrived before the end: it may name the reason. Reading
                        // then finds the end as well.
                        self->to_send_.clear();
                      } else if (!self->to_send_.empty()) {
                        return self->write();
                      }
                      if (self->is_finishing_) self->end_sending();
                      self->call_when_sent();
                    });
}

void Connection::end(const std::string& why) {
  const std::shared_ptr<const Handlers> handlers = handlers_;
  close();
  handlers->on_end(why);
}

void Connection::finish() {
  is_finishing_ = true;
  if (to_send_.empty()) end_sending();
}

void Connection::end_sending() {
  std::error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
}

void Connection::close() {
  is_over_ = true;
  std::error_code ignored;
  socket_.close(ignored);
  call_when_sent();
}

}  // namespace dpt::control
