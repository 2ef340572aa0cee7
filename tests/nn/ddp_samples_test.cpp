// SPDX-License-Identifier: Apache-2.0
// backward(loss, samples): what a sum of samples belongs to, and what becomes of it when a step is
// left out, fails, or is followed by another kind.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/parallel/compress_hooks.h>
#include <peal/nn/parallel/join.h>
#include <peal/nn/parallel/power_sgd.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Two ranks, of which rank r has batches of 2 r + 2 samples: sums of samples are 2 + 4.
double samples_of(int rank) { return 2.0 * rank + 2; }

// Gradients after a step of one weighted backward, and of two whose first is under no_sync, are
// those of the mean over the samples of both ranks.
void check_step(DDP& ddp, nn::Module& alone, int rank, bool zeroed_after_forward = false) {
  const double own = samples_of(rank);
  if (!zeroed_after_forward) ddp.zero_grad();
  const Tensor of_rank = loss(ddp, rank + 1);
  if (zeroed_after_forward) ddp.zero_grad();
  ddp.backward(of_rank, own);
  alone.zero_grad();
  for (const int r : {0, 1}) (loss(alone, r + 1) * samples_of(r)).backward();
  const std::vector<Tensor> mine = ddp.parameters(), theirs = alone.parameters();
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CAPTURE(i);
    const auto got = mine[i].grad().to_vector<float>(), sum = theirs[i].grad().to_vector<float>();
    for (std::size_t k = 0; k < got.size(); ++k) {
      CHECK(got[k] == doctest::Approx(sum[k] / 6).epsilon(1e-6));
    }
  }
}

void check_plain(DDP& ddp, nn::Module& alone, int rank, const Group& group,
                 bool zeroed_after_forward = false) {
  if (!zeroed_after_forward) ddp.zero_grad();
  const Tensor of_rank = loss(ddp, rank + 1);
  if (zeroed_after_forward) ddp.zero_grad();
  of_rank.backward();
  alone.zero_grad();
  loss(alone, rank + 1).backward();
  check_averaged(ddp, alone, group);
}

struct Weighed : Twins<Mlp> {
  explicit Weighed(const Group& group) : Twins<Mlp>(group, {.buckets = apart}) {}
  // What is left where an epoch ends between two steps.
  void leave_over() {
    const auto guard = ddp->no_sync();
    for (const double value : {3, 4}) ddp->backward(loss(*ddp, value), 5);
  }
};

}  // namespace

TEST_CASE("samples of gradients that zero_grad() gave up are not counted") {
  for (const bool after : {false, true}) {
    two([&](const Group& group, int rank) {
      Weighed pair(group);
      pair.leave_over();
      check_step(*pair.ddp, pair.alone, rank, after);
      pair.ddp->zero_grad();
      pair.leave_over();
      check_plain(*pair.ddp, pair.alone, rank, group, after);
      pair.ddp->zero_grad();
      pair.leave_over();
      pair.ddp->zero_grad();
      {  // and where the next step accumulates
        const auto guard = pair.ddp->no_sync();
        loss(*pair.ddp, rank + 1).backward();
      }
      loss(*pair.ddp, rank + 1).backward();
      pair.alone.zero_grad();
      for (int k = 0; k < 2; ++k) loss(pair.alone, rank + 1).backward();
      check_averaged(*pair.ddp, pair.alone, group);
    });
  }
}

TEST_CASE("samples of a rank that follows are those of its gradients") {
  two([](const Group& group, int rank) {
    Weighed pair(group);
    nn::Join join(*pair.ddp);
    REQUIRE(join.next(true));
    pair.leave_over();
    pair.ddp->zero_grad();
    REQUIRE(join.next(rank == 0));
    if (rank == 0) {
      pair.ddp->backward(loss(*pair.ddp, 2), 3);
    } else {
      REQUIRE(join.follow());
    }
    loss(pair.alone, 2).backward();
    const std::vector<Tensor> mine = pair.ddp->parameters(), theirs = pair.alone.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto got = mine[i].grad().to_vector<float>();
      const auto want = theirs[i].grad().to_vector<float>();
      for (std::size_t k = 0; k < got.size(); ++k) {
        CHECK(got[k] == doctest::Approx(want[k]).epsilon(1e-6));
      }
    }
  });
}

