// SPDX-License-Identifier: Apache-2.0
// What is estimated for a rank is what it has after a step, byte for byte, and with FSDP what it
// has within one; with activations it is the high-water mark of true steps; and where parameters
// can be shared out evenly it is the formulas of ZeRO's paper.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/nn/parallel/sharded/activation_memory.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "zero_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Bytes of the tensors of a state, its counts left out.
std::int64_t state_of(const NamedTensors& state) {
  std::int64_t bytes = 0;
  for (const auto& [key, tensor] : state) {
    if (tensor.dim() > 0) bytes += static_cast<std::int64_t>(tensor.view().bytes());
  }
  return bytes;
}

template <class O>
nn::MemoryEstimate measured(const nn::Module& model, const O& optimizer) {
  nn::MemoryEstimate here;
  for (const Tensor& p : model.parameters()) {
    here.parameters += static_cast<std::int64_t>(p.view().bytes());
    if (p.grad().defined()) here.gradients += static_cast<std::int64_t>(p.grad().view().bytes());
  }
  if constexpr (requires { optimizer.local_state_dict(); }) {
    here.state = state_of(optimizer.local_state_dict());
  } else {
    here.state = state_of(optimizer.state_dict());
  }
  return here;
}

template <class O, class Options>
void compare_with_runs(DType dtype, const Options& options) {
  for (const int world : {1, 2, 3}) {
    ranks(world, [&](const Group& group, int rank) {
      CAPTURE(world);
      const auto at = static_cast<std::size_t>(rank);
      const auto run = [&](nn::Sharded sharded) {
        SmallNet model;
        model.to(dtype);
        model.conv2.weight.set_requires_grad(false);
        const O plain(model.named_parameters(), options);
        const nn::MemoryEstimate expected = estimate_memory(plain, sharded, world)[at];
        const auto step = [&](nn::Module& called, nn::Optimizer& optimizer) {
          small_loss(called, model, 0, 2 * rank, 2 * rank + 2).backward();
          optimizer.step();
        };
        if (sharded == nn::Sharded::nothing) {
          O optimizer(model.named_parameters(), options);
          DDP ddp(model, group);
          step(ddp, optimizer);
          CHECK(measured(model, optimizer) == expected);
          return;
        }
        Zero<O> optimizer(group, model.named_parameters(), options);
        std::unique_ptr<DDP> ddp;
        if (sharded == nn::Sharded::state) {
          ddp = std::make_unique<DDP>(model, group);
        } else {
          ddp = std::make_unique<nn::ShardedDDP>(model, optimizer);
        }
        step(*ddp, optimizer);
        CHECK(measured(model, optimizer) == expected);
      };
      run(nn::Sharded::nothing);
      run(nn::Sharded::state);
      run(nn::Sharded::gradients);
    });
  }
}

// Bytes that these look into, each once.
std::int64_t bytes_there(const Tensors& list) {
  std::set<const Storage*> seen;
  std::int64_t bytes = 0;
  for (const Tensor& tensor : list) {
    const Storage* const storage = tensor.storage().get();
    if (!storage->has_bytes() || !seen.insert(storage).second) continue;
    bytes += static_cast<std::int64_t>(storage->bytes());
  }
  return bytes;
}

// After a step of FSDP.
nn::MemoryEstimate measured_of_fsdp(const nn::FullyShardedDataParallel& fsdp,
                                    const nn::Optimizer& optimizer) {
  Tensors pieces;
  nn::MemoryEstimate here;
  for (const auto& [name, piece] : fsdp.local_parameters()) {
    pieces.push_back(piece);
    if (!piece.grad().defined()) continue;
    here.gradients += static_cast<std::int64_t>(piece.grad().view().bytes());
  }
  here.parameters = bytes_there(pieces);
  here.state = state_of(optimizer.local_state_dict());
  return here;
}

template <class O, class Options>
void compare_with_fsdp(DType dtype, const Options& options) {
  const nn::WrapPolicy policy = nn::wrap_by_type({"Linear"});
  for (const int world : {1, 2, 3, 4}) {
    ranks(world, [&](const Group& group, int rank) {
      CAPTURE(world);
      nn::Sequential model = nn::mlp({5, 7, 1, 3});
      model.to(dtype);
      model.requires_grad_("1.bias", false);
      const O plain(model.named_parameters(), options);
      nn::MemoryEstimate expected =
          estimate_memory(plain, model, policy, world)[static_cast<std::size_t>(rank)];
      nn::FullyShardedDataParallel fsdp(model, group, {.wrap = policy});
      O optimizer(fsdp.local_parameters(), options);
      for (int step = 0; step < 2; ++step) {
        fsdp.zero_grad();
        sum(fsdp(full({2, 5}, 1.0, dtype))).backward();
        optimizer.step();
        expected.in_step = 0;
        CHECK(measured_of_fsdp(fsdp, optimizer) == expected);
        CHECK(bytes_there(model.parameters()) == 0);
      }
    });
  }
}

}  // namespace

