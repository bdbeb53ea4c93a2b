// The reference for the floor: the rate of fp32 multiply-adds of this machine on a number of
// threads. Prints GFLOP/s (a multiply-add counts as 2). scripts/bench/peers builds it for the
// widest vectors that the processor has: VECTOR_BYTES is 64 for AVX-512, 32 for AVX2 with FMA.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

typedef float Vector __attribute__((vector_size(VECTOR_BYTES)));
constexpr int kRounds = 20'000'000;
constexpr int kChains = 12;  // Enough independent sums to hide the latency of two units.

void work() {
  Vector sums[kChains] = {};
  Vector a = {}, b = {};
  asm volatile("" : "+v"(a), "+v"(b));  // Values that the compiler does not know.
  for (int round = 0; round < kRounds; ++round) {
    for (Vector& sum : sums) {
      sum = sum * a + b;
      asm volatile("" : "+v"(sum));  // Keeps each sum in a register, and alive.
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> team;
    for (int i = 0; i < threads; ++i) team.emplace_back(work);
    for (std::thread& member : team) member.join();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    const double flop = 2.0 * kRounds * kChains * (VECTOR_BYTES / sizeof(float)) * threads;
    best = std::max(best, flop / elapsed.count() / 1e9);
  }
  std::printf("%.1f\n", best);
}