TEST_CASE("a step that failed leaves no samples behind") {
  two([](const Group& group, int rank) {  // as a gradient was missing
    Weighed pair(group);
    const Tensor weight = pair.model.parameters()[2];
    const Tensor x = full({2, 4}, 1.);
    CHECK_THROWS_WITH(pair.ddp->backward(sum(matmul(x, weight, false, true)), 7),
                      doctest::Contains("no gradient came for"));
    check_step(*pair.ddp, pair.alone, rank);
    CHECK_THROWS_WITH(pair.ddp->backward(sum(matmul(x, weight, false, true)), 7),
                      doctest::Contains("zero_grad()"));
    pair.ddp->zero_grad();
    CHECK_THROWS_WITH(pair.ddp->backward(sum(matmul(x, weight, false, true)), 7),
                      doctest::Contains("no gradient came for"));
    check_plain(*pair.ddp, pair.alone, rank, group);
  });
  two([](const Group& group, int rank) {  // by an exception
    Weighed pair(group);
    bool throws = true;
    pair.model.parameters().back().grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("once");
    });
    CHECK_THROWS_WITH(pair.ddp->backward(loss(*pair.ddp, 1), 7), "once");
    throws = false;
    check_step(*pair.ddp, pair.alone, rank);
  });
}

TEST_CASE("a step over samples begins with gradients of nothing") {
  two([](const Group& group, int rank) {
    Weighed pair(group);
    check_step(*pair.ddp, pair.alone, rank);
    // The first average would be scaled by the second's samples.
    CHECK_THROWS_WITH(pair.ddp->backward(loss(*pair.ddp, 1), 2),
                      doctest::Contains("1.weight has a gradient"));
    check_step(*pair.ddp, pair.alone, rank);
    pair.ddp->zero_grad();
    {  // a plain sum would, too
      const auto guard = pair.ddp->no_sync();
      loss(*pair.ddp, 1).backward();
    }
    CHECK_THROWS_WITH(pair.ddp->backward(loss(*pair.ddp, 1), 2), doctest::Contains("zero_grad()"));
    // No samples at all are a beginning.
    pair.ddp->zero_grad();
    {
      const auto guard = pair.ddp->no_sync();
      pair.ddp->backward(loss(*pair.ddp, 1), 0);
    }
    pair.ddp->backward(loss(*pair.ddp, 1), 2);
  });
}

TEST_CASE("plain and weighted backwards of one accumulation are an error, once") {
  two([](const Group& group, int rank) {
    Weighed pair(group);
    pair.leave_over();
    CHECK_THROWS_WITH(loss(*pair.ddp, 1).backward(), doctest::Contains("each time"));
    check_plain(*pair.ddp, pair.alone, rank, group);
    pair.ddp->zero_grad();
    pair.leave_over();
    {
      const auto guard = pair.ddp->no_sync();
      CHECK_THROWS_WITH(loss(*pair.ddp, 1).backward(), doctest::Contains("each time"));
    }
    check_step(*pair.ddp, pair.alone, rank);
  });
}

TEST_CASE("sums over many samples overflow no type of few bits, and are divided by what they are") {
  struct Slope : nn::Module {  // 16 w x
    explicit Slope(DType dtype) : w(add_parameter("w", ones({4}, dtype))) {}
    Tensor forward(const Tensor& x) override { return x * w * 16.0; }
    Tensor w;
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool hook : {false, true}) {
      CAPTURE(concat(dtype, hook ? " with a hook" : ""));
      ranks(4, [&](const Group& group, int rank) {
        Slope net(dtype);
        DDP ddp(net, group);
        if (hook) ddp.register_comm_hook(nn::fp16_compress_hook(group));
        nn::Join join(ddp);
        // Rank 0 has nothing in the first turn, and less than others have then in the second.
        const double samples[3][4] = {{0, 8192, 90000, 5}, {257, 0, 0, 0}, {70000, 3, 0, 1}};
        for (int turn = 0; join.next(turn > 0 || rank != 0); ++turn) {
          if (turn == 3) break;
          ddp.zero_grad();
          if (join.active()) {
            ddp.backward(sum(ddp(full({4}, 1, dtype))), samples[turn][rank]);
          } else {
            REQUIRE(join.follow());
          }
          for (const float value : cast(net.w.grad(), DType::f32).to_vector<float>()) {
            CHECK(value == doctest::Approx(16).epsilon(0.01));
            if (turn == 1) CHECK(value == 16);
          }
        }
      });
    }
  }
}

TEST_CASE("the number of samples costs no collective of its own, but on devices or in few bits") {
  struct Run {
    const char* name;
    std::function<void(DDP&, const Group&)> set;
    DType dtype;
    std::uint64_t expected;  // collectives of a step, beside the four buckets
  };
  const std::vector<Run> runs{
      {"average", [](DDP&, const Group&) {}, DType::f32, 0},
      {"f64", [](DDP&, const Group&) {}, DType::f64, 0},
      {"bf16", [](DDP&, const Group&) {}, DType::bf16, 1},
      // With the word on missing gradients.
      {"hook",
       [](DDP& ddp, const Group& group) {
         ddp.register_comm_hook([group](nn::GradBucket& bucket) {
           return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
         });
       },
       DType::f32, 1},
  };
  for (const Run& run : runs) {
    CAPTURE(run.name);
    two([&](const Group& group, int rank) {
      Mlp net;
      net.to(run.dtype);
      DDP ddp(net, group, {.buckets = apart, .order = start_order(net)});
      run.set(ddp, group);
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        const Tensor y = ddp(full({2, 3}, 1.0, run.dtype));
        const std::uint64_t before = group.sequence();
        ddp.backward(sum(y * y), samples_of(rank));
        // Before the first the ranks tell each other how many there will be.
        CHECK(group.sequence() - before == 4 + run.expected + (step == 0 ? 1 : 0));
      }
    });
  }
}

