// SPDX-License-Identifier: Apache-2.0
// Collectives are not recorded: what wants a gradient, and was made by an operation, is not given
// to one without a word; nor what is a copy of a tensor that would not see what they write.
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("a collective on a result whose gradient is wanted is an error on all ranks") {
  two([](const Group& group, int) {
    const Tensor w = full({4}, 2.).set_requires_grad(), y = w * 3.0, out = Tensor::zeros({8});
    const std::vector<std::function<void()>> calls = {
        [&] { group.all_reduce(y).wait(); },
        [&] { group.broadcast(y).wait(); },
        [&] { group.all_gather(out, y).wait(); },
        [&] {
          group.all_reduce_coalesced({w, y}).wait();
        },
        [&] { group.send(y, 1 - group.rank()).wait(); },
    };
    for (const auto& call : calls) {
      const std::string message = error_of(call);
      CAPTURE(message);
      CHECK(message.find("shape [4]") != std::string::npos);
      CHECK(message.find("detach()") != std::string::npos);
    }
    // Nothing was sent, and y is what it was.
    CHECK(y.to_vector<float>() == std::vector<float>(4, 6));
    group.all_gather(out, y.detach()).wait();
    CHECK(out.to_vector<float>() == std::vector<float>(8, 6));
    sum(y).backward();
    CHECK(w.grad().to_vector<float>() == std::vector<float>(4, 3));
  });
}

TEST_CASE("leaves, and whatever is under NoGrad, may be given to collectives") {
  two([](const Group& group, int rank) {
    const Tensor w = full({4}, rank + 1.0).set_requires_grad();
    group.broadcast(w, 1).wait();
    CHECK(w.to_vector<float>() == std::vector<float>(4, 2));
    const Tensor y = w * 3.0;
    {
      const NoGrad guard;
      group.all_reduce(y).wait();
      CHECK((w * 2.0).to_vector<float>() == std::vector<float>(4, 4));
    }
    CHECK(y.to_vector<float>() == std::vector<float>(4, 12));
    group.all_reduce(y.detach(), comm::ReduceOp::avg).wait();
    CHECK(y.to_vector<float>() == std::vector<float>(4, 12));
  });
}

TEST_CASE("a collective on a copy of a tensor that lives is an error on all ranks") {
  two([](const Group& group, int rank) {
    const Tensor x = full({2, 4}, rank + 1.0), column = x.select(1, 0);
    for (const auto& part : {column, x.t(), column.unsqueeze(0)}) {
      const std::string message = error_of([&] { group.all_reduce(part).wait(); });
      CAPTURE(message);
      CHECK(message.find("would not see") != std::string::npos);
    }
    const Tensor y = column.clone();
    group.all_reduce(y).wait();
    group.all_reduce(x.rows(1, 2)).wait();
    group.all_reduce(column.contiguous()).wait();
    CHECK(y.to_vector<float>() == std::vector<float>(2, 3));
    CHECK(column.to_vector<float>() == std::vector<float>(2, rank + 1.F));
    CHECK(x.rows(1, 2).to_vector<float>() == std::vector<float>(4, 3));
  });
}

TEST_CASE("backward notices that a collective wrote what it kept") {
  two([](const Group& group, int) {
    const Tensor w = full({4}, 2.).set_requires_grad(), x = full({4}, 3.);
    const Tensor y = w * x;
    group.all_reduce(x).wait();
    CHECK(error_of([&] { sum(y).backward(); }).find("written in place") != std::string::npos);
  });
}
