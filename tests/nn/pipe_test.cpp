// SPDX-License-Identifier: Apache-2.0
// Pipe: whatever the schedule, the ranks and the micro-batches, a step is that of one process.
#include <peal/autograd/ops/ops.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/comm/pipeline/simulate.h>
#include <peal/nn/layers/activation.h>
#include <peal/nn/layers/dropout.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/clip_grad.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/pipeline/pipe.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

constexpr std::int64_t rows = 10;

// Sixteen layers of uneven widths, the same on all ranks.
nn::Sequential model() {
  manual_seed(3);
  nn::Sequential net;
  const std::int64_t widths[] = {5, 7, 4, 6, 6, 3, 8, 5, 2};
  for (int i = 0; i < 8; ++i) {
    net.push_back(nn::Linear(widths[i], widths[i + 1]));
    net.push_back(nn::Tanh());
  }
  net.to(DType::f64);
  return net;
}

Tensor numbers(const Shape& shape, double scale) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    values.push_back(scale * static_cast<double>((i * 7 + 3) % 11 - 5));
  }
  return Tensor::from(values, shape);
}

Tensor squares(const Tensor& y, const Tensor& target) {
  const Tensor off = y - target;
  return sum(off * off);
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::map<std::string, std::vector<double>>> parameters;  // after each step
};

constexpr int most_steps = 20;
constexpr nn::SGDOptions sgd{.lr = 0.1, .momentum = 0.9};

const Trained& by_one_process() {
  static const Trained trained = [] {
    nn::Sequential net = model();
    nn::SGD optimizer(net.named_parameters(), sgd);
    Trained all;
    for (int step = 0; step < most_steps; ++step) {
      optimizer.zero_grad();
      const Tensor loss =
          squares(net(numbers({rows, 5}, 0.1 + step)), numbers({rows, 2}, 0.2)) * (1.0 / rows);
      loss.backward();
      all.losses.push_back(loss.item<double>());
      optimizer.step();
      auto& parameters = all.parameters.emplace_back();
      for (const auto& [name, p] : net.named_parameters()) {
        parameters[name] = p.to_vector<double>();
      }
    }
    return all;
  }();
  return trained;
}

double farthest(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Errors of a rank are of all; what it checks is told by exceptions, for ranks are threads.
void check_like_one_process(const Group& group, const nn::PipeOptions& options, int steps = 2) {
  const Trained& one = by_one_process();
  nn::Pipe pipe(group, model(), options);
  std::optional<nn::SGD> optimizer;  // a rank may have no parameters
  if (!pipe.local().parameters().empty()) optimizer.emplace(pipe.local().named_parameters(), sgd);
  for (int step = 0; step < steps; ++step) {
    if (optimizer) optimizer->zero_grad();
    const double loss = pipe.step(numbers({rows, 5}, 0.1 + step), numbers({rows, 2}, 0.2), squares);
    const double off = std::abs(loss - one.losses[static_cast<std::size_t>(step)]);
    PEAL_CHECK(off < 1e-10, "step ", step, ": loss off by ", off);
    if (optimizer) optimizer->step();
  }
  for (const auto& [name, p] : pipe.local().named_parameters()) {
    const double off = farthest(p.to_vector<double>(),
                                one.parameters[static_cast<std::size_t>(steps - 1)].at(name));
    PEAL_CHECK(off < 1e-10, name, " is off by ", off);
  }
  const int bound = stash_bound(pipe.problem(), group.rank());
  PEAL_CHECK(pipe.stash() <= bound, "stash ", pipe.stash(), ", by formula ", bound);
}

}  // namespace

TEST_CASE("steps of every schedule are those of one process, at 1 to 4 ranks") {
  int combinations = 0;
  for (const Kind kind : comm::pipeline::all_kinds) {
    for (int world = 1; world <= 4; ++world) {
      for (const int micro_batches : {1, 4, 7}) {
        for (const int chunks : kind == Kind::interleaved ? std::vector{2, 4} : std::vector{0}) {
          CAPTURE(name(kind));
          CAPTURE(world);
          CAPTURE(micro_batches);
          ++combinations;
          CHECK_NOTHROW(ranks(world, [&](const Group& group, int) {
            check_like_one_process(
                group, {.kind = kind, .micro_batches = micro_batches, .chunks = chunks});
          }));
        }
      }
    }
  }
  MESSAGE(combinations, " combinations of schedule, ranks and micro-batches");
}