TEST_CASE("numbers of samples of any kind are summed exactly, wherever they travel") {
  // Whole ones, halves, ones of many bits (which do not fit behind a bucket), and few after many.
  const std::vector<std::vector<double>> cases{{3, 5, 1},      {0.5, 0, 2.25}, {1e-3, 1.0 / 3, 7},
                                               {4e9, 1e9, 2},  {1, 0, 0},      {0, 0, 0},
                                               {1e-30, 2, 3e9}};
  ranks(3, [&](const Group& group, int rank) {
    Mlp net;
    net.to(DType::f64);
    DDP ddp(net, group);
    for (const auto& samples : cases) {
      ddp.zero_grad();
      const Tensor y = ddp(full({2, 3}, rank + 1.0, DType::f64));
      ddp.backward(sum(y), samples[static_cast<std::size_t>(rank)]);
      const double total = samples[0] + samples[1] + samples[2];
      // Each rank's gradient of the last bias is twice 1.
      const double expected = total == 0 ? 0 : 2;
      for (const double g : net.parameters()[3].grad().to_vector<double>()) {
        CAPTURE(total);
        CHECK(std::abs(g - expected) <= 4e-15);
      }
    }
  });
}

TEST_CASE("a step over samples on one rank and a plain one on another are told apart") {
  const std::string message = failure([](const Group& group, int rank) {
    Mlp net;
    DDP ddp(net, group);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      const Tensor of_rank = loss(ddp, 1);
      if (step == 1 && rank == 1) {
        of_rank.backward();
      } else {
        ddp.backward(of_rank, 2);
      }
    }
  });
  CAPTURE(message);
  CHECK(message.find("step 2 over samples, bucket 0") != std::string::npos);
  CHECK(message.find("step 2, bucket 0") != std::string::npos);
}

TEST_CASE("a backward over samples multiplies nothing but what its wrapper averages") {
  CHECK_THROWS_WITH(two([](const Group& group, int) {  // not what another does
                      Weighed first(group), second(group);
                      first.ddp->backward(loss(*first.ddp, 1) + loss(*second.ddp, 1), 3);
                    }),
                    doctest::Contains("another wrapper"));
  two([](const Group& group, int) {  // nor what none averages
    Twins<Mlp> pair(group, {.ignored = {"1.weight"}});
    const auto leaf = [] {
      const Tensor x = full({2, 3}, 1.);
      x.set_requires_grad();
      return x;
    };
    const Tensor x = leaf(), plain = leaf();
    for (int micro = 0; micro < 2; ++micro) {
      const Tensor y = (*pair.ddp)(x), z = pair.alone(plain);
      pair.ddp->backward(sum(y * y), 3);  // six samples: the factor is 3/4
      sum(z * z).backward();
      const auto grad_of = [](const nn::Module& model) {
        return model.parameters()[0].grad().to_vector<float>();
      };
      CHECK(grad_of(pair.model) == grad_of(pair.alone));
      CHECK(x.grad().to_vector<float>() == plain.grad().to_vector<float>());
      for (std::size_t p = 1; p < 4; ++p) pair.model.parameters()[p].zero_grad();
    }
  });
}

