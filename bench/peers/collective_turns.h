// SPDX-License-Identifier: Apache-2.0
// How a collective is timed, the same code for peal and for its peers: of f32, by ranks that are
// processes of one machine, in turns (turn_board.h). A line is "BYTES CALLS"; rank 0 prints for it
// one line "BYTES SINGLE LOOP WRONG".
//
//   BYTES:  as nccl-tests counts them: of the larger of the two buffers of a rank. Blocks have a
//           share of it, rounded down.
//   SINGLE: the input is rewritten, then a barrier, then one call is timed; of all CALLS the
//           median of what the slowest rank took. Microseconds.
//   LOOP:   as nccl-tests: calls one after the other without a barrier, 20 between two rewrites;
//           of the slowest rank's means the median. Microseconds a call.
//   WRONG:  how many elements were not what they must be, of all that were computed by single calls
//           and by each loop's last, on all ranks.
//
// Thread safety: one thread.
#pragma once

#include <peal/bench/peers/turn_board.h>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

namespace peal::bench {

// all_reduce, broadcast and reduce are in place, the others from one buffer to another. Root is 0.
// update: each rank loads and stores its own memory, all at once, as an all_reduce must at least.
enum class Operation {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  alltoall,
  update
};

inline Operation operation_named(std::string_view name) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "reduce",     "alltoall",   "update"};
  for (int i = 0; i < 7; ++i) {
    if (name == names[i]) return static_cast<Operation>(i);
  }
  throw std::runtime_error("there is no operation " + std::string(name));
}

inline bool in_place(Operation what) {
  return what == Operation::all_reduce || what == Operation::broadcast ||
         what == Operation::reduce || what == Operation::update;
}

class Turns {
 public:
  // `board`: as TurnBoard's path. `in`, `out`: room for `most` bytes each, one buffer where the
  // operation is in place.
  Turns(const std::string& board, Operation what, int rank, int world, float* in, float* out,
        std::size_t most)
      : what_(what),
        rank_(rank),
        world_(world),
        in_(in),
        out_(out),
        most_(most),
        board_(board, rank, world) {}

  // `call(count, block)` runs the operation on the first elements of the buffers, `count` of the
  // larger one, of which blocks are a rank's share; and returns when that is done.
  template <class F>
  void take(F call) {
    constexpr int in_loop = 20;
    while (board_.next(4, static_cast<std::int64_t>(most_))) {
      const int calls = board_.calls();
      const auto all = static_cast<std::size_t>(board_.what()) / sizeof(float);
      const std::size_t block = all / static_cast<std::size_t>(world_);
      const std::size_t count = in_blocks() ? block * static_cast<std::size_t>(world_) : all;
      std::int64_t wrong = 0;
      for (int i = 0; i < 2; ++i) {
        fill(count, block, i);
        call(count, block);
      }
      for (int i = 0; i < calls; ++i) {
        fill(count, block, i);
        board_.barrier();
        board_.took(i, seconds_of([&] { call(count, block); }));
        wrong += differing(count, block, i, 1);
      }
      const double single = board_.median_of_slowest(calls);
      const int loops = std::max(1, calls / in_loop), each = std::min(calls, in_loop);
      for (int i = 0; i < loops; ++i) {
        fill(count, block, i);
        board_.barrier();
        const auto loop = [&] {
          for (int k = 0; k < each; ++k) call(count, block);
        };
        board_.took(i, seconds_of(loop) / each);
        wrong += differing(count, block, i, each);
      }
      const double looped = board_.median_of_slowest(loops);
      const std::int64_t all_wrong = board_.sum(wrong);
      if (rank_ == 0) {
        std::printf("%lld %.3f %.3f %lld\n", static_cast<long long>(board_.what()), single * 1e6,
                    looped * 1e6, static_cast<long long>(all_wrong));
        std::fflush(stdout);
      }
    }
  }

 private:
  bool in_blocks() const {
    return what_ == Operation::all_gather || what_ == Operation::reduce_scatter ||
           what_ == Operation::alltoall;
  }

  // Small integers, others in each call: element k of rank r has k & 7, and r, and call & 3.
  void fill(std::size_t count, std::size_t block, int call) {
    const std::size_t mine = what_ == Operation::all_gather ? block : count;
    for (std::size_t k = 0; k < mine; ++k) {
      in_[k] = static_cast<float>(static_cast<int>(k & 7) + rank_ + (call & 3));
    }
  }

  // What `calls` calls on what fill() wrote leave. In place an all_reduce multiplies the first sum
  // by the world once more each time: exact while that is a power of two, else rounded a little.
  std::int64_t differing(std::size_t count, std::size_t block, int call, int calls) const {
    const double world = world_, ranks = world * (world - 1) / 2;
    const std::size_t before = static_cast<std::size_t>(rank_) * block;
    std::int64_t wrong = 0;
    switch (what_) {
      case Operation::all_reduce: {
        double factor = 1;
        for (int k = 1; k < calls; ++k) factor *= world;
        const bool exact = calls == 1 || (world_ & (world_ - 1)) == 0;
        return wrong_in(0, count, 0, call, world * factor, ranks * factor, exact ? 0 : 1e-5);
      }
      case Operation::reduce:
        if (rank_ != 0) return 0;
        return wrong_in(0, count, 0, call, 1 + (world - 1) * calls, ranks * calls);
      case Operation::broadcast:
        return wrong_in(0, count, 0, call, 1, 0);
      case Operation::update:
        return wrong_in(0, count, 0, call, 1, rank_);
      case Operation::reduce_scatter:
        return wrong_in(0, block, before, call, world, ranks);
      case Operation::all_gather:
      case Operation::alltoall:
        for (int r = 0; r < world_; ++r) {
          wrong += wrong_in(static_cast<std::size_t>(r) * block, block,
                            what_ == Operation::alltoall ? before : 0, call, 1, r);
        }
    }
    return wrong;
  }

  // Of `count` elements from `at` on, which come from those that fill() wrote from `first` on:
  // factor * (k & 7 + call & 3) + plus.
  std::int64_t wrong_in(std::size_t at, std::size_t count, std::size_t first, int call,
                        double factor, double plus, double tolerance = 0) const {
    float low[8], high[8];
    for (std::size_t j = 0; j < 8; ++j) {
      const double want =
          factor * (static_cast<double>((first + j) & 7) + static_cast<double>(call & 3)) + plus;
      low[j] = static_cast<float>(want * (1 - tolerance));
      high[j] = static_cast<float>(want * (1 + tolerance));
    }
    std::int64_t wrong = 0;
    for (std::size_t j = 0; j < count; ++j) {
      wrong += !(out_[at + j] >= low[j & 7] && out_[at + j] <= high[j & 7]);
    }
    return wrong;
  }

  Operation what_;
  int rank_, world_;
  float *in_, *out_;
  std::size_t most_;
  TurnBoard board_;
};

}  // namespace peal::bench
