// SPDX-License-Identifier: Apache-2.0
// DDP over threads, where things go wrong: exceptions in backward, wrappers that overlap. Results
// that must equal one process are in tests/mpi/parity_test.cpp.
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/comm/start/threads.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>

#include <doctest/doctest.h>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

using namespace peal;

namespace {

nn::DistributedDataParallel wrap(nn::Sequential& model, const comm::ProcessGroup& group) {
  return {model, group, {.buckets = {.first_bytes = 1, .bytes = 1}}};
}

Tensor loss_of(nn::Module& model, double value) {
  const Tensor y = model(full({2, 3}, value));
  return mean(y * y);
}

}  // namespace

TEST_CASE("an exception before the first bucket costs that backward alone") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    manual_seed(1);
    nn::Sequential model = nn::mlp({3, 4, 2});
    auto ddp = wrap(model, group);
    const auto last = ddp.parameters().back();  // its gradient comes first
    bool throws = true;
    last.grad_slot().add_hook([&](const Tensor&) {
      if (throws) throw Error("once");
    });
    const double mine = group.rank() + 1.0;
    CHECK_THROWS_WITH(loss_of(ddp, mine).backward(), "once");
    throws = false;
    ddp.zero_grad();
    const std::uint64_t before = group.sequence();
    loss_of(ddp, mine).backward();
    CHECK(group.sequence() - before == 4 + 1);  // buckets; and no order came of the first step
    const auto gradients = group.all_gather_object(concat(last.grad().data<float>()[0]));
    CHECK(gradients[0] == gradients[1]);
  });
}

TEST_CASE("an exception after a bucket was launched ends the job, in words") {
  CHECK_THROWS_WITH(comm::run_ranks(2,
                                    [](const comm::ProcessGroup& group) {
                                      manual_seed(1);
                                      nn::Sequential model = nn::mlp({3, 4, 2});
                                      auto ddp = wrap(model, group);
                                      ddp.parameters()[0].grad_slot().add_hook([&](const Tensor&) {
                                        if (group.rank() == 0) throw Error("too late");
                                      });
                                      try {
                                        loss_of(ddp, 1).backward();
                                      } catch (const Error&) {
                                        if (group.rank() != 0) throw;
                                      }
                                      loss_of(ddp, 1).backward();
                                    }),
                    doctest::Contains("left by an exception"));
}

// Sanitizers end the process where memory for a tensor is refused.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a wrapper that finds no memory for a later bucket leaves no hook behind") {
  const Tensor small = ones({2}).set_requires_grad();
  float element = 0;  // stands for 2^50 of them, which nobody reads
  const Tensor large =
      Tensor::from_blob(&element, {std::int64_t{1} << 50}, DType::f32).set_requires_grad();
  const NamedTensors parameters{{"large", large}, {"small", small}};
  const std::vector<nn::ParameterSpec> specs{{"large", large.shape()}, {"small", small.shape()}};
  const auto plan = nn::plan_buckets(specs, {1, 1});
  CHECK_THROWS_WITH(nn::Reducer(parameters, plan, comm::ProcessGroup::alone()),
                    doctest::Contains("the system has no"));
  CHECK_FALSE(small.grad_slot().has_final_hook());
  sum(small * small).backward();
  CHECK(small.grad().to_vector<float>() == std::vector<float>{2, 2});
}
#endif

TEST_CASE("a model belongs to one wrapper, and cannot change its type under it") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    manual_seed(1);
    nn::Sequential model = nn::mlp({3, 4, 2});
    {
      auto ddp = wrap(model, group);
      CHECK_THROWS_WITH(wrap(model, group), doctest::Contains("already belongs"));
      CHECK_THROWS_WITH(model.to(DType::f64),
                        doctest::Contains("belongs to a distributed wrapper"));
      loss_of(ddp, 1).backward();  // the first wrapper is unharmed
    }
    auto again = wrap(model, group);  // and when it is gone, another may come
    loss_of(again, 1).backward();
    CHECK(model.parameters()[0].grad().defined());
  });
}

TEST_CASE("a frozen part is in no bucket, and a thawed one is") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    manual_seed(1);
    nn::Sequential model = nn::mlp({3, 4, 2});
    model.requires_grad_(model.named_parameters()[0].first, false);
    {
      auto ddp = wrap(model, group);
      CHECK(ddp.reducer().buckets().size() == 3);
      loss_of(ddp, group.rank() + 1.0).backward();
      CHECK_FALSE(ddp.parameters()[0].grad().defined());
      CHECK_THROWS_WITH(wrap(model, group), doctest::Contains("already belongs"));
    }
    auto whole = wrap(model, group);
    CHECK(whole.reducer().buckets().size() == 3);
    model.requires_grad_(true);
    loss_of(whole, group.rank() + 1.0).backward();
    CHECK(whole.reducer().buckets().size() == 4);
    loss_of(whole, group.rank() + 1.0).backward();
    CHECK(whole.parameters()[0].grad().defined());
  });
}

TEST_CASE("two wrapped models may share a frozen part") {
  comm::run_ranks(2, [](const comm::ProcessGroup& group) {
    manual_seed(1);
    nn::Linear backbone(3, 4);
    backbone.requires_grad_(false);
    const auto head = [&] {
      nn::Sequential model;
      model.add("backbone", backbone);
      model.add("head", nn::Linear(4, 2));
      return model;
    };
    nn::Sequential a = head(), b = head();
    auto first = std::make_unique<nn::DistributedDataParallel>(a, group);
    nn::DistributedDataParallel second(b, group);
    loss_of(*first, group.rank() + 1.0).backward();
    first.reset();
    loss_of(second, group.rank() + 1.0).backward();
    CHECK_FALSE(backbone.weight.grad().defined());
    CHECK(second.parameters().back().grad().defined());
  });
}

TEST_CASE("buckets are sent while backward goes on, from the first step") {
  comm::run_ranks(3, [](const comm::ProcessGroup& group) {
    manual_seed(1);
    nn::Sequential model = nn::mlp({3, 4, 4, 2});
    auto ddp = wrap(model, group);
    std::vector<std::string> events;
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      events.push_back(concat("sent ", bucket.names.at(0)));
      return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    });
    // The first parameter's gradient comes last.
    ddp.parameters()[0].grad_slot().add_hook([&](const Tensor&) { events.push_back("last came"); });
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      events.clear();
      loss_of(ddp, group.rank() + 1.0).backward();
      REQUIRE(events.size() == 7);
      const auto came = std::find(events.begin(), events.end(), "last came") - events.begin();
      CHECK(came >= 4);  // of six buckets; its layer's bias may wait behind it
      CHECK(std::find(events.begin(), events.end(), "sent 0.weight") - events.begin() > came);
    }
  });
}
