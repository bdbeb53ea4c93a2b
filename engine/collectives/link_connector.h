// Connects each pair of processes of a world by TCP. Each process listens on one port; in a pair,
// the process with the higher rank connects to the other. Both then prove to each other that they
// know the secret, without revealing it. A connection without this proof is a stranger: it is
// closed, and does not affect the others.
#pragma once

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "engine/collectives/link_options.h"
#include "kernels/base/file_handle.h"
#include "kernels/base/secret.h"

namespace dpt {

class LinkConnector {
 public:
  /// Listens at once, on a port that the system chooses. Throws ErrorKind::peer on failure.
  explicit LinkConnector(const LinkOptions& options);

  /// Returns what each other process must know before it can connect: address, port, and a random
  /// number that makes proofs valid for these connections only.
  std::string invitation() const;

  /// Connects to all others, whose invitations are given by rank, and closes the port. Returns an
  /// empty string, or the reason why not all are connected. Call it once.
  std::string connect(const std::vector<std::string>& invitations);

  /// Returns the connections by rank, in non-blocking mode; the entry of this process is empty.
  /// Call it after connect.
  std::vector<FileHandle> take_sockets() { return std::move(sockets_); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::string address, port, nonce;
    Clock::time_point next_attempt;  ///< earliest time for the next attempt
    bool is_being_tried = false;
    std::string problem;  ///< failure of the last attempt
  };
  /// Connection whose other end has not yet proven that it knows the secret.
  struct Candidate {
    FileHandle socket;
    int rank = -1;               ///< process to which it connects; -1 = incoming
    bool is_connecting = false;  ///< true until the other end is reached
    std::string received;
  };
  using Candidates = std::list<Candidate>;

  void read(const std::vector<std::string>& invitations);
  void start_attempts();
  void attempt(int rank);
  /// Waits once for events of the candidates' sockets or for a new connection.
  void wait();
  void accept_one();
  /// Handles an event of the candidate's socket. Returns false if the candidate is to be dropped.
  bool advance(Candidate& candidate);
  bool finish_connecting(Candidate& candidate);
  bool receive(Candidate& candidate, std::size_t size);
  bool judge_greeting(Candidate& candidate);
  bool judge_answer(Candidate& candidate);
  void accept_as(int rank, Candidate& candidate);
  bool give_up(Candidate& candidate, const std::string& why);
  void drop(Candidates::iterator at);
  std::string greeting(int to) const;
  std::string proof(ProofRole role, int from, int to) const;
  std::string problem() const;
  /// Returns the number of processes that still have to connect to this one.
  std::size_t expected() const;

  const LinkOptions options_;
  const std::string nonce_;
  FileHandle listener_;
  std::string port_;
  std::vector<Peer> peers_;
  std::vector<FileHandle> sockets_;
  Candidates candidates_;
  int missing_ = 0;    ///< processes that are not yet connected
  int strangers_ = 0;  ///< incoming connections that proved nothing
  Clock::duration idle_{0};
  Clock::time_point no_accept_before_;
};

}  // namespace dpt
