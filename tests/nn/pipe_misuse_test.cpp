// SPDX-License-Identifier: Apache-2.0
// Pipe: what goes wrong on one rank, or in a model, is an Error on all.
#include <peal/nn/layers/norm.h>

#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

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
      nn::Sequential net = uneven_model();
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
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
    const std::int64_t n = 4 << rank;
    pipe.step(numbers({n, 5}, 0.1), numbers({n, 2}, 0.2), squares);
  });
  for (const std::string& error : said) {
    CHECK(error.find("here step() of 8 rows, its call 1, on rank 0 step() of 4 rows") !=
          error.npos);
  }
  // So are calls that differ, though their tags do not.
  const auto other = heard(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
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
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
    const Tensor x = numbers({4, 5}, 0.1), target = numbers({4, 2}, 0.2);
    if (rank == 0) return static_cast<void>(pipe.step(x, target, squares));
    const NoGrad guard;
    pipe.step(x, target, squares);
  });
  for (const std::string& error : without) {
    CHECK(error.find("step() under NoGrad trains nothing") != error.npos);
  }
}

TEST_CASE("a loss that throws what is no std::exception tells the others") {
  const auto loss = [](const Tensor&, const Tensor&) -> Tensor { throw 42; };
  const auto said = heard(2, [&](const Group& group, int) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
    try {
      pipe.step(numbers({4, 5}, 0.1), numbers({4, 2}, 0.2), loss);
    } catch (int) {
      throw Error("thrown here: no std::exception");
    }
  });
  for (const std::string& error : said) CHECK(error.find("no std::exception") != error.npos);
}

TEST_CASE("ranks that give unequally many rows, fewer than micro-batches, are told") {
  const auto said = heard(4, [](const Group& group, int rank) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 4});
    const std::int64_t own = rank == 3 ? 3 : 2;
    pipe.step(numbers({own, 5}, 0.1), numbers({own, 2}, 0.2), squares);
  });
  for (const std::string& error : said) {
    CAPTURE(error);
    CHECK(error.find("all ranks make the same calls") != error.npos);
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
    check(refused(uneven_model(), {.chunks = rank == 1 ? 2 : 0}), "expected one chunk of a stage");
    check(refused(rank == 1 ? nn::Sequential(nn::Tanh()) : uneven_model(), {}), "rank 1");
    nn::Sequential longer = uneven_model();
    if (rank == 0) longer.push_back(nn::Tanh());
    check(refused(longer, {.balance = {8, 8}}), "the 17 layers");
    const Tensor weight = full({2, 2}, 1.0);
    const Tensor other = rank == 1 ? weight : full({2, 2}, 1.0);
    check(refused(nn::Sequential(nn::Linear(weight), nn::Linear(other)), {}),
          "build the same model, with the same options, on every rank");
    check_like(trained_alone(uneven_model, 2), uneven_model, group, {.micro_batches = 2}, 2);
  });
}

TEST_CASE("what a pipe refuses") {
  const auto x = Tensor::zeros({2, 5}, DType::f64);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.micro_batches = 3});
          const auto none = Tensor::zeros({0, 5}, DType::f64);
          pipe.step(none, none, squares);
        }).find("expected a row at least, got shape [0, 5]") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
          const NoGrad guard;
          pipe.step(x, x, squares);
        }).find("step() under NoGrad trains nothing") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, nn::Sequential(nn::Tanh()), {});
        }).find("expected a layer for each of 2 parts at least, got 1") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.balance = {3, 4}});
        }).find("expected a balance of 2 parts that have the 16 layers") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.chunks = 2});
        }).find("pipeline 1f1b: expected one chunk of a stage") != std::string::npos);
  CHECK(failure([&](const Group& group, int rank) {
          nn::Pipe pipe(group, uneven_model(), {.micro_batches = 1 + rank});
        }).find("build the same model, with the same options, on every rank") != std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          const nn::BatchNorm1d norm(2);
          nn::Pipe pipe(group, nn::Sequential(norm, norm), {});
        }).find("the buffer 0.running_mean of rank 0 is tied to 1.running_mean of rank 1") !=
        std::string::npos);
  CHECK(failure([&](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {});
          pipe.step(x, Tensor::zeros({3, 2}), squares);
        }).find("expected as many rows of the target as of x") != std::string::npos);
}
