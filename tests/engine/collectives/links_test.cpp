// Links between processes: the data they carry, who may connect, and how they fail.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <sstream>
#include <thread>

#include "engine/collectives/link_connector.h"
#include "engine/collectives/process_links.h"
#include "engine/collectives/tcp_links.h"
#include "kernels/base/error.h"
#include "tests/engine/collectives/worlds.h"
#include "tests/support/skip.h"
#include "tests/support/text.h"

namespace dpt {
namespace {

using testing::check_contains;
using LinksBody = std::function<void(ProcessLinks&)>;
/// A function that sees an invitation before the other processes do, and may replace it.
using Meddler = std::function<std::string(int rank, const std::string& invitation)>;

/// Makes links between `size` threads and runs `body` on each; returns the errors by rank.
std::vector<std::string> run_links(int size, const std::function<LinkOptions(int rank)>& options,
                                   const LinksBody& body, const Meddler& meddle = {}) {
  Gathering gathering(size);
  std::vector<std::string> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int p = 0; p < size; ++p) {
    threads.emplace_back([&, p] {
      int round = 0;
      try {
        const auto links = make_tcp_links(options(p), [&](const std::string& mine) {
          return gathering.gather(p, meddle && round++ == 0 ? meddle(p, mine) : mine);
        });
        body(*links);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::peer);
        errors[p] = error.what();
      }
      gathering.gather(p, "");  // keeps the links open until the others have received
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Sends `count` numbers from each process to every other process, and checks what arrives.
void exchange_numbers(ProcessLinks& links, std::size_t count) {
  const auto size = static_cast<std::size_t>(links.size());
  const auto value = [&](std::size_t from, std::size_t to) {
    return static_cast<int>(1000 * from + to);
  };
  const auto rank = static_cast<std::size_t>(links.rank());
  std::vector<std::vector<int>> out(size), in(size);
  std::vector<std::span<const std::byte>> send(size);
  std::vector<std::span<std::byte>> receive(size);
  for (std::size_t p = 0; p < size; ++p) {
    out[p].resize(count);
    std::iota(out[p].begin(), out[p].end(), value(rank, p));
    in[p].resize(count);
    send[p] = std::as_bytes(std::span(out[p]));
    receive[p] = std::as_writable_bytes(std::span(in[p]));
  }
  links.exchange(send, receive, "numbers");
  for (std::size_t p = 0; p < size; ++p) {
    if (p == rank) continue;
    std::iota(out[p].begin(), out[p].end(), value(p, rank));
    CHECK((in[p] == out[p]));
  }
}

/// Foreign connections to the port of an invitation.
class Strangers {
 public:
  ~Strangers() {
    for (const int one : sockets_) close(one);
  }
  void come(const std::string& invitation, const std::string& say) {
    std::istringstream words(invitation);
    std::string address, port;
    words >> address >> port;
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    const int number = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(number, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    send(number, say.data(), say.size(), MSG_NOSIGNAL);
    sockets_.push_back(number);
  }

 private:
  std::vector<int> sockets_;
};

std::string greeting_without_proof(int from, int to) {
  return std::string("dptlink1") + static_cast<char>(from) + std::string(3, '\0') +
         static_cast<char>(to) + std::string(3, '\0') + std::string(32, 'x');
}

TEST_CASE("Links carry what each process sends to each other, of any size") {
  for (const int size : {2, 3, 5}) {
    const auto errors = run_links(
        size, [&](int rank) { return local_links(rank, size); },
        [&](ProcessLinks& links) {
          CHECK(links.size() == size);
          for (const std::size_t count : {1, 0, 1000, 0, 3'000'000}) exchange_numbers(links, count);
          // Only the first process sends data, to the last one.
          std::vector<std::span<const std::byte>> send(static_cast<std::size_t>(size));
          std::vector<std::span<std::byte>> receive(send.size());
          int number = links.rank() == 0 ? 7 : 0;
          if (links.rank() == 0) send.back() = std::as_bytes(std::span(&number, 1));
          if (links.rank() == size - 1) {
            receive[0] = std::as_writable_bytes(std::span(&number, 1));
          }
          links.exchange(send, receive, "one number");
          if (links.rank() == size - 1) CHECK(number == 7);
          exchange_numbers(links, 10);
        });
    for (const std::string& error : errors) CHECK(error == "");
  }
}

TEST_CASE("Links over IPv6") {
  const int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const bool has_ipv6 =
      probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (probe >= 0) close(probe);
  if (!has_ipv6) return testing::skip_test("this machine has no IPv6");
  const auto options = [](int rank) {
    LinkOptions result = local_links(rank, 3);
    result.address = "::1";
    return result;
  };
  const LinksBody body = [](ProcessLinks& links) { exchange_numbers(links, 10); };
  for (const std::string& error : run_links(3, options, body)) CHECK(error == "");
}

TEST_CASE("Strangers on every port of the links change nothing") {
  constexpr int kSize = 4;
  Strangers strangers;
  std::mutex mutex;
  const auto errors = run_links(
      kSize, [&](int rank) { return local_links(rank, kSize); },
      [](ProcessLinks& links) { exchange_numbers(links, 1000); },
      [&](int rank, const std::string& invitation) {
        const std::lock_guard lock(mutex);
        // These connections stay open. They are more than a process keeps at once.
        for (int i = 0; i < 40; ++i) {
          strangers.come(invitation, "");
          strangers.come(invitation, std::string(200, '\xff'));
          strangers.come(invitation, "dptlink1");
          strangers.come(invitation, greeting_without_proof(kSize - 1, rank));
        }
        return invitation;
      });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("A process with another secret cannot be an end of a link") {
  const auto options = [](int rank) {
    LinkOptions result = local_links(rank, 3);
    if (rank == 1) result.secret = "another";
    result.patience = std::chrono::milliseconds(300);
    return result;
  };
  const auto errors = run_links(3, options, [](ProcessLinks&) { CHECK(false); });
  for (const std::string& error : errors) {
    check_contains(error,
                   "cannot connect the processes: rank 0: rank 1 (127.0.0.1) did not "
                   "connect to 127.0.0.1, port ");
    check_contains(error, " came without the token of this run)");
  }
}

TEST_CASE("A program that answers in place of a process must prove the secret, too") {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  REQUIRE(listen(listener, 16) == 0);
  std::thread stranger([&] {
    for (;;) {
      const int one = accept(listener, nullptr, nullptr);
      if (one < 0) return;
      // The server sends back the proof that it received. A proof is valid in one direction only.
      std::string greeting(48, '\0');
      recv(one, greeting.data(), greeting.size(), MSG_WAITALL);
      send(one, greeting.data() + 16, 32, MSG_NOSIGNAL);
      close(one);
    }
  });
  LinkOptions options = local_links(1, 2);
  options.patience = std::chrono::milliseconds(300);
  LinkConnector connector(options);
  const std::string stranger_as_rank_0 =
      fmt::format("127.0.0.1 {} 0123456789", ntohs(address.sin_port));
  const std::string problem = connector.connect({stranger_as_rank_0, connector.invitation()});
  shutdown(listener, SHUT_RDWR);
  stranger.join();
  close(listener);
  check_contains(problem, "rank 1: no connection to rank 0 at 127.0.0.1, port ");
  check_contains(problem, "the program that listens there does not know the token of this run");
  CHECK_FALSE(connector.take_sockets()[0].is_open());
}

TEST_CASE("Ends that disagree about an exchange say so") {
  const auto errors = run_links(
      2, [](int rank) { return local_links(rank, 2); },
      [](ProcessLinks& links) {
        exchange_numbers(links, 3);
        exchange_numbers(links, links.rank() == 0 ? 4 : 5);
      });
  for (const std::string& error : errors) {
    check_contains(error, "numbers: the connection to rank ");
    const bool names_sizes = error.find("expected exchange 2 of ") != std::string::npos ||
                             error.find("closed by the other end") != std::string::npos ||
                             error.find("reset by peer") != std::string::npos;
    CHECK(names_sizes);
  }
}

TEST_CASE("An exchange after one that broke throws") {
  std::atomic<int> threw = 0;
  const auto errors = run_links(
      2, [](int rank) { return local_links(rank, 2); },
      [&](ProcessLinks& links) {
        if (links.rank() == 1) return;
        try {
          exchange_numbers(links, 3);
        } catch (const Error& error) {
          check_contains(error.what(), "rank 0: numbers: the connection to rank 1 broke");
          ++threw;
        }
        exchange_numbers(links, 3);
      });
  CHECK(threw == 1);
  check_contains(errors[0], "rank 0: numbers was stopped: ");
}

TEST_CASE("Without descriptors, links fail with a message") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The lowest free descriptor becomes the first one that is not allowed.
  const int lowest = dup(0);
  REQUIRE(lowest >= 0);
  close(lowest);
  const rlimit tight{static_cast<rlim_t>(lowest), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &tight) == 0);
  std::string text;
  try {
    LinkConnector connector(local_links(0, 2));
  } catch (const Error& error) {
    text = error.what();
  }
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  check_contains(text, "cannot listen for the other processes at 127.0.0.1: Too many open files");
}

}  // namespace
}  // namespace dpt
