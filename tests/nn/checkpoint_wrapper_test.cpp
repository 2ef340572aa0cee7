// SPDX-License-Identifier: Apache-2.0
// checkpoint_wrapper: FairScale's case, exactly, with its count of forwards; statistics once; keys
// that stay; and blocks that are wrapped before and after FSDP cuts them.
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/weight_norm.h>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct CountedBlock : nn::Module {
  nn::Linear up = add("up", nn::Linear(32, 128));
  nn::Dropout drop = add("drop", nn::Dropout(0.5));
  nn::Linear down = add("down", nn::Linear(128, 32));
  std::shared_ptr<int> forwards = std::make_shared<int>(0);
  Tensor forward(const Tensor& x) override {
    ++*forwards;
    return down(drop(up(x)));
  }
};

struct Run {
  std::vector<float> loss, norm;
  int forwards_before, forwards;
};

// How the block is wrapped.
template <class Wrap>
Run run_of(const Wrap& wrap) {
  manual_seed(5);
  CountedBlock block;
  nn::Sequential net{block, nn::Linear(32, 1)};
  wrap(net);
  net(randn({4, 32}));
  const Tensor loss = sum(net(randn({4, 32})));
  const int before = *block.forwards;
  loss.backward();
  Tensor squares = Tensor::zeros({});
  for (const Tensor& p : net.parameters()) squares = squares + sum(square(p.grad()));
  return {loss.to_vector<float>(), sqrt(squares).to_vector<float>(), before, *block.forwards};
}

}  // namespace

TEST_CASE(
    "loss and norm are exactly the same without, with checkpoints, and with what goes in "
    "elsewhere") {
  const Run plain = run_of([](nn::Sequential&) {});
  CHECK(plain.forwards == 2);
  for (const bool elsewhere : {false, true}) {
    const Run wrapped = run_of([&](nn::Sequential& net) {
      nn::apply_activation_checkpointing(net, {"CountedBlock"}, {.offload_to_cpu = elsewhere});
    });
    CHECK(wrapped.loss == plain.loss);
    CHECK(wrapped.norm == plain.norm);
    CHECK(wrapped.forwards_before == 2);
    CHECK(wrapped.forwards == 3);
  }
}

TEST_CASE("running statistics move once, names stay, and evaluation computes once") {
  nn::Sequential net{nn::Sequential(nn::BatchNorm1d(1)), nn::Linear(1, 1)};
  const auto keys = [&] {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : net.state_dict()) names.push_back(name);
    return names;
  };
  const auto before = keys();
  net.replace_child("0.0", nn::checkpoint_wrapper(net.child("0.0")));
  CHECK(keys() == before);
  const Tensor x = Tensor::from(std::vector<float>{0, 2, 4, 6}, {4, 1});  // of mean 3
  sum(net(x)).backward();
  CHECK(net.get_buffer("0.0.running_mean").item<float>() == doctest::Approx(0.3));
  CHECK(net.get_buffer("0.0.num_batches_tracked").item<std::int64_t>() == 1);

  CountedBlock block;
  nn::Module wrapped = nn::checkpoint_wrapper(block);
  {
    const NoGrad guard;
    wrapped(randn({2, 32}));
  }
  CHECK(*block.forwards == 1);
}

TEST_CASE("two forwards before their backwards, and a wrapper within a wrapper") {
  const auto gradients = [](bool wrapped) {
    manual_seed(2);
    nn::Sequential net = nn::mlp({3, 8, 8, 2});
    if (wrapped) nn::apply_activation_checkpointing(net, {"Linear"});
    nn::Module whole = net;
    if (wrapped) whole = nn::checkpoint_wrapper(net);
    const Tensor a = sum(square(whole(randn({4, 3})))), b = sum(square(whole(randn({2, 3}))));
    (a + b).backward();
    std::vector<std::vector<float>> all;
    for (const Tensor& p : net.parameters()) all.push_back(p.grad().to_vector<float>());
    return all;
  };
  CHECK(gradients(true) == gradients(false));
}

