// SPDX-License-Identifier: Apache-2.0
// check_cost: what the checks that are always on, and the flight recorder, add to an all_reduce.
// There is no all_reduce without them, so they are done twice: after each call what it has done for
// them is done once more, on a board of its own. Blocks of calls with once and with twice take
// turns, and the median of the differences, turn by turn, is what they cost.
//
//   peal-mpirun -n 2 check_cost [TURNS]
//
// A call that is over at once mixes its signature into that of all before it, leaves what it was on
// the board and in the recorder, and asks whether a rank has failed. One that is not has two rows
// to write, and the time to ask for twice. What cannot be doubled is the comparison of the
// signatures: a word that travels in the line of the cache that says the data are there.
#include <peal/autograd/core/error.h>
#include <peal/comm/control/board.h>
#include <peal/comm/schedule/mix.h>
#include <peal/launch/job.h>

#include <peal/bench/clock.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace {

using namespace peal;

// The same stores as a collective's own (Lane::exchange() and Lane::retire()).
class Checks {
 public:
  explicit Checks(const comm::ProcessGroup& group)
      : board_(comm::Board::in_memory(group.world())), rank_(group.rank()) {}

  void of_one_at_once() {
    const comm::Finished what = next();
    board_->finished(rank_, 0, sequence_, what);
    board_->flight(rank_).over(0, sequence_, what);
  }
  void of_one_under_way() {
    const comm::Finished what = next();
    const std::uint64_t number = board_->flight(rank_).begin(0, sequence_, what, {});
    board_->finished(rank_, 0, sequence_, what);
    board_->flight(rank_).end(number, comm::FlightState::done);
  }

 private:
  comm::Finished next() {
    comm::mix(history_, 17);
    ++sequence_;
    PEAL_CHECK(!board_->is_poisoned());
    return {history_, {3, sequence_}};
  }

  std::shared_ptr<comm::Board> board_;
  int rank_;
  std::uint64_t history_ = 0, sequence_ = 0;
};

struct Cost {
  double call, checks;  // microseconds, medians over turns
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Again>
Cost measure(const comm::ProcessGroup& group, const Tensor& data, int calls, int turns,
             Again&& again) {
  const auto block = [&](bool twice) {
    group.barrier().wait();
    const bench::Clock clock;
    for (int i = 0; i < calls; ++i) {
      group.all_reduce(data).wait();
      if (twice) again();
    }
    return clock.since_start().wall / calls * 1e6;
  };
  std::vector<double> once, differences;
  for (int turn = 0; turn <= turns; ++turn) {
    const bool twice_first = turn % 2 == 1;  // neither is always the later
    double first = block(twice_first), second = block(!twice_first);
    if (turn == 0) continue;
    if (twice_first) std::swap(first, second);
    once.push_back(first);
    differences.push_back(second - first);
  }
  return {median(once), median(differences)};
}

void run(const comm::ProcessGroup& group, int turns) {
  Checks checks(group);
  if (group.rank() == 0) {
    std::printf("all_reduce of f32, %d ranks, memory for collectives, medians of %d turns\n",
                group.world(), turns);
    std::printf("%8s %10s %22s %22s\n", "bytes", "call, us", "over at once: us, %",
                "under way: us, %");
  }
  for (const std::int64_t bytes : {4, 4096, 1 << 20}) {
    const Tensor data = group.allocate({bytes / 4});
    const int calls = bytes > 65536 ? 200 : 5000;
    const Cost at_once = measure(group, data, calls, turns, [&] { checks.of_one_at_once(); });
    const Cost under_way = measure(group, data, calls, turns, [&] { checks.of_one_under_way(); });
    if (group.rank() != 0) continue;
    std::printf("%8lld %10.3f %13.4f %7.2f%% %13.4f %7.2f%%\n", static_cast<long long>(bytes),
                at_once.call, at_once.checks, 100 * at_once.checks / at_once.call, under_way.checks,
                100 * under_way.checks / at_once.call);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int turns = argc > 1 ? std::atoi(argv[1]) : 101;
  if (argc > 2 || turns < 1) {
    std::fputs("check_cost [TURNS]\n", stderr);
    return 2;
  }
  return launch::run_main([&](launch::Job& job) { run(job.group(), turns); });
}