TEST_CASE("what is estimated of FSDP is what each rank has") {
  compare_with_fsdp<nn::AdamW>(DType::f32, nn::AdamWOptions{.amsgrad = true});
  compare_with_fsdp<nn::AdamW>(DType::bf16, nn::AdamWOptions{});
  compare_with_fsdp<nn::SGD>(DType::f64, nn::SGDOptions{.lr = 0.1, .momentum = 0.9});
  compare_with_fsdp<nn::SGD>(DType::f32, nn::SGDOptions{.lr = 0.1});
}

TEST_CASE("of mixed precision and ignored modules the estimate is what each rank has, too") {
  struct Beside : nn::Module {
    nn::Linear own = add("own", nn::Linear(8, 8));
    nn::Sequential rest = add("rest", nn::mlp({8, 8, 8, 8}));
    Tensor forward(const Tensor& x) override {
      return rest(cast(own(cast(x, DType::f32)), DType::bf16));
    }
  };
  for (const int world : {1, 2, 3}) {
    ranks(world, [&](const Group& group, int rank) {
      CAPTURE(world);
      Beside model;
      const nn::FSDPOptions options{
          .wrap = nn::wrap_by_type({"Linear"}),
          .ignored_modules = {"own"},
          .mixed_precision = {.param_dtype = DType::bf16, .reduce_dtype = DType::f32}};
      const nn::AdamW plain(model.named_parameters());
      nn::MemoryEstimate expected =
          estimate_memory(plain, model, options, world)[static_cast<std::size_t>(rank)];
      CHECK(expected.in_step == 2 * 72 * (2 + 4));  // two layers
      nn::FullyShardedDataParallel fsdp(model, group, options);
      nn::AdamW optimizer(fsdp.local_parameters());
      sum(fsdp(full({2, 8}, 1.0))).backward();
      optimizer.step();
      expected.in_step = 0;
      CHECK(measured_of_fsdp(fsdp, optimizer) == expected);
    });
  }
  const Beside model;
  const nn::AdamW plain(model.named_parameters());
  CHECK_THROWS_WITH_AS(estimate_memory(plain, model, {.ignored_modules = {"7"}}, 2),
                       doctest::Contains("the model has no module '7' below it"), Error);
}

TEST_CASE("a step of FSDP has no more whole units and gradients at once than is estimated") {
  const nn::WrapPolicy policy = nn::wrap_by_type({"Linear"});
  for (const auto& [replicas, world] :
       {std::pair(1, 1), std::pair(1, 2), std::pair(1, 3), std::pair(1, 4), std::pair(2, 2)}) {
    ranks(replicas * world, [&, replicas = replicas, world = world](const Group& group, int) {
      CAPTURE(replicas);
      CAPTURE(world);
      nn::Sequential model = nn::mlp({8, 8, 8, 8, 8, 8, 8, 8});
      const nn::SGD plain(model.named_parameters(), {.lr = 0.1});
      const auto expected = estimate_memory(plain, model, policy, world);
      nn::FSDPOptions options{.wrap = policy};
      if (replicas > 1) {
        options.device_mesh = {group, {replicas, world}, {"replicate", "shard"}};
      }
      nn::FullyShardedDataParallel fsdp(model, group, options);
      std::int64_t most = 0;
      for (const Tensor& parameter : model.parameters()) {
        parameter.grad_slot().add_hook([&](const Tensor&) {
          Tensors gradients;
          for (const Tensor& each : model.parameters()) {
            if (each.grad().defined()) gradients.push_back(each.grad());
          }
          most = std::max(most, bytes_there(model.parameters()) + bytes_there(gradients));
        });
      }
      for (int step = 0; step < 3; ++step) {
        fsdp.zero_grad();
        most = 0;
        sum(fsdp(full({2, 8}, 1.0))).backward();
        // A layer and the one before it, whose gradients come next, and those of two.
        CHECK(most == expected[0].in_step);
      }
    });
  }
}

TEST_CASE("what is estimated is what each rank has") {
  compare_with_runs<nn::AdamW>(DType::f32, nn::AdamWOptions{.amsgrad = true});
  compare_with_runs<nn::SGD>(DType::f64, nn::SGDOptions{.lr = 0.1, .momentum = 0.9});
  compare_with_runs<nn::SGD>(DType::f32, nn::SGDOptions{.lr = 0.1});
  compare_with_runs<nn::Adafactor>(DType::f32, nn::AdafactorOptions{});
}

