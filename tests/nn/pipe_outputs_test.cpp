// SPDX-License-Identifier: Apache-2.0
// Outputs of a pipe: those of all micro-batches as one tensor, where the last part is or on all.
#include "pipe_ranks.h"

using namespace peal;
using namespace peal::testing;
using comm::pipeline::Kind;

namespace {

void check_outputs(const Tensor& got, const Tensor& x, bool here) {
  PEAL_CHECK(got.defined() == here, "expected outputs ", here ? "here" : "elsewhere");
  if (!here) return;
  nn::Sequential whole = uneven_model();
  const Tensor expected = whole(x);
  PEAL_CHECK(got.shape() == expected.shape() && !got.requires_grad(), "got shape ", got.shape());
  PEAL_CHECK(farthest(got.to_vector<double>(), expected.to_vector<double>()) < 1e-12);
}

}  // namespace

TEST_CASE("outputs of every schedule, of ragged micro-batches and of few rows") {
  every_schedule({1, 4}, [](const Group& group, nn::PipeOptions options) {
    options.keep_outputs = true;
    nn::Pipe pipe(group, uneven_model(), options);
    const int last = options.kind == Kind::zb_v ? 0 : group.world() - 1;
    const bool here = group.rank() == last;
    for (const std::int64_t n : {10, 3}) {
      const Tensor x = numbers({n, 5}, 0.3), target = numbers({n, 2}, 0.2);
      pipe.step(x, target, squares);
      check_outputs(pipe.outputs(), x, here);
      check_outputs(pipe.outputs(true), x, true);
      const Tensor other = numbers({n, 5}, 0.7);
      pipe.evaluate(other, target, squares);
      check_outputs(pipe.outputs(true), other, true);
      check_outputs(pipe.forward(x), x, here);
      check_outputs(pipe.forward(x, true), x, true);
    }
  });
}

TEST_CASE("forward() leaves no gradient, and training goes on") {
  const Trained one = trained_alone(uneven_model, 1);
  ranks(3, [&](const Group& group, int) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 4});
    pipe.forward(input_of(2));
    for (const Tensor& p : pipe.local().parameters()) PEAL_CHECK(!p.grad().defined());
    const double loss = pipe.step(input_of(0), target_of(), squares);
    PEAL_CHECK(std::abs(loss - one.losses[0]) < 1e-10);
  });
}

TEST_CASE("what outputs refuse") {
  CHECK(failure([](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
          pipe.step(input_of(0), target_of(), squares);
          pipe.outputs();
        }).find("outputs() needs PipeOptions::keep_outputs") != std::string::npos);
  CHECK(failure([](const Group& group, int) {
          nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
          pipe.forward({});
        }).find("expected x on every rank, got no x") != std::string::npos);
  const auto said = heard(2, [](const Group& group, int rank) {
    nn::Pipe pipe(group, uneven_model(), {.micro_batches = 2});
    if (rank == 0) {
      pipe.forward(input_of(0));
    } else {
      pipe.evaluate(input_of(0), target_of(), squares);
    }
    group.barrier().wait();
  });
  for (const std::string& error : said) {
    CHECK_MESSAGE(error.find("here evaluate() of 10 rows, its call 1, on rank 0 forward() of 10") !=
                      error.npos,
                  error);
  }
}