TEST_CASE("twenty steps of every schedule are those of one process") {
  ranks(3, [](const Group& group, int) {
    for (const Kind kind : comm::pipeline::all_kinds) {
      check_like_one_process(group, {.kind = kind, .micro_batches = 10}, most_steps);
    }
  });
}

TEST_CASE("layers keep their names, and any balance will do") {
  ranks(3, [](const Group& group, int rank) {
    nn::Pipe pipe(group, model(), {.micro_batches = 3, .balance = {2, 13, 1}});
    const auto named = pipe.local().named_parameters();
    if (rank == 0) PEAL_CHECK(named.size() == 2 && named[1].first == "0.bias");
    if (rank == 1) PEAL_CHECK(named.size() == 14 && named[0].first == "2.weight");
    if (rank == 2) PEAL_CHECK(named.empty());  // a Tanh
    check_like_one_process(group, {.micro_batches = 3, .balance = {2, 13, 1}});
    check_like_one_process(group,
                           {.kind = Kind::zb_v, .micro_batches = 4, .balance = {1, 5, 2, 2, 3, 3}});
  });
}

TEST_CASE("a step has one divisor, and gradients of several steps add up") {
  // Sums 4 over one token and 3 over three are 1.75 a token, not 2.5, the mean of means.
  ranks(2, [](const Group& group, int) {
    nn::Sequential net{nn::Linear(1, 1), nn::Tanh()};
    nn::Pipe pipe(group, net, {.micro_batches = 2});
    const Tensor x = Tensor::zeros({2, 1}), target = Tensor::from(std::vector<float>{4, 3}, {2, 1});
    const auto loss = [](const Tensor& y, const Tensor& t) { return sum(y) * 0.0 + sum(t); };
    const double mean = pipe.step(x, target, loss, 4);
    PEAL_CHECK(mean == 1.75, "got ", mean);
  });
  // Four micro-batches of gradient 1 in two steps: 2, however often a step scales nothing again.
  for (const Kind kind : {Kind::gpipe, Kind::one_f_one_b, Kind::zb_h1}) {
    ranks(2, [kind](const Group& group, int rank) {
      const Tensor weight = full({1, 1}, 1.0);
      nn::Sequential net{nn::Linear(weight), nn::Linear(full({1, 1}, 1.0))};
      nn::Pipe pipe(group, net, {.kind = kind, .micro_batches = 4});
      const auto loss = [](const Tensor& y, const Tensor&) { return sum(y); };
      const Tensor ones = full({4, 1}, 1.0);
      for (int step = 1; step <= 2; ++step) {
        pipe.step(ones, ones, loss);
        const auto grad = pipe.local().parameters()[0].grad().item<float>();
        PEAL_CHECK(grad == static_cast<float>(step), "rank ", rank, ": expected ", step, ", got ",
                   grad);
      }
    });
  }
}

TEST_CASE("frozen layers, and outputs that do not depend on an input") {
  struct Constant : nn::Module {
    Tensor forward(const Tensor& x) override { return full({x.size(0), 3}, 2.0); }
  };
  for (const Kind kind : {Kind::one_f_one_b, Kind::zb_h1}) {
    ranks(3, [kind](const Group& group, int rank) {
      nn::Sequential net{nn::Linear(2, 3), nn::Linear(3, 3), nn::Linear(3, 1)};
      net.requires_grad_("0", false);
      nn::Pipe pipe(group, net, {.kind = kind, .micro_batches = 2});
      const auto loss = [](const Tensor& y, const Tensor&) { return sum(y); };
      const Tensor x = full({4, 2}, 1.0);
      pipe.step(x, x, loss);
      const Tensor grad = pipe.local().parameters()[0].requires_grad()
                              ? pipe.local().parameters()[0].grad()
                              : Tensor();
      PEAL_CHECK(grad.defined() == (rank > 0), "rank ", rank);

      nn::Sequential cut{nn::Linear(2, 3), Constant(), nn::Linear(3, 1)};
      nn::Pipe ends(group, cut, {.kind = kind, .micro_batches = 2});
      ends.step(x, x, loss);
      if (rank == 0) {
        const auto zero = ends.local().parameters()[0].grad().to_vector<float>();
        PEAL_CHECK(std::ranges::all_of(zero, [](float g) { return g == 0; }), "expected zeros");
      }
    });
  }
}

