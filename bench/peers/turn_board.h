// SPDX-License-Identifier: Apache-2.0
// Turns of a program with several ranks, which are processes of one machine: so that a caller can
// alternate several such programs that live at once. Rank 0 reads a line of two numbers, all ranks
// learn them; until its input ends, or says "0 0". Between turns nobody spins.
//
// What the ranks tell each other lies in a file that all map, the board; so does a barrier, which
// is none of the libraries' own: how unequally a library lets its ranks go would be timed with it.
// Ranks are bound to the cores in turns, whatever the launcher did: where ranks share cores, the
// same ones share them in all programs. A turn has a deadline of one minute, after which SIGALRM
// ends the program. Thread safety: one thread.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace peal::bench {

class TurnBoard {
 public:
  static constexpr int most_calls = 2000;

  // `path`: the file is new, or zeros. Before the first call of next() all ranks have to be known
  // to live: MPI_Init has returned.
  TurnBoard(const std::string& path, int rank, int world) : rank_(rank), world_(world) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (world > most_ranks || file < 0 || ftruncate(file, sizeof(Board)) != 0) {
      throw std::runtime_error("cannot make the board " + path + " for " + std::to_string(world) +
                               " ranks (at most 64)");
    }
    void* mapped = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map the board " + path);
    board_ = static_cast<Board*>(mapped);
    join_session();
    bind();
  }

  int rank() const { return rank_; }
  int world() const { return world_; }

  // The numbers of the next turn: the first from `least` to `most`, the second how many calls.
  // False at the end. The others sleep until then: other programs are being measured meanwhile.
  bool next(std::int64_t least, std::int64_t most) {
    alarm(0);
    if (rank_ == 0) {
      long long what = 0;
      int calls = 0;
      const bool more = std::scanf("%lld %d", &what, &calls) == 2 && what != 0;
      const bool fits = what >= least && what <= most && calls >= 1 && calls <= most_calls;
      if (more && !fits) {
        std::fprintf(stderr, "expected %lld to %lld and 1 to %d calls, got %lld and %d\n",
                     static_cast<long long>(least), static_cast<long long>(most), most_calls, what,
                     calls);
      }
      board_->what = more && fits ? what : 0;
      board_->calls = calls;
      ++board_->turns;
      futex(FUTEX_WAKE, INT_MAX);
    } else {
      while (board_->turns == turn_) futex(FUTEX_WAIT, turn_);
    }
    ++turn_;
    if (board_->what > 0) alarm(60);
    return board_->what > 0;
  }
  std::int64_t what() const { return board_->what; }
  int calls() const { return board_->calls; }

  void barrier() {
    const int before = board_->barriers;
    if (board_->arrived.fetch_add(1) == world_ - 1) {
      board_->arrived = 0;
      ++board_->barriers;
      return;
    }
    for (int spins = 0; board_->barriers == before; ++spins) {
      if (crowded_ || spins > 10000) sched_yield();
    }
  }

  // How long this rank's call took; after all have said so, of the first `count` calls the median
  // of what the slowest rank took.
  void took(int call, double seconds) { board_->times[rank_][call] = seconds; }
  double median_of_slowest(int count) {
    barrier();  // all have written
    std::vector<double> slowest(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      double& most = slowest[static_cast<std::size_t>(i)];
      for (int r = 0; r < world_; ++r) most = std::max(most, board_->times[r][i]);
    }
    barrier();  // all have read
    const auto middle = slowest.begin() + count / 2;
    std::nth_element(slowest.begin(), middle, slowest.end());
    return *middle;
  }

  // What the ranks counted, together, on rank 0.
  std::int64_t sum(std::int64_t mine) {
    board_->counted += mine;
    barrier();
    return rank_ == 0 ? board_->counted.exchange(0) : 0;
  }

 private:
  static constexpr int most_ranks = 64;

  struct Board {
    alignas(64) std::atomic<int> arrived;
    alignas(64) std::atomic<int> barriers;
    alignas(64) std::atomic<int> turns;
    std::int64_t what;
    int calls;
    std::atomic<std::int64_t> counted;
    double times[most_ranks][most_calls];
  };

  void futex(int what, int value) {
    static_assert(sizeof board_->turns == sizeof(int));
    syscall(SYS_futex, &board_->turns, what, value, nullptr, nullptr, 0);
  }

  // Some launchers put each rank into a session of its own, which Linux gives its share of the
  // processor by itself: with the nice value that the caller's session has.
  static void join_session() {
    const char* nice = std::getenv("PEERS_AUTOGROUP");
    std::FILE* file = nice == nullptr ? nullptr : std::fopen("/proc/self/autogroup", "w");
    if (file == nullptr) return;
    std::fputs(nice, file);
    std::fclose(file);
  }

  void bind() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    const int cpus = CPU_COUNT(&allowed);
    crowded_ = world_ > cpus;
    int skipped = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || skipped++ != rank_ % cpus) continue;
      cpu_set_t mine;
      CPU_ZERO(&mine);
      CPU_SET(cpu, &mine);
      sched_setaffinity(0, sizeof mine, &mine);
    }
  }

  int rank_, world_;
  Board* board_ = nullptr;
  bool crowded_ = false;
  int turn_ = 0;
};

template <class F>
double seconds_of(F f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace peal::bench
