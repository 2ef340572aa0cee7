// SPDX-License-Identifier: Apache-2.0
// Ranks that go on when some of them have died: what peal_run/survivors_test.sh runs.
//
//   shrink_ranks die RANKS...  these kill themselves between all_reduces, and the others go on
//   shrink_ranks twice A B     A kills itself between them, and B where the others shrink
//   shrink_ranks none          nobody dies, and all shrink
//   shrink_ranks absent        the last rank lives, and does not come
//   shrink_ranks refused       the Error of ranks that cannot
#include <peal/autograd/core/error.h>
#include <peal/launch/job.h>
#include <peal/nn/nn.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace peal;

// Integers: the sum is exact.
void check_sum(const comm::ProcessGroup& group, std::int64_t size) {
  const Tensor data = Tensor::zeros({size});
  float* const values = data.data<float>();
  const auto world = static_cast<float>(group.world());
  for (std::int64_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>(i % 61 + group.rank());
  }
  group.all_reduce(data).wait();
  for (std::int64_t i = 0; i < size; ++i) {
    const float want = world * static_cast<float>(i % 61) + world * (world - 1) / 2;
    PEAL_CHECK(values[i] == want, "element ", i, ": expected ", want, ", got ", values[i]);
  }
}

// Parameters that only rank 0 has right reach all, and two steps of all ranks are those of one.
void check_training(const comm::ProcessGroup& group) {
  manual_seed(static_cast<std::uint64_t>(1 + group.rank()));
  nn::Linear model(3, 1);
  nn::DistributedDataParallel ddp(model, group);
  nn::SGD optimizer(model.parameters(), {.lr = 0.125});
  for (int step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    mean(square(ddp(full({2, 3}, 1.0 + group.rank())))).backward();
    optimizer.step();
  }
  std::string mine;
  for (const Tensor& parameter : model.parameters()) {
    for (std::int64_t i = 0; i < parameter.numel(); ++i) {
      mine += concat(parameter.data<float>()[i], " ");
    }
  }
  const auto all = group.all_gather_object(mine);
  PEAL_CHECK(std::ranges::count(all, mine) == group.world(), "parameters differ");
}

// Of these ranks, at the given all_reduce of the group.
void sums_until_error(const comm::ProcessGroup& group, const std::set<int>& dying) {
  for (int call = 0;; ++call) {
    if (call == 20 && dying.contains(group.rank())) kill(getpid(), SIGKILL);
    check_sum(group, call % 2 == 0 ? 10 : 300'001);
  }
}

void check_left(launch::Job& job, const comm::ProcessGroup& old, int world, int rank) {
  const comm::ProcessGroup& group = job.group();
  PEAL_CHECK(group.world() == world && group.rank() == rank, "expected rank ", rank, " of ", world,
             ", got ", group.rank(), " of ", group.world());
  PEAL_CHECK(job.world() == world && job.rank() == rank, "the job has other numbers");
  bool threw = false;
  try {
    check_sum(old, 10);
  } catch (const Error&) {
    threw = true;
  }
  PEAL_CHECK(threw, "the old group goes on");
  check_sum(group, 10);
  check_sum(group, 300'001);
  check_training(group);
  if (rank == 0) std::printf("sums of %d ranks are right\n", world);
  std::fflush(stdout);
}

void run(launch::Job& job, std::string_view how, const std::vector<int>& ranks) {
  const comm::ProcessGroup old = job.group();
  const int before = old.rank(), world = old.world();
  check_sum(old, 10);
  if (how == "refused") {
    job.shrink();
  } else if (how == "none") {
    job.shrink();
    check_left(job, old, world, before);
  } else if (how == "absent") {
    if (before != world - 1) job.shrink();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    fail("it did not come");
  } else {
    const bool twice = how == "twice";
    const std::set<int> first = twice ? std::set{ranks[0]} : std::set(ranks.begin(), ranks.end());
    const std::set<int> lost(ranks.begin(), ranks.end());
    try {
      sums_until_error(old, first);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    if (twice && before == ranks[1]) {
      std::thread([] {
        const int wait = std::atoi(std::getenv("DIES_AFTER"));
        std::this_thread::sleep_for(std::chrono::microseconds(wait));
        kill(getpid(), SIGKILL);
      }).detach();
    }
    const int after = before - static_cast<int>(std::ranges::count_if(
                                   lost, [&](int gone) { return gone < before; }));
    // Until all that are to die have, and all others know.
    while (job.world() != world - static_cast<int>(lost.size())) {
      try {
        job.shrink();
        if (job.world() > world - static_cast<int>(lost.size())) sums_until_error(job.group(), {});
      } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
    }
    check_left(job, old, world - static_cast<int>(lost.size()), after);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  std::vector<int> ranks;
  for (int i = 2; i < argc; ++i) ranks.push_back(std::atoi(argv[i]));
  return launch::run_main([&](launch::Job& job) { run(job, how, ranks); });
}
