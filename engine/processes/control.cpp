#include "engine/processes/control.h"

#include <cassert>
#include <exception>
#include <utility>

#include "engine/processes/control_client.h"
#include "engine/processes/control_server.h"

namespace dpt {

struct ControlChannel::Impl {
  World world;
  std::unique_ptr<control::ControlServer> server;  // set on rank 0 only; outlives the client
  std::unique_ptr<control::ControlClient> client;
};

ErrorKind WorldFailure::kind() const {
  const bool is_kind = exit_code >= static_cast<int>(ErrorKind::unexpected) &&
                       exit_code <= static_cast<int>(ErrorKind::requirement);
  return is_lost || !is_kind ? ErrorKind::peer : static_cast<ErrorKind>(exit_code);
}

ControlChannel::ControlChannel() : impl_(std::make_unique<Impl>()) {}
ControlChannel::~ControlChannel() = default;

std::unique_ptr<ControlChannel> ControlChannel::join(const World& world,
                                                     const ControlOptions& options) {
  assert(!world.alone());
  std::unique_ptr<ControlChannel> channel(new ControlChannel());
  Impl& impl = *channel->impl_;
  impl.world = world;
  if (world.rank == 0) {
    impl.server = std::make_unique<control::ControlServer>(world, options);
    const asio::ip::tcp::endpoint endpoint = impl.server->endpoint();
    impl.client = std::make_unique<control::ControlClient>(world, options, &endpoint);
  } else {
    impl.client = std::make_unique<control::ControlClient>(world, options, nullptr);
  }
  return channel;
}

const World& ControlChannel::world() const {
  return impl_->world;
}

std::string ControlChannel::local_address() const {
  return impl_->client->local_address();
}

std::vector<std::string> ControlChannel::all_gather(const std::string& what,
                                                    const std::string& mine) {
  return impl_->client->all_gather(what, mine);
}

void ControlChannel::watch(std::vector<std::shared_ptr<Heartbeat>> heartbeats) {
  impl_->client->watch(std::move(heartbeats));
}

void ControlChannel::set_stall_timeout(std::chrono::milliseconds timeout) {
  impl_->client->set_stall_timeout(timeout);
  if (impl_->server) impl_->server->set_stall_timeout(timeout);
}

void ControlChannel::begin_wait(const char* operation) {
  impl_->client->begin_wait(operation);
}

void ControlChannel::end_wait() {
  impl_->client->end_wait();
}

void ControlChannel::on_failure(std::function<void(const WorldFailure&)> callback) {
  impl_->client->on_failure(std::move(callback));
}

std::optional<WorldFailure> ControlChannel::failure() const {
  return impl_->client->failure();
}

std::optional<WorldFailure> ControlChannel::wait_for_failure(
    std::chrono::milliseconds timeout) const {
  return impl_->client->wait_for_failure(timeout);
}

void ControlChannel::fail(const std::string& text, int exit_code) noexcept {
  try {
    impl_->client->fail(text, exit_code);
  } catch (const std::exception&) {
    // There is no memory for the text: the others will notice that the connection ends.
  }
}

void ControlChannel::leave() {
  impl_->client->leave();
}

}  // namespace dpt
