// SPDX-License-Identifier: Apache-2.0
// Ranks that go on when some of them have died: what peal_run/survivors_test.sh runs.
//
//   shrink_ranks die RANKS...  these kill themselves between all_reduces, and the others go on
//   shrink_ranks twice A B     A kills itself between them, and B where the others shrink
//   shrink_ranks none          nobody dies, and all shrink
//   shrink_ranks absent        the last rank lives, and does not come
//   shrink_ranks trains RANK   it kills itself in a training, which goes on, net and optimizer too
//   shrink_ranks busy          rank 1 kills itself, and the last rank works beyond a deadline
//   shrink_ranks late          rank 0 comes when the others have just given up, and all try again
//   shrink_ranks refused       the Error of ranks that cannot
//   shrink_ranks threads       that of ranks that are threads
#include <peal/autograd/core/error.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/job.h>
#include <peal/nn/nn.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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

void check_alike(const comm::ProcessGroup& group, const nn::Module& model) {
  std::string mine;
  for (const Tensor& parameter : model.parameters()) {
    for (std::int64_t i = 0; i < parameter.numel(); ++i) {
      mine += concat(parameter.data<float>()[i], " ");
    }
  }
  const auto all = group.all_gather_object(mine);
  PEAL_CHECK(std::ranges::count(all, mine) == group.world(), "parameters differ");
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
  check_alike(group, model);
}

// Of these ranks, at the given all_reduce of the group.
void sums_until_error(const comm::ProcessGroup& group, const std::set<int>& dying) {
  for (int call = 0;; ++call) {
    if (call == 20 && dying.contains(group.rank())) kill(getpid(), SIGKILL);
    check_sum(group, call % 2 == 0 ? 10 : 300'001);
  }
}

// Of one net and one optimizer, over the death of a rank: what launch/job.h tells users to do.
void train_over_death(launch::Job& job, int victim) {
  manual_seed(static_cast<std::uint64_t>(1 + job.rank()));
  nn::Linear net(3, 1);
  nn::Adam optimizer(net.parameters(), {.lr = 0.125});
  std::optional<nn::DistributedDataParallel> model(std::in_place, net, job.group());
  const auto step = [&](nn::Module& whole) {
    optimizer.zero_grad();
    mean(square(whole(full({2, 3}, 1.0 + job.rank())))).backward();
    optimizer.step();
  };
  try {
    for (int done = 0;; ++done) {
      if (done == 2 && job.rank() == victim) kill(getpid(), SIGKILL);
      step(*model);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  model.reset();
  job.shrink();
  const comm::ProcessGroup& group = job.group();
  if (group.rank() == 0) step(net);  // as the rank that was through with it when the other died
  model.emplace(net, group);
  NamedTensors state;
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    state.emplace_back(name, tensor.clone());
    group.broadcast(state.back().second).wait();
  }
  optimizer.load_state_dict(state);
  for (int done = 0; done < 2; ++done) step(*model);
  check_alike(group, net);
  if (group.rank() == 0) std::printf("%d ranks train on\n", group.world());
  std::fflush(stdout);
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
  // What a rank that is alone does in place is nothing.
  PEAL_CHECK(threw || old.world() == 1, "the old group goes on");
  check_sum(group, 10);
  check_sum(group, 300'001);
  check_training(group);
  if (rank == 0) std::printf("sums of %d ranks are right\n", world);
  std::fflush(stdout);
}

// In a group after the first shrink() as in the first one. PEAL_TIMEOUT is 2.
void works_for_long(launch::Job& job) {
  const bool works = job.rank() == job.world() - 1;
  try {
    sums_until_error(job.group(), {1});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  for (int round = 0; round < 2; ++round) {
    if (works) {
      const auto busy = job.group().busy();
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    job.shrink();
  }
}

// PEAL_TIMEOUT is 2: the others have given up when rank 0 comes, and come again a little later.
void comes_late(launch::Job& job) {
  if (job.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  for (bool met = false; !met;) {
    try {
      job.shrink();
      met = true;
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    }
  }
}

void run(launch::Job& job, std::string_view how, const std::vector<int>& ranks) {
  const comm::ProcessGroup old = job.group();
  const int before = old.rank(), world = old.world();
  check_sum(old, 10);
  if (how == "refused") {
    job.shrink();
  } else if (how == "threads") {
    comm::run_ranks(2, [](const comm::ProcessGroup& group) { launch::Job(group).shrink(); });
  } else if (how == "none") {
    job.shrink();
    check_left(job, old, world, before);
  } else if (how == "absent") {
    if (before != world - 1) job.shrink();
    std::this_thread::sleep_for(std::chrono::seconds(3));
    fail("it did not come");
  } else if (how == "trains") {
    train_over_death(job, ranks[0]);
  } else if (how == "busy") {
    works_for_long(job);
    check_left(job, old, world - 1, before == 0 ? 0 : before - 1);
  } else if (how == "late") {
    comes_late(job);
    check_left(job, old, world, before);
  } else {
    const bool twice = how == "twice";
    const std::set<int> first = twice ? std::set{ranks[0]} : std::set(ranks.begin(), ranks.end());
    const std::set<int> lost(ranks.begin(), ranks.end());
    try {
      sums_until_error(old, first);
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    if (first.contains(before)) kill(getpid(), SIGKILL);  // another death was heard before its own
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
