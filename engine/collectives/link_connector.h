// Connects each two processes of a world by TCP. Each process listens on one port; of two, the one
// of the higher rank connects to the other. Both then prove to each other that they know the
// secret, without saying it. What does not is a stranger: it is closed, and takes nobody's place.
#pragma once

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "engine/collectives/process_links.h"
#include "kernels/descriptor.h"

namespace dpt {

class LinkConnector {
 public:
  /// Listens at once, on a port that the system chooses. Throws ErrorKind::peer where it cannot.
  explicit LinkConnector(const LinkOptions& options);

  /// Returns what each other process must be told before it can connect: address, port, and a
  /// random number which makes proofs good for these connections only.
  std::string invitation() const;

  /// Connects to all others, whose invitations are given by rank, and closes the port. Returns an
  /// empty text, or why not all are connected. Call it once.
  std::string connect(const std::vector<std::string>& invitations);

  /// Returns the connections by rank, not blocking; after connect. That of this process is none.
  std::vector<Descriptor> take_sockets() { return std::move(sockets_); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    std::string address, port, nonce;
    Clock::time_point next_attempt;  ///< to connect to it
    bool is_being_tried = false;
    std::string problem;  ///< of the last attempt
  };
  /// A connection that has not proven anything yet.
  struct Candidate {
    Descriptor socket;
    int rank = -1;               ///< of the process that it was made to; -1 = it came
    bool is_connecting = false;  ///< the system has not yet said that the other end is reached
    std::string received;
  };
  using Candidates = std::list<Candidate>;

  void read(const std::vector<std::string>& invitations);
  void start_attempts();
  void attempt(int rank);
  /// One round of waiting: for the candidates, and for new ones.
  void wait();
  void accept_one();
  /// The socket of the candidate has something to say. Returns false if it is to be dropped.
  bool advance(Candidate& candidate);
  bool finish_connecting(Candidate& candidate);
  bool receive(Candidate& candidate, std::size_t size);
  bool judge_greeting(Candidate& candidate);
  bool judge_answer(Candidate& candidate);
  void accept_as(int rank, Candidate& candidate);
  bool give_up(Candidate& candidate, const std::string& why);
  void drop(Candidates::iterator at);
  std::string greeting(int to) const;
  std::string proof(const char* role, int from, int to) const;
  std::string problem() const;
  /// How many processes have yet to connect to this one.
  std::size_t expected() const;

  const LinkOptions options_;
  const std::string nonce_;
  Descriptor listener_;
  std::string port_;
  std::vector<Peer> peers_;
  std::vector<Descriptor> sockets_;
  Candidates candidates_;
  int missing_ = 0;    ///< processes that are not yet connected
  int strangers_ = 0;  ///< connections that came and proved nothing
  Clock::duration idle_{0};
  Clock::time_point no_accept_before_;
};

}  // namespace dpt
