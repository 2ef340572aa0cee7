// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, each with a Job: what they are told, that launches can follow and hold each
// other, and how a rank's error comes out.
#include <doctest/doctest.h>
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/spawn.h>
#include <peal/nn/loss.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/tests/errors.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::testing;
using launch::Job;

TEST_CASE("each rank has a job of its own") {
  std::mutex mutex;
  std::set<int> ranks;
  launch::notebook_launcher(3, [&](Job& job) {
    CHECK(job.world() == 3);
    CHECK(job.where().local_rank == job.rank());
    CHECK(job.where().launcher == "threads");
    CHECK(job.is_main() == (job.rank() == 0));
    CHECK(job.place() == Place{job.rank(), 3});
    CHECK(job.device("cpu") == Device{});
    const Tensor x = full({2}, 1. * job.rank());
    job.group().all_reduce(x).wait();
    CHECK(x.to_vector<float>() == std::vector<float>{3, 3});
    const std::lock_guard lock(mutex);
    ranks.insert(job.rank());
  });
  CHECK(ranks == std::set<int>{0, 1, 2});
}

TEST_CASE("launches follow each other in one process, and train what one rank trains") {
  const auto train = [](int world) {
    std::vector<float> weights;
    manual_seed(4);
    launch::notebook_launcher(world, [&](Job& job) {
      nn::Module net = nn::mlp({2, 4, 1});
      nn::DistributedDataParallel ddp(net, job.group());
      nn::SGD optimizer(ddp.parameters(), {.lr = 0.1});
      const Tensor x = randn({12, 2}), y = randn({12, 1});
      const std::int64_t each = 12 / world;
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        const std::int64_t begin = job.rank() * each;
        nn::MSELoss()(ddp(x.rows(begin, begin + each)), y.rows(begin, begin + each)).backward();
        optimizer.step();
      }
      if (job.is_main()) weights = net.parameters()[0].to_vector<float>();
    });
    return weights;
  };
  const auto alone = train(1);
  for (const int world : {2, 4, 3, 2}) {
    const auto together = train(world);
    REQUIRE(together.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(together[i] == doctest::Approx(alone[i]).epsilon(1e-4));
    }
  }
}

TEST_CASE("ranks may have ranks of their own") {
  std::atomic<int> count{0};
  launch::spawn(2, [&](Job& outer) {
    launch::spawn(2 + outer.rank(), [&](Job& inner) {
      const Tensor x = ones({1});
      inner.group().all_reduce(x).wait();
      CHECK(x.item<int>() == 2 + outer.rank());
      ++count;
    });
    outer.group().barrier().wait();
  });
  CHECK(count == 5);
  check_has(
      error_of([] { launch::spawn(2, [](Job&) { launch::notebook_launcher(2, [](Job&) {}); }); }),
      "of a launch already; call it outside");
}

TEST_CASE("an error of one rank is everybody's, and comes out with its rank") {
  for (const int guilty : {0, 1, 2}) {
    std::atomic<int> there{0}, told{0};
    const auto run = [&] {
      there = 0;
      launch::notebook_launcher(3, [&](Job& job) {
        ++there;
        while (there < 3) std::this_thread::yield();  // nobody fails before all have begun
        if (job.rank() == guilty) throw std::runtime_error("no more samples");
        const std::string other = error_of([&] { job.group().barrier().wait(); });
        check_has(other, "no more samples");
        ++told;
      });
    };
    check_has(error_of(run), concat("[rank ", guilty, "] no more samples"));
    CHECK(told == 2);
    try {
      run();
    } catch (const Error& error) {
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::runtime_error);
    }
  }
  check_has(error_of([] { launch::spawn(0, [](Job&) {}); }), "a world of 0");
  check_has(error_of([] { launch::spawn(2, nullptr); }), "expected a function, got none");
}

TEST_CASE("a rank that is done while others go on is an error on these, which says so") {
  std::vector<std::string> told(3, "nothing");
  static_cast<void>(error_of([&] {
    launch::notebook_launcher(3, [&](Job& job) {
      for (int step = 0; step < 10; ++step) {
        if (job.rank() == 2 && step == 5) return;
        std::string& mine = told[static_cast<std::size_t>(job.rank())];
        mine = error_of(
            [&] { job.group().all_reduce(ones({4}), comm::ReduceOp::sum, "step").wait(); });
        if (mine != "nothing") throw Error(mine);
      }
    });
  }));
  CHECK(told[2] == "nothing");
  for (const std::size_t rank : {0, 1}) {
    check_has(told[rank], "rank 2");
    check_has(told[rank], "the end of its program");
    check_has(told[rank], "step");
  }
}

TEST_CASE("under a launcher of several processes it refuses to start as many again") {
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  ::setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  const std::string message = error_of([] { launch::notebook_launcher(2, [](Job&) {}); });
  ::unsetenv("OMPI_COMM_WORLD_RANK");
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  check_has(message, "Open MPI started 4 processes, and each would start 2 ranks");
}