TEST_CASE("what layers draw does not depend on how the model is cut") {
  struct Step {
    double loss = 0;
    std::map<std::string, std::vector<double>> gradients;
    std::uint64_t next = 0;  // of the generator
  };
  const auto net = [] {
    nn::Sequential net = model();
    for (int i = 0; i < 4; ++i) {
      net.push_back(nn::Linear(2, 2));
      net.push_back(nn::Dropout(0.5));
    }
    net.to(DType::f64);
    return net;
  };
  // The second of two steps, so that the first leaves all ranks alike.
  const auto of = [&](const Group& group, const nn::PipeOptions& options) {
    nn::Pipe pipe(group, net(), options);
    Step last;
    for (int i = 0; i < 2; ++i) {
      last.loss = pipe.step(numbers({rows, 5}, 0.3), numbers({rows, 2}, 0.2), squares);
    }
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      last.gradients[name] = p.grad().to_vector<double>();
    }
    last.next = context().generator.offset;
    return last;
  };
  for (const int micro_batches : {1, 3}) {
    Step one;
    ranks(1, [&](const Group& group, int) { one = of(group, {.micro_batches = micro_batches}); });
    for (const Kind kind : comm::pipeline::all_kinds) {
      for (int world = 1; world <= 4; ++world) {
        ranks(world, [&](const Group& group, int rank) {
          const Step here = of(group, {.kind = kind, .micro_batches = micro_batches});
          PEAL_CHECK(std::abs(here.loss - one.loss) < 1e-10, name(kind), ", ", world,
                     " ranks: loss ", here.loss, ", of one ", one.loss);
          PEAL_CHECK(here.next == one.next, "rank ", rank, " goes on at ", here.next);
          for (const auto& [name, gradient] : here.gradients) {
            PEAL_CHECK(farthest(gradient, one.gradients.at(name)) < 1e-10, name, " is off");
          }
        });
      }
    }
  }
}

TEST_CASE("every layer, micro-batch and step draws numbers of its own, and so does every seed") {
  struct Draws : nn::Module {
    explicit Draws(std::vector<float>& all) : seen(all) {}
    Tensor forward(const Tensor& x) override {
      seen.push_back(rand({1}).item<float>());
      return x * 1.0;
    }
    std::vector<float>& seen;
  };
  std::vector<float> seen;
  ranks(1, [&](const Group& group, int) {
    for (const std::uint64_t seed : {1, 5, 9, 13}) {  // offsets grow by four a step
      manual_seed(seed);
      nn::Sequential net{Draws(seen), nn::Linear(5, 2), Draws(seen), Draws(seen)};
      nn::Pipe pipe(group, net, {.kind = Kind::gpipe, .micro_batches = 3});
      const auto loss = [&](const Tensor& y, const Tensor&) {
        seen.push_back(rand({1}).item<float>());
        return sum(y);
      };
      const Tensor x = Tensor::zeros({3, 5});
      manual_seed(seed);
      for (int step = 0; step < 4; ++step) pipe.step(x, x, loss);
    }
  });
  REQUIRE(seen.size() == std::size_t{4 * 4 * 3 * 4});
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("the loss alone, and a batch of fewer rows than micro-batches") {
  for (const Kind kind : comm::pipeline::all_kinds) {
    ranks(3, [kind](const Group& group, int) {
      nn::Pipe pipe(group, model(), {.kind = kind, .micro_batches = 4});
      for (const std::int64_t few : {1, 2, 3, 9}) {
        const Tensor x = numbers({few, 5}, 0.3), target = numbers({few, 2}, 0.2);
        nn::Sequential whole = model();
        const double expected = squares(whole(x), target).item<double>() / static_cast<double>(few);
        PEAL_CHECK(std::abs(pipe.evaluate(x, target, squares) - expected) < 1e-12);
        for (const Tensor& p : pipe.local().parameters()) PEAL_CHECK(!p.grad().defined());
        PEAL_CHECK(std::abs(pipe.step(x, target, squares) - expected) < 1e-12);
        for (Tensor& p : pipe.local().parameters()) p.zero_grad();
      }
    });
  }
}

TEST_CASE("gradients are clipped by the norm of all ranks' layers") {
  for (const double norm_type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    nn::Sequential whole = model();
    (squares(whole(numbers({rows, 5}, 0.3)), numbers({rows, 2}, 0.2)) * (1.0 / rows)).backward();
    std::map<std::string, std::vector<double>> expected;
    const double norm = nn::clip_grad_norm_(whole.parameters(), 0.01, norm_type).item<double>();
    for (const auto& [name, p] : whole.named_parameters()) {
      expected[name] = p.grad().to_vector<double>();
    }
    ranks(3, [&](const Group& group, int) {
      nn::Pipe pipe(group, model(), {.kind = Kind::zb_v, .micro_batches = 2});
      pipe.step(numbers({rows, 5}, 0.3), numbers({rows, 2}, 0.2), squares);
      PEAL_CHECK(std::abs(pipe.clip_grad_norm_(0.01, norm_type) - norm) < 1e-10);
      for (const auto& [name, p] : pipe.local().named_parameters()) {
        PEAL_CHECK(farthest(p.grad().to_vector<double>(), expected.at(name)) < 1e-12, name);
      }
    });
  }
}

TEST_CASE("pipelines on shares of a batch, averaged once a step, are one process") {
  ranks(4, [](const Group& group, int) {
    const Trained& one = by_one_process();
    const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "pp"});
    nn::Pipe pipe(mesh.get_group("pp"), model(), {.kind = Kind::zb_v, .micro_batches = 2});
    nn::SGD optimizer(pipe.local().named_parameters(), sgd);
    const std::int64_t half = rows / 2, at = mesh.get_local_rank("dp") * half;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      pipe.step(numbers({rows, 5}, 0.1 + step).rows(at, at + half),
                numbers({rows, 2}, 0.2).rows(at, at + half), squares);
      for (const Tensor& p : pipe.local().parameters()) {
        mesh.get_group("dp").all_reduce(p.grad().view(), comm::ReduceOp::avg).wait();
      }
      optimizer.step();
    }
    for (const auto& [name, p] : pipe.local().named_parameters()) {
      PEAL_CHECK(farthest(p.to_vector<double>(), one.parameters[2].at(name)) < 1e-10, name);
    }
  });
}

