// SPDX-License-Identifier: Apache-2.0
// Communication hooks: what they are given, in which order, and that lossy ones give what one
// process computes that does the same.
#include <peal/autograd/grad_slot.h>
#include <peal/nn/layers/layers.h>

#include <barrier>
#include <thread>

#include "ddp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Gradients that bf16 and f16 cannot hold.
Tensor fine_loss(nn::Module& model, int rank) {
  const Tensor y = model(full({2, 3}, 0.3 + 0.1 * rank));
  return sum(y * y) * 1.001;
}

// What each rank's gradients become when they travel in low precision, from a copy of the model
// that sees the batches of all ranks, one after the other.
std::vector<std::vector<float>> simulated(nn::Module copy, int world, DType dtype) {
  std::vector<std::vector<float>> result;
  std::vector<std::vector<Tensor>> gradients;
  for (int rank = 0; rank < world; ++rank) {
    copy.zero_grad();
    fine_loss(copy, rank).backward();
    auto& list = gradients.emplace_back();
    for (const Tensor& p : copy.parameters()) {
      list.push_back(cast(cast(p.grad(), dtype), DType::f32));
    }
  }
  copy.zero_grad();
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    Tensor total = gradients[0][i];
    for (int rank = 1; rank < world; ++rank) {
      total = total + gradients[static_cast<std::size_t>(rank)][i];
    }
    result.push_back(cast(cast(total / world, dtype), DType::f32).to_vector<float>());
  }
  return result;
}

void check_gradients(const nn::Module& model, const std::vector<std::vector<float>>& expected) {
  const NamedTensors parameters = model.named_parameters();
  REQUIRE(parameters.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(parameters[i].first);
    CHECK(parameters[i].second.grad().to_vector<float>() == expected[i]);
  }
}

// A padded copy in another type, for collectives over equal parts.
Tensor packed(const Tensor& memory, DType dtype, std::int64_t multiple) {
  const std::int64_t count = (memory.numel() + multiple - 1) / multiple * multiple;
  const Tensor wide = Tensor::zeros({count});
  wide.detach(memory.shape()).copy_(memory);
  return cast(wide, dtype);
}

}  // namespace

TEST_CASE("a hook gets every bucket in order, with its gradients in its memory") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group, {.buckets = apart});
    DDP& ddp = *pair.ddp;
    std::string seen;
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      seen += concat(bucket.index, bucket.is_last ? " last" : "", " of ", bucket.parameters.size(),
                     "; ");
      for (const Tensor& parameter : bucket.parameters) {
        CHECK(parameter.grad().storage() == bucket.buffer.storage());
      }
      CHECK(bucket.label.text.find(concat("step 1, bucket ", bucket.index)) == 0);
      return comm::Work();  // each rank keeps its own
    });
    loss(ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    CHECK(seen == "0 of 1; 1 of 1; 2 of 1; 3 last of 1; ");
    const auto mine = ddp.parameters(), theirs = pair.alone.parameters();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      CHECK(mine[i].grad().to_vector<float>() == theirs[i].grad().to_vector<float>());
    }
    CHECK_THROWS_WITH(ddp.register_comm_hook(nullptr), doctest::Contains("expected a hook"));
  });
}

TEST_CASE("a hook that sends bf16 equals one process that rounds alike") {
  ranks(4, [](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    const auto expected = simulated(net, 4, DType::bf16);
    DDP ddp(net, group, {.buckets = apart});
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      const Tensor sent = cast(bucket.buffer, DType::bf16);
      return group.all_reduce(sent, comm::ReduceOp::avg, bucket.label)
          .then([sent, memory = bucket.buffer] {
            memory.copy_(cast(sent, DType::f32));
            return comm::Work();
          });
    });
    fine_loss(ddp, rank).backward();
    check_gradients(ddp, expected);
  });
}

TEST_CASE("a hook of two collectives is one Work, and equals one process that rounds alike") {
  ranks(4, [](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    const auto expected = simulated(net, 4, DType::f16);
    DDP ddp(net, group, {.buckets = apart});
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      const Tensor sent = packed(bucket.buffer, DType::f16, group.world());
      const std::int64_t each = sent.numel() / group.world();
      const Tensor part = sent.detach({each}, each * rank);
      return group.reduce_scatter(part, sent, comm::ReduceOp::avg)
          .then([&group = group, sent, part] { return group.all_gather(sent, part); })
          .then([sent, memory = bucket.buffer] {
            memory.copy_(cast(sent.detach(memory.shape()), DType::f32));
            return comm::Work();
          });
    });
    for (int k = 0; k < 2; ++k) {
      ddp.zero_grad();
      fine_loss(ddp, rank).backward();
      check_gradients(ddp, expected);
    }
    CHECK(ddp.reducer().exposed_seconds() > 0);
  });
}

TEST_CASE("a hook that fails on one rank ends the step on all") {
  std::atomic<int> finished{0};
  const std::string message = failure([&](const Group& group, int rank) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group, {.buckets = apart});
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      if (rank == 1 && bucket.index == 2) throw Error("out of order");
      return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    });
    loss(ddp, 1).backward();
    ++finished;
  });
  CHECK(message == "out of order");
  CHECK(finished == 0);
}

