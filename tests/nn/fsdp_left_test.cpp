// SPDX-License-Identifier: Apache-2.0
// Gradients of FSDP that nobody uses: dropped, not averaged yet, never come.
#include <peal/autograd/grad.h>
#include <peal/nn/optim/sgd.h>
#include <peal/tests/errors.h>

#include <memory>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

TEST_CASE("after zero_grad() of the wrapper an optimizer has nothing to step with") {
  for (int world = 1; world <= 2; ++world) {
    ranks(world, [](const Group& group, int) {
      SmallConv model = fresh(make_conv);
      FSDP fsdp(model, group);
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
      const NamedTensors before = fsdp.state_dict();
      loss_of(fsdp, batch_of(model, 2, 1)).backward();
      fsdp.zero_grad();
      CHECK(fsdp.clip_grad_norm_(1.0) == 0);
      optimizer.step();
      CHECK(difference(fsdp.state_dict(), before) == 0);
    });
  }
}

TEST_CASE("gradients that are not averaged yet are neither clipped nor stepped with") {
  for (int world = 1; world <= 2; ++world) {
    ranks(world, [](const Group& group, int rank) {
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP fsdp(model, group);
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
      nn::AdamW expected(whole.parameters(), {.lr = 0.1});
      const Batch batch = batch_of(model, 2 * group.world(), 1);
      {
        const FSDP::NoSync scope = fsdp.no_sync();
        loss_of(fsdp, rows_of(batch, rank, group.world())).backward();
      }
      const std::string clipped = error_of([&] { fsdp.clip_grad_norm_(1.0); });
      CHECK(clipped.find("not averaged yet") != std::string::npos);
      const std::string stepped = error_of([&] { optimizer.step(); });
      CHECK(stepped.find("not averaged yet: the last backward was under no_sync()") !=
            std::string::npos);
      // The next backward averages the sum.
      loss_of(fsdp, rows_of(batch, rank, group.world())).backward();
      loss_of(whole, batch).backward();
      loss_of(whole, batch).backward();
      nn::AdamW again(fsdp.local_parameters(), {.lr = 0.1});
      again.step();
      expected.step();
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
    });
  }
}

TEST_CASE("an average, and more on top that is not averaged yet, is not stepped with") {
  for (const int world : {1, 2, 3}) {
    ranks(world, [](const Group& group, int rank) {
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"Linear"})});
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.1});
      nn::AdamW expected(whole.named_parameters(), {.lr = 0.1});
      const Batch batch = batch_of(model, 2 * group.world(), 1);
      const auto backward = [&] {
        loss_of(fsdp, rows_of(batch, rank, group.world())).backward();
        loss_of(whole, batch).backward();
      };
      backward();
      for (int i = 0; i < 2; ++i) {
        const FSDP::NoSync scope = fsdp.no_sync();
        backward();
      }
      const std::string stepped = error_of([&] { optimizer.step(); });
      CHECK(stepped.find("not averaged yet") != std::string::npos);
      backward();  // of the sum: four of them are there
      nn::AdamW again(fsdp.local_parameters(), {.lr = 0.1});
      again.step();
      expected.step();
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
      // What is dropped does not come back.
      {
        const FSDP::NoSync scope = fsdp.no_sync();
        backward();
      }
      again.zero_grad();
      expected.zero_grad();
      backward();
      again.step();
      expected.step();
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
    });
  }
}

TEST_CASE("a backward to the inputs alone reduces nothing, and steps go on") {
  for (int world = 1; world <= 2; ++world) {
    ranks(world, [](const Group& group, int rank) {
      SmallConv model = fresh(make_conv), whole = fresh(make_conv);
      FSDP fsdp(model, group);
      nn::SGD optimizer(fsdp.local_parameters(), {.lr = 0.1});
      nn::SGD expected(whole.parameters(), {.lr = 0.1});
      for (int step = 0; step < 3; ++step) {
        const Batch batch = batch_of(model, 2 * group.world(), step);
        const Batch mine = rows_of(batch, rank, group.world());
        if (step != 1) {  // once beside gradients that are there
          loss_of(fsdp, mine).backward();
          loss_of(whole, batch).backward();
        }
        const Tensor x = mine.x.clone().set_requires_grad();
        const Tensor slope = autograd::grad({loss_of(fsdp, {x, mine.y})}, {x})[0];
        Tensor same = mine.x.clone().set_requires_grad();
        CHECK(allclose(slope, autograd::grad({loss_of(whole, {same, mine.y})}, {same})[0], 1e-10,
                       1e-12));
        optimizer.step();
        optimizer.zero_grad();
        expected.step();
        expected.zero_grad();
        CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-10);
      }
    });
  }
}

TEST_CASE("two optimizers over one model in bf16 keep the digits of their masters") {
  const auto train = [](nn::Module& model, const NamedTensors& of) {
    const auto half = static_cast<std::ptrdiff_t>(of.size() / 2);
    nn::AdamW first(NamedTensors(of.begin(), of.begin() + half), {.lr = 1e-4});
    nn::AdamW second(NamedTensors(of.begin() + half, of.end()), {.lr = 1e-4});
    for (int step = 0; step < 40; ++step) {
      model.zero_grad();
      first.zero_grad();
      second.zero_grad();
      sum(model(full({2, 3}, 1.0, DType::bf16))).backward();
      first.step();
      second.step();
    }
  };
  manual_seed(3);
  nn::Linear plain(3, 4);
  plain.to(DType::bf16);
  nn::Linear model(3, 4);
  model.to(DType::bf16);
  model.load_state_dict(plain.state_dict());
  NamedTensors before;
  for (const auto& [name, tensor] : plain.state_dict()) before.emplace_back(name, tensor.clone());
  train(plain, plain.named_parameters());
  FSDP fsdp(model, Group::alone());
  train(fsdp, fsdp.local_parameters());
  CHECK(difference(fsdp.state_dict(), plain.state_dict()) == 0);
  CHECK(difference(plain.state_dict(), before) > 0);
}