// What each rank hears of a failure of one of them, whose own error is the first.
std::vector<std::string> heard(int world, const std::function<void(const Group&, int rank)>& f) {
  std::vector<std::string> all(static_cast<std::size_t>(world));
  try {
    ranks(world, [&](const Group& group, int rank) {
      try {
        f(group, rank);
      } catch (const Error& error) {
        all[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  } catch (const Error&) {  // of the barrier at the end of a group that has failed
  }
  return all;
}

TEST_CASE("a rank that fails in the middle of a step tells the others") {
  struct Failing : nn::Module {
    Tensor forward(const Tensor& x) override {
      PEAL_CHECK(calls++ != 2, "no output today");
      return x * 1.0;
    }
    int calls = 0;
  };
  for (const Kind kind : {Kind::one_f_one_b, Kind::zb_v}) {
    const auto said = heard(3, [&](const Group& group, int rank) {
      nn::Sequential net = model();
      nn::Sequential failing;
      int i = 0;
      for (const auto& [name, layer] : net.named_children()) {
        failing.push_back(i++ == 7 && rank == 1 ? nn::Module(Failing()) : layer);
      }
      nn::PipeOptions options{.kind = kind, .micro_batches = 4, .balance = {6, 4, 6}};
      if (kind == Kind::zb_v) options.balance = {3, 6, 2, 2, 2, 1};
      nn::Pipe pipe(group, failing, options);
      pipe.step(numbers({rows, 5}, 0.1), numbers({rows, 2}, 0.2), squares);
    });
    for (const std::string& error : said) CHECK(error.find("no output today") != error.npos);
  }
  // Batches that differ are found by who gets the first activation.
  const auto said = heard(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, model(), {.micro_batches = 2});
    const std::int64_t n = 4 << rank;
    pipe.step(numbers({n, 5}, 0.1), numbers({n, 2}, 0.2), squares);
  });
  for (const std::string& error : said) {
    CHECK(error.find("here step() of 8 rows, its call 1, on rank 0 step() of 4 rows") !=
          error.npos);
  }
  // So are calls that differ, though their tags do not.
  const auto other = heard(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, model(), {.micro_batches = 2});
    const Tensor x = numbers({4, 5}, 0.1), target = numbers({4, 2}, 0.2);
    if (rank == 0) {
      pipe.evaluate(x, target, squares);
    } else {
      pipe.step(x, target, squares);
    }
  });
  for (const std::string& error : other) {
    CHECK(error.find("here step() of 4 rows, its call 1, on rank 0 evaluate() of 4 rows") !=
          error.npos);
  }
  const auto without = heard(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, model(), {.micro_batches = 2});
    const Tensor x = numbers({4, 5}, 0.1), target = numbers({4, 2}, 0.2);
    if (rank == 0) return static_cast<void>(pipe.step(x, target, squares));
    const NoGrad guard;
    pipe.step(x, target, squares);
  });
  for (const std::string& error : without) {
    CHECK(error.find("step() under NoGrad trains nothing") != error.npos);
  }
}

