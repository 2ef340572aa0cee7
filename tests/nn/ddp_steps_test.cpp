// SPDX-License-Identifier: Apache-2.0
// Ranks whose steps do not match: each is told, in that step.
#include <peal/autograd/grad_slot.h>

#include <atomic>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("a rank that leaves out a backward is told in that step") {
  std::atomic<int> finished{0};
  const std::string message = failure([&](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group);
    for (int k = 0; k < 3; ++k) {
      ddp.zero_grad();
      const Tensor value = loss(ddp, 10 * k + rank);
      if (rank == 1 && k == 0) continue;  // its loss was NaN, say
      value.backward();
      ++finished;
    }
  });
  CAPTURE(message);
  CHECK(finished == 0);
  CHECK(message.find("same order") != std::string::npos);
}

// Steps are numbered by each rank for itself, so nobody can see in the step itself that a rank left
// it out whole. But then it has one step less at the end, or another call in the place of one.
TEST_CASE("a rank that does neither forward nor backward is told at its next other call") {
  for (const bool evaluates : {false, true}) {
    std::atomic<int> finished{0};
    const std::string message = failure([&](const Group& group, int rank) {
      nn::Sequential net = nn::mlp({3, 4, 2});
      DDP ddp(net, group);
      for (int k = 0; k < 3; ++k) {
        ddp.zero_grad();
        if (rank == 1 && k == 0) continue;
        loss(ddp, 10 * k + rank).backward();
      }
      if (evaluates) group.all_reduce(Tensor::zeros({1})).wait();
      ++finished;
    });
    CAPTURE(evaluates);
    CAPTURE(message);
    CHECK(finished ==
          (evaluates ? 0 : 1));  // else the rank that ends first has nothing to wait for
    CHECK(message.find("step 3") != std::string::npos);
  }
}

TEST_CASE("an exception before the first bucket on one rank alone is told in that step") {
  std::atomic<int> finished{0};
  const std::string message = failure([&](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group);
    bool throws = rank == 1;
    ddp.parameters().back().grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("once");
    });
    for (int k = 0; k < 3; ++k) {
      ddp.zero_grad();
      try {
        loss(ddp, 10 * k + rank).backward();
        ++finished;
      } catch (const Error& error) {
        if (error.what() != std::string("once")) throw;
        throws = false;
      }
    }
  });
  CAPTURE(message);
  CHECK(finished == 0);
  CHECK(message.find("same order") != std::string::npos);
}

TEST_CASE("two wrappers whose backwards come in another order never meet crosswise") {
  std::atomic<int> finished{0};
  const std::string message = failure([&](const Group& group, int rank) {
    auto a = nn::mlp({3, 4, 2}), b = nn::mlp({3, 4, 2});
    DDP first(a, group), second(b, group);
    Tensor of_first, of_second;
    if (rank == 0) of_first = loss(first, 1);
    of_second = loss(second, 2);
    if (rank == 1) of_first = loss(first, 1);
    (of_first + of_second).backward();
    ++finished;
  });
  CAPTURE(message);
  CHECK(finished == 0);
  CHECK(message.find("same order") != std::string::npos);
}

TEST_CASE("a wrapper that goes with buckets in flight is named to those who wait in them") {
  const std::string message = failure([&](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    {
      DDP ddp(net, group, {.buckets = apart});
      ddp.parameters()[0].grad_slot().add_hook([&](const Tensor&) {
        if (rank == 1) throw Error("no memory");
      });
      try {
        loss(ddp, 1).backward();
      } catch (const Error& error) {
        if (error.what() != std::string("no memory")) throw;
      }
    }
    DDP again(net, group, {.buckets = apart});
  });
  CAPTURE(message);
  CHECK(message.find("step 1, bucket ") != std::string::npos);
  CHECK(message.find("comparing: [ddp] the model") != std::string::npos);
}

TEST_CASE("what a rank keeps of its forwards says nothing about its steps") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    DDP& ddp = *pair.ddp;
    Tensors kept;
    for (int k = 0; k < 3; ++k) {
      const Tensor value = loss(ddp, 5);
      if (rank == 0) kept.push_back(value);
    }
    loss(ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("forwards may have their backwards later, in any order, or never") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group);
    DDP& ddp = *pair.ddp;
    const Tensor first = loss(ddp, rank + 1), second = loss(ddp, rank + 2), never = loss(ddp, 1);
    second.backward();
    loss(pair.alone, rank + 2).backward();
    check_averaged(pair.model, pair.alone, group);
    ddp.zero_grad();
    pair.alone.zero_grad();
    first.backward();
    loss(pair.alone, rank + 1).backward();
    check_averaged(pair.model, pair.alone, group);
  });
}

TEST_CASE("ranks that go back through forwards of another order are told") {
  std::atomic<int> finished{0};
  const std::string message = failure([&](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group);
    const Tensor first = loss(ddp, 1), second = loss(ddp, 2);
    (rank == 0 ? first : second).backward();
    ++finished;
  });
  CAPTURE(message);
  CHECK(finished == 0);
  CHECK(message.find("same order") != std::string::npos);
}