TEST_CASE("a member that is wrapped computes anew where its parent calls it") {
  struct Outer : nn::Module {
    CountedBlock inner = add("inner", CountedBlock());
    Tensor forward(const Tensor& x) override { return inner(x); }
  };
  Outer outer;
  const auto forwards_of_a_step = [&] {
    const int before = *outer.inner.forwards;
    sum(outer(ones({2, 32}))).backward();
    return *outer.inner.forwards - before;
  };
  CHECK(forwards_of_a_step() == 1);
  const nn::Module plain = outer.child("inner");
  nn::apply_activation_checkpointing(outer, {"CountedBlock"});
  CHECK(forwards_of_a_step() == 2);
  outer.replace_child("inner", plain);
  CHECK(forwards_of_a_step() == 1);

  nn::GptMlp mlp(8, GeluApproximation::tanh);
  const Tensor x = ones({2, 8});
  CHECK(mlp(x).body().node->op != "checkpoint");
  nn::apply_activation_checkpointing(mlp, {"Linear"});
  CHECK(mlp(x).body().node->op == "checkpoint");  // not both layers in one op
}

TEST_CASE("who goes by a module's class goes by that of what is wrapped") {
  nn::Module plain = nn::ConvTranspose2d(2, 3, 3);
  nn::Module wrapped = nn::checkpoint_wrapper(nn::ConvTranspose2d(2, 3, 3));
  nn::spectral_norm(plain);
  nn::spectral_norm(wrapped);
  const auto length_of = [](const nn::Module& module) {
    for (const auto& [name, buffer] : module.named_buffers()) {
      if (name == "weight_u") return buffer.numel();
    }
    return std::int64_t{0};
  };
  CHECK(length_of(plain) == 3);  // its outputs, which are its weight's second dimension
  CHECK(length_of(wrapped) == 3);
}

TEST_CASE("a module of two places is wrapped in both, once") {
  CountedBlock block;
  nn::Sequential net{block, nn::Linear(32, 32), block};
  for (int turn = 0; turn < 2; ++turn) {  // the second finds it wrapped
    nn::apply_activation_checkpointing(net, {"CountedBlock"});
    const int before = *block.forwards;
    const Tensor loss = sum(net(ones({2, 32})));
    CHECK(*block.forwards == before + 2);
    loss.backward();
    CHECK(*block.forwards == before + 4);
  }
}

TEST_CASE("a class that a model has not is an error by name, and wraps nothing") {
  nn::GPT gpt = make_gpt();
  check_has(error_of([&] {
              nn::apply_activation_checkpointing(gpt, {"GptBlock", "Block"});
            }),
            "the model has no Block below it");
  CHECK(gpt.child("transformer.h.0").class_name() == "peal::nn::GptBlock");
}

TEST_CASE("blocks that compute anew are units of FSDP, wrapped before it or after") {
  for (const bool after : {false, true}) {
    CAPTURE(after);
    ranks(3, [after](const Group& group, int rank) {
      nn::GPT model = fresh(make_gpt), whole = fresh(make_gpt);
      if (!after) nn::apply_activation_checkpointing(model, {"GptBlock"});
      FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
      if (after) nn::apply_activation_checkpointing(model, {"GptBlock"});
      CHECK(fsdp.units().size() == 4);  // the model, and three blocks
      nn::AdamW optimizer(fsdp.local_parameters(), {.lr = 0.01}),
          expected(whole.parameters(), {.lr = 0.01});
      for (int step = 0; step < 3; ++step) {
        const Batch batch = batch_of(model, 6, step);
        fsdp.zero_grad();
        expected.zero_grad();
        loss_of(fsdp, rows_of(batch, rank, 3)).backward();
        loss_of(whole, batch).backward();
        optimizer.step();
        expected.step();
      }
      CHECK(difference(fsdp.state_dict(), whole.state_dict()) < 1e-12);
    });
  }
}