TEST_CASE("a hook that writes into a bucket that is under way is told to all ranks, by its name") {
  std::atomic<bool> written{false};
  std::atomic<int> told{0};
  const std::string message = failure([&](const Group& group, int rank) {
    try {  // rank 1 may still be on its way out of the constructor
      nn::Sequential net = nn::mlp({3, 4, 2});
      DDP ddp(net, group, {.buckets = apart});
      ddp.register_comm_hook([&](nn::GradBucket& bucket) {
        while (rank == 1 && !written && !group.poisoned()) std::this_thread::yield();
        const comm::Work sent = group.all_reduce(bucket.buffer, comm::ReduceOp::sum, bucket.label);
        if (rank == 0) mul_(bucket.buffer, 0.5);  // which belongs before, or behind wait()
        written = true;
        return sent;
      });
      loss(ddp, 1).backward();
    } catch (const Error&) {
      ++told;
      throw;
    }
  });
  CHECK(told == 2);
  CHECK(message.find("step 1, bucket 0: ") != std::string::npos);
  CHECK(message.find("written in place between the call and wait()") != std::string::npos);
}

TEST_CASE("a hook that sends and then throws has sent, though all ranks caught it") {
  std::barrier both(2);
  const std::string message = failure([&](const Group& group, int) {
    nn::Sequential net = nn::mlp({3, 4, 2});
    DDP ddp(net, group, {.buckets = apart});
    const nn::GradBucket* seen = nullptr;
    ddp.register_comm_hook([&](nn::GradBucket& bucket) -> comm::Work {
      seen = &bucket;
      group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label).wait();
      throw Error("once");
    });
    CHECK_THROWS_WITH(loss(ddp, 1).backward(), "once");
    // Nothing may throw before this: the barrier has no deadline.
    CHECK((seen != nullptr && seen->label.text.empty()));
    both.arrive_and_wait();  // the next one ends the group, for which the other may still wait
    loss(ddp, 1).backward();
  });
  CAPTURE(message);
  CHECK(message.find("left by an exception after 1 of 4 buckets") != std::string::npos);
}

TEST_CASE("hooks of a parameter see this rank's gradient of this backward, before the average") {
  two([](const Group& group, int rank) {
    Twins<Mlp> pair(group, {.buckets = apart});
    DDP& ddp = *pair.ddp;
    std::string order;
    std::vector<std::vector<float>> seen, alone;
    const Tensor early = ddp.parameters()[0], late = ddp.parameters()[3];
    // What it gives takes the gradient's place: PyTorch's hooks of a tensor, and after them those
    // of an accumulated gradient, both before the wrapper's.
    const auto id = late.register_hook([&, rank](const Tensor& g) {
      order += "hook ";
      seen.push_back(g.to_vector<float>());
      return g * (rank + 2.0);
    });
    pair.alone.parameters()[3].register_hook([&, rank](const Tensor& g) {
      alone.push_back(g.to_vector<float>());
      return g * (rank + 2.0);
    });
    late.grad_slot().add_hook([&](const Tensor&) { order += "slot "; });
    early.register_hook([&](const Tensor&) { order += "first "; });
    ddp.register_comm_hook([&](nn::GradBucket& bucket) {
      order += concat("bucket ", bucket.index, " ");
      return group.all_reduce(bucket.buffer, comm::ReduceOp::avg, bucket.label);
    });
    loss(ddp, rank + 1).backward();
    loss(pair.alone, rank + 1).backward();
    CHECK(order == "hook slot bucket 0 bucket 1 first bucket 2 bucket 3 ");
    check_averaged(ddp, pair.alone, group);
    // Of an accumulation each backward comes by itself.
    for (nn::Module* model :
         {static_cast<nn::Module*>(&ddp), static_cast<nn::Module*>(&pair.alone)}) {
      model->zero_grad();
    }
    {
      const auto scope = ddp.no_sync();
      loss(ddp, rank + 2).backward();
    }
    loss(ddp, 1).backward();
    loss(pair.alone, rank + 2).backward();
    loss(pair.alone, 1).backward();
    check_averaged(ddp, pair.alone, group);
    CHECK(seen.size() == 3);
    CHECK(seen == alone);
    late.remove_hook(id);
    ddp.zero_grad();
    loss(ddp, 1).backward();
    CHECK(seen.size() == 3);
  });
}

TEST_CASE("a hook of a parameter is not called where the rank does not use it") {
  struct Branches : nn::Module {
    nn::Linear a = add("a", nn::Linear(3, 2)), b = add("b", nn::Linear(3, 2));
    Tensor both(const Tensor& x, bool second) { return second ? a(x) + b(x) : a(x); }
  };
  two([](const Group& group, int rank) {
    Branches net;
    make_whole(net);
    DDP ddp(net, group, {.find_unused_parameters = true});
    int calls = 0;
    net.b.weight.register_hook([&](const Tensor& g) {
      ++calls;
      return g * 4.0;
    });
    for (int k = 1; k <= 2; ++k) {
      ddp.zero_grad();
      sum(ddp.call(&Branches::both, full({2, 3}, 1.), rank == 0)).backward();
      CHECK(calls == (rank == 0 ? k : 0));
      // Twice 1 of two samples, times 4, and the other rank's zeros.
      CHECK(net.b.weight.grad().to_vector<float>() == std::vector<float>(6, 4));
    }
  });
}
