// SPDX-License-Identifier: Apache-2.0
// One Join of several wrappers; what all ranks must give it alike; and what ends or warns where
// batches run out.
#include <peal/nn/parallel/join.h>
#include <peal/tests/folder.h>

#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct Two {
  Two(const Group& group, const nn::DDPOptions& options) {
    make_whole(first);
    make_whole(second);
    a = std::make_unique<DDP>(first, group, options);
    b = std::make_unique<DDP>(second, group, options);
  }
  void zero_grad() {
    a->zero_grad();
    b->zero_grad();
  }
  Mlp first, second;
  std::unique_ptr<DDP> a, b;
};

Tensor both(nn::Module& a, nn::Module& b, double value) { return loss(a, value) + loss(b, value); }

// The gradients of `model` are those of one process with these batches, divided.
void check_sum(const nn::Module& model, const std::vector<double>& batches, double divisor) {
  Mlp alone;
  make_whole(alone);
  for (const double value : batches) loss(alone, value).backward();
  const auto mine = model.parameters(), own = alone.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CAPTURE(i);
    REQUIRE(mine[i].grad().defined());
    CHECK(mine[i].grad().to_vector<float>() == (own[i].grad() / divisor).to_vector<float>());
  }
}

std::string failure_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

void check_has(const std::string& text, const std::string& words) {
  CAPTURE(text);
  CAPTURE(words);
  CHECK(text.find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("ranks without a batch follow the backwards of several wrappers, apart and in one") {
  for (const bool initial : {true, false}) {
    for (const nn::DDPOptions& options :
         {nn::DDPOptions{.buckets = apart}, nn::DDPOptions{.find_unused_parameters = true}}) {
      ranks(4, [&](const Group& group, int rank) {
        Two two(group, options);
        nn::Join join({*two.a, *two.b}, {.divide_by_initial_world_size = initial});
        // Ranks 2 and 3 have one batch, the others three.
        int turn = 0;
        for (; join.next(turn < (rank < 2 ? 3 : 1)); ++turn) {
          std::vector<double> batches;
          for (int r = 0; r < (turn == 0 ? 4 : 2); ++r) batches.push_back(r + turn + 1);
          const double divisor = initial ? 4 : static_cast<double>(batches.size());
          two.zero_grad();
          if (join.active()) {
            loss(*two.b, rank + turn + 1).backward();
            loss(*two.a, rank + turn + 1).backward();
          } else {
            CHECK(join.follow());
            CHECK(join.follow());
          }
          check_sum(*two.a, batches, divisor);
          check_sum(*two.b, batches, divisor);
          two.zero_grad();
          if (join.active()) {
            both(*two.a, *two.b, rank + turn + 1).backward();
          } else {
            CHECK(join.follow());  // one backward, which goes through both
          }
          check_sum(*two.a, batches, divisor);
          check_sum(*two.b, batches, divisor);
        }
        CHECK(turn == 3);
        two.zero_grad();  // and on without
        loss(*two.a, rank + 1).backward();
        check_sum(*two.a, {1, 2, 3, 4}, 4);
      });
    }
  }
}

TEST_CASE("a turn may leave one of several wrappers out") {
  two([](const Group& group, int rank) {
    Two two(group, {.buckets = apart});
    nn::Join join({*two.a, *two.b});
    for (int turn = 0; join.next(rank == 0 || turn == 0); ++turn) {
      if (turn == 6) break;  // left where rank 1 has no batch
      two.zero_grad();
      DDP& chosen = turn % 3 == 0 ? *two.a : *two.b;
      if (join.active()) {
        loss(chosen, rank + 1).backward();
      } else {
        CHECK(join.follow());
        check_sum(chosen, {1}, 2);
      }
    }
  });
}

TEST_CASE("a wrapper that is trained in a Join's loop, and none of its own, is told on all") {
  std::atomic<int> told{0};
  CHECK_THROWS(ranks(3, [&](const Group& group, int rank) {
    Two two(group, {.buckets = apart});
    nn::Join join(*two.a);
    CHECK(join.next(true));
    both(*two.a, *two.b, 1).backward();  // all have a batch: as ever
    CHECK(join.next(rank != 1));
    check_has(
        failure_of([&] {
          if (join.active()) {
            loss(*two.b, 1).backward();
          } else {
            join.follow();
          }
          group.barrier().wait();
        }),
        "rank 1: Join: ranks that have a batch train a model that is wrapped over this group");
    ++told;
  }));
  CHECK(told == 3);
}

TEST_CASE("options and wrappers that differ between ranks are an error in the first turn") {
  ranks(3, [](const Group& group, int rank) {
    Two two(group, {});
    {
      nn::Join join(*two.a, {.divide_by_initial_world_size = rank != 2});
      check_has(failure_of([&] { join.next(true); }),
                "[ddp] Join is 'divide_by_initial_world_size true' on rank 0 and "
                "'divide_by_initial_world_size false' on rank 2");
    }
    {
      nn::Join join(*two.a, {.throw_on_early_termination = rank == 1});
      check_has(failure_of([&] { join.next(rank == 0); }),
                "'throw_on_early_termination true' on rank 1");
    }
    {
      std::vector<DDP> some{*two.a};
      if (rank > 0) some.push_back(*two.b);
      nn::Join join(some);
      check_has(failure_of([&] { join.next(true); }), "'1 wrappers' on rank 0 and '2 wrappers' on");
    }
    {
      nn::Join join(rank > 0 ? std::vector<DDP>{*two.b, *two.a} : std::vector<DDP>{*two.a, *two.b});
      check_has(failure_of([&] { join.next(true); }), "in one order, on every rank");
    }
    loss(*two.a, 1).backward();  // the group goes on
    CHECK_THROWS_WITH(nn::Join({*two.a, *two.a}, {}).next(true),
                      doctest::Contains("is wrapper 0 once more"));
    CHECK_THROWS_WITH(nn::Join(std::vector<DDP>{}), doctest::Contains("got none"));
    Mlp other;
    DDP apart_from(other, group.split(0));
    CHECK_THROWS_WITH(nn::Join({*two.a, apart_from}, {}).next(true),
                      doctest::Contains("over another group"));
    CHECK(nn::Join(*two.a).next(true));  // none of them listens any more
  });
}

TEST_CASE("throw_on_early_termination ends the loop on all ranks, in the first turn that differs") {
  ranks(3, [](const Group& group, int rank) {
    Mlp model;
    DDP ddp(model, group);
    nn::Join join(ddp, {.throw_on_early_termination = true});
    for (int epoch = 0; epoch < 2; ++epoch) {
      int turn = 0;
      const int mine = rank == 1 ? 3 : 2;
      check_has(failure_of([&] {
                  while (join.next(turn < mine)) {
                    ++turn;
                    loss(ddp, 1).backward();
                  }
                }),
                "[ddp] Join: in turn 3 no batch is left on rank 0, 2, and others have one");
      CHECK(turn == 2);
    }
    int turn = 0;
    for (; join.next(turn < 2); ++turn) loss(ddp, 1).backward();  // even: no error
    CHECK(turn == 2);
  });
}

TEST_CASE("a rank that has had no batch for 1000 turns is warned of, once") {
  const std::string told = stderr_of([] {
    two([](const Group& group, int rank) {
      Mlp model;
      DDP ddp(model, group);
      nn::Join join(ddp);
      for (int turn = 0; join.next(rank == 0 && turn < 1005);) ++turn;
    });
  });
  const std::string words = "rank 1: Join: this rank has had no batch for 1000 turns";
  check_has(told, words);
  CHECK(told.find(words) == told.rfind(words));
  CHECK(told.find("rank 0: Join") == std::string::npos);
}

TEST_CASE("a gradient that one wrapper misses leaves another's step whole") {
  two([](const Group& group, int rank) {
    Two two(group, {.buckets = apart});
    for (const bool first : {true, false}) {
      nn::Module& kept = first ? *two.b : *two.a;
      const nn::Module& partly = first ? two.first : two.second;
      two.zero_grad();
      CHECK_THROWS_WITH((loss(kept, rank + 1) + sum(partly.parameters()[2])).backward(),
                        doctest::Contains("no gradient came for"));
      check_sum(kept, {1, 2}, 2);
    }
    two.zero_grad();
    both(*two.a, *two.b, rank + 1).backward();
    check_sum(two.first, {1, 2}, 2);
    check_sum(two.second, {1, 2}, 2);
  });
}
