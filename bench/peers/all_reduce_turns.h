// SPDX-License-Identifier: Apache-2.0
// How an all-reduce is timed, the same code for peal and for its peers: f32 sums in place, of ranks
// that are processes of one machine. It takes turns, so that a caller can alternate several such
// programs that live at once: rank 0 reads a line "BYTES CALLS", all ranks measure, rank 0 prints
// one line "BYTES SINGLE LOOP WRONG"; until its input ends, or says "0 0". Between turns nobody
// spins.
//
//   SINGLE: the buffer is rewritten, then a barrier, then one call is timed; of all CALLS the
//           median of what the slowest rank took. Microseconds.
//   LOOP:   as nccl-tests: calls one after the other without a barrier, 20 between two rewrites;
//           of the slowest rank's means the median. Microseconds a call.
//   WRONG:  how many elements were not the sum, of all that were computed by single calls and by
//           each loop's last, on all ranks.
//
// The barrier is none of the libraries' own: how unequally a library lets its ranks go would be
// timed with it. It lies in a file that all ranks map, the board, with what they tell each other.
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

class Turns {
 public:
  // `board`: a path; the file is new, or zeros. `data`: room for `most` bytes. Before the first
  // call of take() all ranks have to be known to live: MPI_Init has returned.
  Turns(const std::string& board, int rank, int world, float* data, std::size_t most)
      : rank_(rank), world_(world), data_(data), most_(most) {
    const int file = open(board.c_str(), O_RDWR | O_CREAT, 0600);
    if (world > most_ranks || file < 0 || ftruncate(file, sizeof(Board)) != 0) {
      throw std::runtime_error("cannot make the board " + board + " for " + std::to_string(world) +
                               " ranks (at most 64)");
    }
    void* mapped = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map the board " + board);
    board_ = static_cast<Board*>(mapped);
    join_session();
    bind();
  }

  // `all_reduce(count)` sums the first elements of the buffer, and returns when that is done.
  template <class F>
  void take(F all_reduce) {
    while (next_turn()) {
      alarm(60);
      const auto count = static_cast<std::size_t>(bytes_) / sizeof(float);
      std::int64_t wrong = 0;
      for (int i = 0; i < 2; ++i) {
        fill(count, i);
        all_reduce(count);
      }
      for (int i = 0; i < calls_; ++i) {
        fill(count, i);
        barrier();
        board_->times[rank_][i] = seconds([&] { all_reduce(count); });
        wrong += differing(count, i, 1);
      }
      const double single = median_of_slowest(calls_);
      const int loops = std::max(1, calls_ / in_loop), each = std::min(calls_, in_loop);
      for (int i = 0; i < loops; ++i) {
        fill(count, i);
        barrier();
        const auto loop = [&] {
          for (int k = 0; k < each; ++k) all_reduce(count);
        };
        board_->times[rank_][i] = seconds(loop) / each;
        wrong += differing(count, i, each);
      }
      const double looped = median_of_slowest(loops);
      board_->wrong += wrong;
      barrier();
      if (rank_ == 0) {
        std::printf("%lld %.3f %.3f %lld\n", static_cast<long long>(bytes_), single * 1e6,
                    looped * 1e6, static_cast<long long>(board_->wrong.exchange(0)));
        std::fflush(stdout);
      }
      alarm(0);
    }
  }

 private:
  static constexpr int most_ranks = 64, most_calls = 2000, in_loop = 20;

  struct Board {
    alignas(64) std::atomic<int> arrived;
    alignas(64) std::atomic<int> barriers;
    alignas(64) std::atomic<int> turns;
    std::int64_t bytes;
    int calls;
    std::atomic<std::int64_t> wrong;
    double times[most_ranks][most_calls];
  };

  // False at the end. The others sleep until then: other programs are being measured meanwhile.
  bool next_turn() {
    if (rank_ == 0) {
      long long bytes = 0;
      int calls = 0;
      const bool more = std::scanf("%lld %d", &bytes, &calls) == 2 && bytes != 0;
      const bool fits = bytes >= 4 && static_cast<std::size_t>(bytes) <= most_ && calls >= 1 &&
                        calls <= most_calls;
      if (more && !fits) {
        std::fprintf(stderr, "expected 4 to %zu bytes and 1 to %d calls, got %lld and %d\n", most_,
                     most_calls, bytes, calls);
      }
      board_->bytes = more && fits ? bytes : 0;
      board_->calls = calls;
      ++board_->turns;
      futex(FUTEX_WAKE, INT_MAX);
    } else {
      while (board_->turns == turn_) futex(FUTEX_WAIT, turn_);
    }
    ++turn_;
    bytes_ = board_->bytes;
    calls_ = board_->calls;
    return bytes_ > 0;
  }

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

  template <class F>
  static double seconds(F f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

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

  // Small integers, others in each call.
  void fill(std::size_t count, int call) {
    for (std::size_t j = 0; j < count; ++j) {
      data_[j] = static_cast<float>(static_cast<int>(j & 7) + rank_ + (call & 3));
    }
  }

  // After that many calls on what fill() wrote. Each multiplies the first sum by the world once
  // more: exact while that is a power of two, else rounded a little each time.
  std::int64_t differing(std::size_t count, int call, int calls) {
    double factor = 1;
    for (int k = 1; k < calls; ++k) factor *= world_;
    const bool exact = calls == 1 || (world_ & (world_ - 1)) == 0;
    const double tolerance = exact ? 0 : 1e-5;
    float low[8], high[8];
    for (int j = 0; j < 8; ++j) {
      const double sum = (world_ * (j + (call & 3)) + world_ * (world_ - 1) / 2) * factor;
      low[j] = static_cast<float>(sum * (1 - tolerance));
      high[j] = static_cast<float>(sum * (1 + tolerance));
    }
    std::int64_t wrong = 0;
    for (std::size_t j = 0; j < count; ++j) {
      wrong += !(data_[j] >= low[j & 7] && data_[j] <= high[j & 7]);
    }
    return wrong;
  }

  int rank_, world_;
  float* data_;
  std::size_t most_;
  Board* board_ = nullptr;
  bool crowded_ = false;
  int turn_ = 0, calls_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace peal::bench
