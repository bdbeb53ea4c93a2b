#include "engine/collectives/link_connector.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sstream>

#include "kernels/base/error.h"
#include "kernels/base/secret.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

// Pause after a failed attempt, and the longest wait for a socket.
constexpr std::chrono::milliseconds kPause{50};
// Maximum number of incoming connections without a valid proof, in addition to one for each
// expected process. If more arrive, the oldest are closed; a process of the run whose connection is
// closed tries again.
constexpr std::size_t kMaxStrangers = 64;
constexpr std::string_view kGreeting = "dptlink1";
// A greeting consists of kGreeting, the ranks of the two processes and a proof; an answer is a
// proof.
constexpr std::size_t kProofBytes = 32, kGreetingBytes = kGreeting.size() + 4 + 4 + kProofBytes;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// Converts a numeric address to an addrinfo; null if it is invalid.
Addresses resolve(const std::string& address, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

FileHandle make_socket(int family) {
  return FileHandle(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::string port_of(int listener) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  if (getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return {};
  const in_port_t port = bound.ss_family == AF_INET6
                             ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                             : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port;
  return std::to_string(ntohs(port));
}

/// Encodes a rank, lowest byte first.
std::string four_bytes(int number) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(static_cast<std::uint32_t>(number) >> shift & 0xff);
  }
  return bytes;
}

int number_of(std::string_view bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return static_cast<int>(number);
}

/// Sends a few bytes over a new connection, whose buffer has room for them.
bool send_whole(int socket, const std::string& bytes) {
  return send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

LinkConnector::LinkConnector(const LinkOptions& options)
    : options_(options), nonce_(random_text(16)), missing_(options.size - 1) {
  sockets_.resize(static_cast<std::size_t>(options.size));
  const Addresses address = resolve(options.address, "0");
  if (address) listener_ = make_socket(address->ai_family);
  if (!address || !listener_.is_open() ||
      bind(listener_.fd(), address->ai_addr, address->ai_addrlen) != 0 ||
      listen(listener_.fd(), SOMAXCONN) != 0) {
    fail(ErrorKind::peer, "rank {}: cannot listen for the other processes at {}: {}", options.rank,
         options.address, address ? std::strerror(errno) : "expected a numeric address");
  }
  port_ = port_of(listener_.fd());
}

std::string LinkConnector::invitation() const {
  return options_.address + " " + port_ + " " + nonce_;
}

std::string LinkConnector::connect(const std::vector<std::string>& invitations) {
  read(invitations);
  while (missing_ > 0) {
    const int missing = missing_;
    start_attempts();
    const Clock::time_point before = Clock::now();
    wait();
    // Count at most two pauses, because this process may have been suspended meanwhile.
    idle_ += std::min<Clock::duration>(Clock::now() - before, 2 * kPause);
    if (missing_ < missing) idle_ = Clock::duration{0};
    if (idle_ >= options_.patience) return problem();
  }
  candidates_.clear();
  listener_ = FileHandle();
  return {};
}

void LinkConnector::read(const std::vector<std::string>& invitations) {
  peers_.resize(invitations.size());
  for (std::size_t p = 0; p < invitations.size(); ++p) {
    std::istringstream words(invitations[p]);
    if (words >> peers_[p].address >> peers_[p].port >> peers_[p].nonce) continue;
    fail(ErrorKind::peer, "rank {}: expected the address, port and nonce of rank {}, found '{}'",
         options_.rank, p, invitations[p]);
  }
}

std::size_t LinkConnector::expected() const {
  const auto first = sockets_.begin() + options_.rank + 1;
  return static_cast<std::size_t>(std::count_if(
      first, sockets_.end(), [](const FileHandle& socket) { return !socket.is_open(); }));
}

void LinkConnector::start_attempts() {
  const Clock::time_point now = Clock::now();
  for (int p = 0; p < options_.rank; ++p) {
    const Peer& peer = peers_[p];
    if (sockets_[p].is_open() || peer.is_being_tried) continue;
    if (now >= peer.next_attempt) attempt(p);
  }
}

void LinkConnector::attempt(int rank) {
  Peer& peer = peers_[rank];
  peer.next_attempt = Clock::now() + kPause;
  const Addresses address = resolve(peer.address, peer.port);
  if (!address) {
    peer.problem = "expected a numeric address";
    return;
  }
  Candidate candidate{make_socket(address->ai_family), rank, true, {}};
  if (!candidate.socket.is_open() ||
      (::connect(candidate.socket.fd(), address->ai_addr, address->ai_addrlen) != 0 &&
       errno != EINPROGRESS)) {
    peer.problem = std::strerror(errno);
    return;
  }
  peer.is_being_tried = true;
  candidates_.push_back(std::move(candidate));
}

void LinkConnector::wait() {
  std::vector<pollfd> wanted;
  for (const Candidate& candidate : candidates_) {
    const short event = candidate.is_connecting ? POLLOUT : POLLIN;
    wanted.push_back({candidate.socket.fd(), event, 0});
  }
  const bool accepts = expected() > 0 && Clock::now() >= no_accept_before_;
  if (accepts) wanted.push_back({listener_.fd(), POLLIN, 0});
  if (poll(wanted.data(), wanted.size(), static_cast<int>(kPause.count())) <= 0) return;
  auto at = candidates_.begin();
  for (const pollfd& one : wanted) {
    if (one.fd == listener_.fd()) break;
    const auto candidate = at++;
    if (one.revents != 0 && !advance(*candidate)) drop(candidate);
  }
  if (accepts && wanted.back().revents != 0) accept_one();
}

void LinkConnector::accept_one() {
  const auto is_stranger = [](const Candidate& candidate) { return candidate.rank < 0; };
  const auto oldest = std::find_if(candidates_.begin(), candidates_.end(), is_stranger);
  const auto count =
      static_cast<std::size_t>(std::count_if(candidates_.begin(), candidates_.end(), is_stranger));
  FileHandle socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool lacks_descriptors = !socket.is_open() && (errno == EMFILE || errno == ENFILE);
  if (lacks_descriptors || count >= kMaxStrangers + expected()) {
    if (oldest != candidates_.end()) drop(oldest);
  }
  if (lacks_descriptors) no_accept_before_ = Clock::now() + kPause;
  if (socket.is_open()) candidates_.push_back({std::move(socket), -1, false, {}});
}

void LinkConnector::drop(Candidates::iterator at) {
  if (at->rank >= 0) {
    peers_[at->rank].is_being_tried = false;
  } else if (at->socket.is_open()) {
    ++strangers_;
  }
  candidates_.erase(at);
}

bool LinkConnector::advance(Candidate& candidate) {
  if (candidate.is_connecting) return finish_connecting(candidate);
  const bool came = candidate.rank < 0;
  const std::size_t size = came ? kGreetingBytes : kProofBytes;
  if (!receive(candidate, size)) return false;
  if (candidate.received.size() < size) return true;
  return came ? judge_greeting(candidate) : judge_answer(candidate);
}

bool LinkConnector::give_up(Candidate& candidate, const std::string& why) {
  if (candidate.rank >= 0) peers_[candidate.rank].problem = why;
  return false;
}

bool LinkConnector::finish_connecting(Candidate& candidate) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(candidate.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0 && !send_whole(candidate.socket.fd(), greeting(candidate.rank))) error = errno;
  if (error != 0) return give_up(candidate, std::strerror(error));
  candidate.is_connecting = false;
  std::string& problem = peers_[candidate.rank].problem;
  if (problem.empty()) problem = "it does not answer";  // problem reported until the peer answers
  return true;
}

bool LinkConnector::receive(Candidate& candidate, std::size_t size) {
  std::array<char, kGreetingBytes> bytes;
  const std::size_t wanted = size - candidate.received.size();
  const ssize_t got = recv(candidate.socket.fd(), bytes.data(), wanted, 0);
  if (got > 0) candidate.received.append(bytes.data(), static_cast<std::size_t>(got));
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return true;
  return give_up(candidate, got == 0 ? "it closed the connection" : std::strerror(errno));
}

bool LinkConnector::judge_greeting(Candidate& candidate) {
  const std::string_view bytes = candidate.received;
  const int from = number_of(bytes.substr(kGreeting.size()));
  if (from <= options_.rank || from >= options_.size) return false;
  const std::string_view theirs = bytes.substr(kGreetingBytes - kProofBytes);
  if (bytes.substr(0, kGreeting.size()) != kGreeting ||
      number_of(bytes.substr(kGreeting.size() + 4)) != options_.rank ||
      !same_secret(theirs, proof(ProofRole::connects, from, options_.rank)) ||
      sockets_[from].is_open() ||
      !send_whole(candidate.socket.fd(), proof(ProofRole::accepts, from, options_.rank))) {
    return false;
  }
  accept_as(from, candidate);
  return false;
}

bool LinkConnector::judge_answer(Candidate& candidate) {
  if (!same_secret(candidate.received, proof(ProofRole::accepts, options_.rank, candidate.rank))) {
    return give_up(candidate, "the program that listens there does not know the token of this run");
  }
  accept_as(candidate.rank, candidate);
  return false;
}

void LinkConnector::accept_as(int rank, Candidate& candidate) {
  const int at_once = 1;
  setsockopt(candidate.socket.fd(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  sockets_[rank] = std::move(candidate.socket);
  --missing_;
}

std::string LinkConnector::greeting(int to) const {
  return std::string(kGreeting) + four_bytes(options_.rank) + four_bytes(to) +
         proof(ProofRole::connects, options_.rank, to);
}

std::string LinkConnector::proof(ProofRole role, int from, int to) const {
  const auto end = [&](int rank) {
    return ProofEnd{rank, rank == options_.rank ? nonce_ : peers_[rank].nonce};
  };
  return connection_proof(options_.secret, "dpt links", role, end(from), end(to));
}

std::string LinkConnector::problem() const {
  const double seconds = std::chrono::duration<double>(options_.patience).count();
  for (int p = 0; p < options_.size; ++p) {
    if (p == options_.rank || sockets_[p].is_open()) continue;
    const Peer& peer = peers_[p];
    if (p < options_.rank) {
      return fmt::format("rank {}: no connection to rank {} at {}, port {}, within {:g} s: {}",
                         options_.rank, p, peer.address, peer.port, seconds,
                         peer.problem.empty() ? "it does not answer" : peer.problem);
    }
    return fmt::format(
        "rank {}: rank {} ({}) did not connect to {}, port {}, within {:g} s ({} came without "
        "the token of this run)",
        options_.rank, p, peer.address, options_.address, port_, seconds,
        counted(strangers_, "connection"));
  }
  return {};
}

}  // namespace dpt