TEST_CASE("a loss over samples that goes through ignored parameters alone is as without samples") {
  struct Own : nn::Module {
    nn::Linear shared = add("shared", nn::Linear(3, 2)), own = add("own", nn::Linear(3, 2));
    bool recompute = false;
    Tensor forward(const Tensor& x) override { return shared(x) + aside(x); }
    Tensor aside(const Tensor& x) { return recompute ? again(own, x) : own(x); }
  };
  for (const bool recompute : {false, true}) {
    two([&](const Group& group, int rank) {
      Own model, alone;
      make_whole(model);
      make_whole(alone);
      model.recompute = recompute;
      DDP ddp(model, group, {.ignored = {"own.weight", "own.bias"}});
      const Tensor x =
          full({2, 3}, rank + 1.).set_requires_grad();  // so that a segment is recorded
      const auto check_own = [&](double samples) {
        ddp.backward(sum(model.aside(x) * model.aside(x)), samples);
        sum(alone.own(x) * alone.own(x)).backward();
        const auto got = model.own.weight.grad().to_vector<float>();
        if (samples > 0) CHECK(got == alone.own.weight.grad().to_vector<float>());
        CHECK(!model.shared.weight.grad().defined());
        ddp.zero_grad();
        alone.zero_grad();
      };
      const auto check_shared = [&] {
        ddp.backward(loss(ddp, rank + 1), samples_of(rank));
        for (const int r : {0, 1}) (loss(alone, r + 1) * samples_of(r)).backward();
        const auto got = model.shared.weight.grad().to_vector<float>();
        const auto sum = alone.shared.weight.grad().to_vector<float>();
        for (std::size_t k = 0; k < got.size(); ++k) {
          CHECK(got[k] == doctest::Approx(sum[k] / 6).epsilon(1e-6));
        }
        ddp.zero_grad();
        alone.zero_grad();
      };
      check_own(3);
      check_own(rank == 0 ? 5 : 0);
      check_shared();
      check_own(7);
      check_own(rank == 0 ? 0 : 2);
      check_shared();
      // A number that is none is told where no other rank waits to hear it, too.
      CHECK_THROWS_WITH(check_own(-1), doctest::Contains("expected a number of samples"));
      ddp.zero_grad();
      ddp.backward(loss(ddp, 1), 2);
      CHECK_THROWS_WITH(check_own(2), doctest::Contains("call zero_grad() before the first"));
      ddp.zero_grad();
      alone.zero_grad();
      check_shared();
      {  // In an accumulation, too, its samples are none of the sum's.
        const auto guard = ddp.no_sync();
        ddp.backward(loss(ddp, rank + 1), 4);
      }
      ddp.backward(sum(model.aside(x) * model.aside(x)), 4);
      ddp.backward(loss(ddp, rank + 2), 4);
      for (const int r : {0, 1}) (loss(alone, r + 1) + loss(alone, r + 2)).backward();
      CHECK(model.shared.weight.grad().to_vector<float>() ==
            (alone.shared.weight.grad() / 4.0).to_vector<float>());
    });
  }
}

TEST_CASE("what PowerSGD left out counts once, whatever the next sum is divided by") {
  struct One : nn::Module {
    Tensor w = add_parameter("w", Tensor::zeros({8, 8}));
  };
  // The part that it sends of what it left out: of the right length, it is the projection.
  const auto check_once = [](const Tensor& next, const Tensor& left) {
    const float length = sum(next * next).item<float>();
    CHECK(length > 0.01F);
    CHECK(sum(next * left).item<float>() == doctest::Approx(length).epsilon(1e-3));
  };
  for (const double samples : {1., 2000.}) {
    two([&](const Group& group, int) {
      One net;
      DDP ddp(net, group);
      const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
      ddp.register_comm_hook(power.hook());
      const Tensor g = randn({8, 8});
      const auto step = [&](const Tensor& grad, double n) {
        ddp.zero_grad();
        ddp.backward(sum(net.w * grad), n);
        return net.w.grad().clone();
      };
      step(g, 32);
      const Tensor left = g - step(g, 32);
      step(g * 0., 0);  // no sample at all keeps it
      check_once(step(g * 0., samples), left);
    });
  }
  two([&](const Group& group, int rank) {
    One net;
    DDP ddp(net, group);
    const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    ddp.register_comm_hook(power.hook());
    nn::Join join(ddp, {.divide_by_initial_world_size = false});
    const Tensor g = randn({8, 8});
    Tensor left;
    for (int turn = 0; join.next(rank == 0 || turn < 2); ++turn) {
      if (turn == 3) break;
      ddp.zero_grad();
      if (join.active()) {
        sum(net.w * (turn == 2 ? g * 0. : g)).backward();
      } else {
        REQUIRE(join.follow());
      }
      if (turn == 1) left = g - net.w.grad();
    }
    check_once(net.w.grad(), left);
  });
}

TEST_CASE("what PowerSGD keeps stays as it is in a step that failed") {
  struct One : nn::Module {
    Tensor w = add_parameter("w", Tensor::zeros({8, 8}));
  };
  two([](const Group& group, int rank) {
    One net;
    DDP ddp(net, group);
    const nn::PowerSGD power(group, {.start_powerSGD_iter = 1});
    ddp.register_comm_hook(power.hook());
    const auto step = [&](double samples) {
      ddp.zero_grad();
      ddp.backward(sum(net.w * randn({8, 8})), samples);
    };
    const auto kept = [&] {
      std::vector<std::vector<float>> values;
      for (const auto& [name, tensor] : power.state_dict()) {
        if (name != "iteration") values.push_back(tensor.to_vector<float>());
      }
      return values;
    };
    for (int k = 0; k < 2; ++k) step(32);
    const auto before = kept();
    CHECK(before.size() == 2);
    CHECK_THROWS_WITH(step(rank == 1 ? std::nan("") : 32), doctest::Contains("expected a number"));
    CHECK(kept() == before);
  });
}