TEST_CASE("what one rank alone has wrong all are told at the start, and the group goes on") {
  ranks(2, [](const Group& group, int rank) {
    const auto refused = [&](const nn::Sequential& net, const nn::PipeOptions& options) {
      try {
        nn::Pipe pipe(group, net, options);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("nothing");
    };
    const auto check = [](const std::string& error, const char* part) {
      PEAL_CHECK(error.find(part) != error.npos, "got: ", error);
    };
    check(refused(model(), {.chunks = rank == 1 ? 2 : 0}), "expected one chunk of a stage");
    check(refused(rank == 1 ? nn::Sequential(nn::Tanh()) : model(), {}), "rank 1");
    nn::Sequential longer = model();
    if (rank == 0) longer.push_back(nn::Tanh());
    check(refused(longer, {.balance = {8, 8}}), "the 17 layers");
    const Tensor weight = full({2, 2}, 1.0);
    const Tensor other = rank == 1 ? weight : full({2, 2}, 1.0);
    check(refused(nn::Sequential(nn::Linear(weight), nn::Linear(other)), {}), "is tied to");
    check_like_one_process(group, {.micro_batches = 2});
  });
}

TEST_CASE("what a pipe refuses") {
  const auto x = Tensor::zeros({2, 5}, DType::f64);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, model(), {.micro_batches = 3});
          const auto none = Tensor::zeros({0, 5}, DType::f64);
          pipe.step(none, none, squares);
        }).find("expected a row at least, got shape [0, 5]") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, model(), {.micro_batches = 2});
          const NoGrad guard;
          pipe.step(x, x, squares);
        }).find("step() under NoGrad trains nothing") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, nn::Sequential(nn::Tanh()), {});
        }).find("expected a layer for each of 2 parts at least, got 1") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, model(), {.balance = {3, 4}});
        }).find("expected a balance of 2 parts that have the 16 layers") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, model(), {.chunks = 2});
        }).find("pipeline 1f1b: expected one chunk of a stage") != std::string::npos);
  CHECK(failure([&](const Group& group, int rank) {
          nn::Pipe pipe(group, model(), {.micro_batches = 1 + rank});
        }).find("build the same model, with the same options, on every rank") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          const Tensor weight = full({2, 2}, 1.0);
          nn::Pipe pipe(group, nn::Sequential(nn::Linear(weight), nn::Linear(weight)), {});
        }).find("1.weight of part 1 is tied to 0.weight of part 0") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, model(), {});
          pipe.step(x, Tensor::zeros({3, 2}), squares);
        }).find("expected as many rows of the target as of x") != std::string::npos);
}

TEST_CASE("balance by count and by size") {
  using Parts = std::vector<int>;
  CHECK(nn::balance_by_count(10, 4) == Parts{3, 3, 2, 2});
  CHECK(nn::balance_by_count(3, 3) == Parts{1, 1, 1});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}, 2) == Parts{4, 2});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{10, 1, 1, 1}, 3) == Parts{1, 2, 1});
  CHECK(nn::balance_by_size(std::vector<std::int64_t>{0, 0, 0}, 2) == Parts{2, 1});
  // As good as the best of all cuts.
  std::uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> weights;
    for (int i = 0; i < 7; ++i) weights.push_back((state = state * 1664525u + 1013904223u) >> 28);
    const auto largest = [&](const Parts& cut) {
      std::int64_t most = 0;
      std::size_t next = 0;
      for (const int layers : cut) {
        std::int64_t sum = 0;
        for (int i = 0; i < layers; ++i) sum += weights[next++];
        most = std::max(most, sum);
      }
      CHECK(next == weights.size());
      return most;
    };
    std::int64_t best = 1 << 20;
    for (int a = 1; a < 6; ++a) {
      for (int b = 1; a + b < 7; ++b) best = std::min(best, largest({a, b, 7 - a - b}));
    }
    CHECK(largest(nn::balance_by_size(weights, 3)) == best);
  }
  CHECK_THROWS_WITH_AS(nn::balance_by_count(2, 3),
                       "pipe: expected a layer for each of 3 parts at least, got 2; take fewer "
                       "ranks or chunks",
                       Error);
}
