// SPDX-License-Identifier: Apache-2.0
// States of FSDP in checkpoints: parts that rank 0 saves and all load, at any number of ranks and
// in one process; optimizers with numbers of a parameter without dimensions.
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

NamedTensors copied(const NamedTensors& state) {
  NamedTensors copies;
  for (const auto& [name, tensor] : state) copies.emplace_back(name, tensor.clone());
  return copies;
}

struct Ones : nn::Module {
  Tensor w = add_parameter("w", full({8}, 1.0, DType::f64));
  Tensor s = add_parameter("s", full({}, 1.0, DType::f64));
  Tensor forward(const Tensor& x) override { return sum(x * w) * s; }
};

// Its state goes through two ranks, and is that of one process.
template <class O>
void check_numbers() {
  const auto train = [](nn::Module& net, O& optimizer) {
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      net(full({8}, 0.5, DType::f64)).backward();
      optimizer.step();
    }
  };
  Ones alone;
  O plain(alone.named_parameters());
  train(alone, plain);
  for (const int world : {1, 2, 3}) {
    CAPTURE(world);
    ranks(world, [&](const Group& group, int) {
      Ones ones;
      FSDP fsdp(ones, group);
      O optimizer(fsdp.local_parameters()), again(fsdp.local_parameters());
      train(fsdp, optimizer);
      const NamedTensors state = fsdp.optimizer_state_dict(optimizer);
      CHECK(difference(state, plain.state_dict()) < 1e-12);
      fsdp.load_optimizer_state_dict(again, state);
      CHECK(difference(fsdp.optimizer_state_dict(again), state) == 0);
    });
  }
}

}  // namespace

TEST_CASE("a checkpoint that rank 0 saves goes on at another number of ranks, and in one process") {
  const Folder folder;
  const auto path = folder.path / "run.safetensors";
  const auto step = [](nn::Module& net, nn::Module model, nn::Optimizer& optimizer, int number,
                       int rank, int world) {
    optimizer.zero_grad();
    loss_of(net, rows_of(batch_of(model, 12, number), rank, world)).backward();
    optimizer.step();
  };
  NamedTensors values, moments, later;
  for (const bool by_wrapper : {false, true}) {
    ranks(2, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = wrap_layers()});
      nn::AdamW optimizer(fsdp.local_parameters());
      const std::vector<nn::Part> parts{
          by_wrapper ? nn::Part("model", fsdp) : nn::Part("model", fsdp.saved()),
          {"optimizer", fsdp.saved(optimizer)}};
      for (int k = 0; k < 2; ++k) step(fsdp, model, optimizer, k, rank, 2);
      for (const nn::Part& part : parts) part.consolidate_state_dict();
      if (rank == 0) nn::save(path, parts);
      const NamedTensors now = fsdp.state_dict(), its = fsdp.optimizer_state_dict(optimizer);
      if (rank == 0) values = copied(now), moments = copied(its);
      step(fsdp, model, optimizer, 2, rank, 2);
      const NamedTensors then = fsdp.state_dict();
      if (rank == 0) later = copied(then);
      // Loaded, a step goes the same way once more.
      nn::load(path, parts);
      CHECK(difference(fsdp.state_dict(), now) == 0);
      step(fsdp, model, optimizer, 2, rank, 2);
      CHECK(difference(fsdp.state_dict(), then) == 0);
    });
    for (const int world : {1, 3, 4}) {
      CAPTURE(world);
      ranks(world, [&](const Group& group, int rank) {
        SmallConv model = fresh(make_conv);
        FSDP fsdp(model, group);
        nn::AdamW optimizer(fsdp.local_parameters());
        nn::load(path, {{"model", fsdp}, {"optimizer", fsdp.saved(optimizer)}});
        CHECK(difference(fsdp.state_dict(), values) == 0);
        CHECK(difference(fsdp.optimizer_state_dict(optimizer), moments) == 0);
        step(fsdp, model, optimizer, 2, rank, world);
        CHECK(difference(fsdp.state_dict(), later) < 1e-10);
      });
    }
    SmallConv plain = fresh(make_conv);
    nn::AdamW optimizer(plain.named_parameters());
    nn::load(path, {{"model", plain}, {"optimizer", optimizer}});
    CHECK(difference(plain.state_dict(), values) == 0);
    CHECK(difference(optimizer.state_dict(), moments) == 0);
  }
}

TEST_CASE("what one rank alone has of a state is not saved for the whole") {
  for (const int world : {1, 2}) {
    ranks(world, [&](const Group& group, int rank) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = wrap_layers()});
      nn::AdamW optimizer(fsdp.local_parameters());
      loss_of(fsdp, batch_of(model, 2, rank)).backward();
      optimizer.step();
      check_has(error_of([&] { nn::Part("optimizer", optimizer).state_dict(); }),
                "saved(optimizer) as a part of a checkpoint");
      nn::ShardedState saved = fsdp.saved();
      if (world == 1) {
        CHECK(difference(saved.state_dict(), fsdp.state_dict()) == 0);
        return;
      }
      check_has(error_of([&] { saved.state_dict(); }), "call consolidate_state_dict(to)");
      saved.consolidate_state_dict(1);
      if (rank == 0) {
        check_has(error_of([&] { saved.state_dict(); }), "call consolidate_state_dict(to)");
      } else {
        CHECK(saved.state_dict().size() == 8);
      }
      // Once: what is saved later is brought together anew.
      check_has(error_of([&] { saved.state_dict(); }), "call consolidate_state_dict(to)");
    });
  }
}

TEST_CASE("numbers of a parameter without dimensions are no state tensors") {
  check_numbers<nn::NAdam>();
  check_numbers<nn::ASGD>();
  check_numbers<nn::AdamW>();
}