TEST_CASE("parameters of equal sizes take what ZeRO's paper says") {
  constexpr int world = 64;
  constexpr double elements = world * 8.0;
  const auto per_element = [&](DType dtype, nn::Sharded sharded) {
    NamedTensors list;
    for (int i = 0; i < world; ++i) {
      list.emplace_back(concat("p", i), Tensor::zeros({8}, dtype).set_requires_grad());
    }
    const auto ranks = estimate_memory(nn::Adam(list), sharded, world);
    for (const nn::MemoryEstimate& rank : ranks) CHECK(rank == ranks[0]);
    return static_cast<double>(ranks[0].total()) / elements;
  };
  using nn::Sharded;
  CHECK(per_element(DType::bf16, Sharded::nothing) == 16);
  CHECK(per_element(DType::bf16, Sharded::state) == 4 + 12.0 / world);
  CHECK(per_element(DType::bf16, Sharded::gradients) == 2 + 14.0 / world);
  CHECK(per_element(DType::f32, Sharded::nothing) == 16);
  CHECK(per_element(DType::f32, Sharded::state) == 8 + 8.0 / world);
  CHECK(per_element(DType::f32, Sharded::gradients) == 4 + 12.0 / world);
  const auto per_element_of_fsdp = [&](DType dtype) {
    nn::Sequential model;
    for (int i = 0; i < 8; ++i) model.push_back(nn::Linear(8, world, false));
    model.to(dtype);
    const nn::Adam optimizer(model.parameters());
    const auto ranks = estimate_memory(optimizer, model, nn::wrap_by_type({"Linear"}), world);
    for (const nn::MemoryEstimate& rank : ranks) CHECK(rank == ranks[0]);
    return static_cast<double>(ranks[0].total()) / (8 * elements);
  };
  CHECK(per_element_of_fsdp(DType::bf16) == 16.0 / world);
  CHECK(per_element_of_fsdp(DType::f32) == 16.0 / world);
  // 7.5 thousand million parameters on 64 ranks: 120, 31.4, 16.64 and 1.9 GB.
  CHECK(7.5 * per_element(DType::bf16, Sharded::nothing) == 120);
  CHECK(7.5 * per_element(DType::bf16, Sharded::state) == doctest::Approx(31.4).epsilon(0.001));
  CHECK(7.5 * per_element(DType::bf16, Sharded::gradients) ==
        doctest::Approx(16.64).epsilon(0.001));
  CHECK(7.5 * per_element_of_fsdp(DType::bf16) == 1.875);
}

TEST_CASE("a step sends each parameter twice by DDP and ZeRO-2, and three times by FSDP") {
  constexpr int layers = 16, wide = 16;
  constexpr double parameters = 4.0 * layers * (wide * wide + wide);
  // How often, where an all-reduce is a reduce-scatter and an all-gather; and a little beside.
  const auto sent = [&](const comm::OperationCounters& made) {
    double bytes = 0;
    for (const comm::Collective what : comm::all_collectives) {
      bytes += (what == comm::Collective::all_reduce ? 2.0 : 1.0) *
               static_cast<double>(made[what].bytes);
    }
    return bytes / parameters;
  };
  ranks(2, [&](const Group& group, int) {
    const auto made = [] {
      nn::Sequential model;
      for (int i = 0; i < layers; ++i) model.push_back(nn::Linear(wide, wide));
      return model;
    };
    // Of the third step: in the first ranks agree on what they do.
    const auto of_step = [&](nn::Module& model, nn::Optimizer& optimizer) {
      comm::OperationCounters before;
      for (int step = 0; step < 3; ++step) {
        before = group.counters();
        optimizer.zero_grad();
        sum(model(full({2, wide}, 1.0))).backward();
        optimizer.step();
      }
      return sent(group.counters() - before);
    };
    nn::Sequential first = made(), second = made(), third = made();
    DDP ddp(first, group);
    nn::AdamW plain(first.parameters());
    CHECK(of_step(ddp, plain) == doctest::Approx(2).epsilon(0.005));
    Zero<nn::AdamW> zero(group, second.named_parameters());
    nn::ShardedDDP sharded(second, zero);
    CHECK(of_step(sharded, zero) == doctest::Approx(2).epsilon(0.005));
    nn::FullyShardedDataParallel fsdp(third, group, {.wrap = nn::wrap_by_type({"Linear"})});
    nn::AdamW pieces(fsdp.local_parameters());
    CHECK(of_step(fsdp, pieces) == 3);
  });
}

TEST_CASE("the estimate is printed as a table") {
  const NamedTensors list{{"a", Tensor::zeros({1 << 19}).set_requires_grad()},
                          {"b", Tensor::zeros({1 << 19}).set_requires_grad()}};
  CHECK(describe_memory(nn::Adam(list), 2) ==
        "MiB        parameters    gradients    optimizer       in all\n"
        "DDP              4.00         4.00         8.00        16.00\n"
        "ZeRO-1           4.00         4.00         4.00        12.00\n"
        "ZeRO-2           4.00         2.00         4.00        10.00\n");
  CHECK(describe_memory(nn::Adam(list), 2, 3 << 19) ==
        describe_memory(nn::Adam(list), 2) + "activations in a step: 1.50 more\n");
}

TEST_CASE("the estimate of FSDP is a line of the table") {
  struct Two : nn::Module {
    Tensor a = add_parameter("a", Tensor::zeros({1 << 19}));
    Tensor b = add_parameter("b", Tensor::zeros({1 << 19}));
  } model;
  const nn::Adam optimizer(model.named_parameters());
  CHECK(describe_memory(optimizer, model, {}, 2) ==
        describe_memory(optimizer, 2) +
            "FSDP             2.00         2.00         4.00         8.00\n"
            "FSDP in a step: 8.00 more\n");
  CHECK(describe_memory(optimizer, model, {}, 2, 1 << 20) ==
        describe_memory(optimizer, model, {}, 2) + "activations in a step: 1.00 more\n");
}
