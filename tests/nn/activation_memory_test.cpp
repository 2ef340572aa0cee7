// SPDX-License-Identifier: Apache-2.0
// What is measured of activations with few samples, on top of what is estimated of the rest, is the
// high-water mark of true steps with many.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/nn/parallel/sharded/activation_memory.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/memory_estimate.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "zero_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Forward, loss and backward of so many samples.
using Batch = std::function<void(nn::Module& called, std::int64_t samples)>;

struct Net {
  std::string name;
  std::function<nn::Module()> make;
  Batch batch;
  std::array<std::int64_t, 2> measured{2, 4};
};

constexpr std::int64_t vocabulary = 64, positions = 32;

void gpt_batch(nn::Module& called, std::int64_t samples) {
  const Tensor x = randint(0, vocabulary, {samples, positions});
  const Tensor y = randint(0, vocabulary, {samples * positions});
  cross_entropy(reshape(called(x), {samples * positions, vocabulary}), y).backward();
}

nn::Module gpt() {
  return nn::GPT({.vocabulary = vocabulary,
                  .width = 64,
                  .heads = 4,
                  .layers = 8,
                  .positions = positions,
                  .resid_pdrop = 0.1});
}

// A few samples take less than the gradient of its embedding, which comes last.
struct Words : nn::Module {
  nn::Embedding words = add("words", nn::Embedding(4000, 32));
  nn::Linear wide = add("wide", nn::Linear(32, 256));
  nn::Linear out = add("out", nn::Linear(256, 4));
  Tensor forward(const Tensor& tokens) override {
    return mean(out(gelu(wide(words(tokens)))), {1});
  }
};

std::vector<Net> nets() {
  return {
      {"GPT", gpt, gpt_batch},
      {"GPT, checkpoint",
       [] {
         nn::Module model = gpt();
         nn::apply_activation_checkpointing(model, {"GptBlock"});
         return model;
       },
       gpt_batch},
      {"ResNet",
       [] { return nn::Module(nn::ResNet18({.num_classes = 10})); },
       [](nn::Module& called, std::int64_t samples) {
         cross_entropy(called(randn({samples, 3, 32, 32})), randint(0, 10, {samples})).backward();
       },
       {32, 64}},
      {"words", [] { return nn::Module(Words()); },
       [](nn::Module& called, std::int64_t samples) {
         cross_entropy(called(randint(0, 4000, {samples, 16})), randint(0, 4, {samples}))
             .backward();
       }}};
}

std::int64_t activations_of(const Net& net, nn::Module& model, std::int64_t samples) {
  return nn::activation_memory(
      model, [&](std::int64_t count) { net.batch(model, count); }, samples, net.measured);
}

std::int64_t requested_now() { return static_cast<std::int64_t>(cpu_requested_bytes().now); }

// Bytes of gradients whose memory is not the allocator's but a group's.
std::int64_t of_groups(const nn::Module& model) {
  std::int64_t bytes = 0;
  for (const Tensor& p : model.parameters()) {
    const bool of_group = p.grad().defined() && !p.grad().storage()->owned();
    if (of_group) bytes += static_cast<std::int64_t>(p.grad().view().bytes());
  }
  return bytes;
}

double off_by(std::int64_t measured, std::int64_t expected) {
  return std::abs(static_cast<double>(measured) / static_cast<double>(expected) - 1);
}

}  // namespace

TEST_CASE("with activations the estimate is the high-water mark of a step, within 5 %") {
  constexpr std::int64_t samples = 96;  // fewer are measured
  for (const Net& net : nets()) {
    CAPTURE(net.name);
    ranks(1, [&](const Group& group, int) {
      const std::int64_t before = requested_now();
      nn::Module model = net.make();
      nn::MemoryEstimate expected =
          estimate_memory(nn::AdamW(model.named_parameters()), nn::Sharded::nothing, 1,
                          activations_of(net, model, samples))[0];
      CHECK(expected.peak() == expected.total() + expected.activations);
      CHECK(expected.activations > expected.total() / 20);  // or it could not be seen
      DDP ddp(model, group);
      nn::AdamW optimizer(model.named_parameters());
      for (int step = 0; step < 3; ++step) {
        cpu_reset_peak();
        optimizer.zero_grad();
        net.batch(ddp, samples);
        optimizer.step();
        const std::int64_t measured =
            static_cast<std::int64_t>(cpu_requested_bytes().most) - before + of_groups(model);
        if (step == 0) continue;  // the optimizer has no state yet
        CHECK(off_by(measured, expected.peak()) < 0.05);
      }
    });
  }
}

TEST_CASE("with FSDP the estimate with activations is no less than the high-water mark") {
  constexpr std::int64_t samples = 24;
  for (const Net& net : {nets()[0], nets()[1]}) {
    CAPTURE(net.name);
    ranks(1, [&](const Group& group, int) {
      const std::int64_t before = requested_now();
      nn::Module model = net.make();
      const nn::WrapPolicy policy = nn::wrap_by_type({"GptBlock"});
      const std::int64_t activations = activations_of(net, model, samples);
      const nn::MemoryEstimate expected =
          estimate_memory(nn::AdamW(model.named_parameters()), model, policy, 1, activations)[0];
      nn::FullyShardedDataParallel fsdp(model, group, {.wrap = policy});
      nn::AdamW optimizer(fsdp.local_parameters());
      std::int64_t most = 0;
      for (int step = 0; step < 3; ++step) {
        cpu_reset_peak();
        fsdp.zero_grad();
        for (int part = 0; part < 2; ++part) net.batch(fsdp, samples);  // accumulates
        optimizer.step();
        most = static_cast<std::int64_t>(cpu_requested_bytes().most) - before;
        CHECK(most < 1.01 * expected.peak());
      }
      CHECK(off_by(most, expected.peak()) < 0.05);
    });
  }
}

TEST_CASE("activations are carried on from few samples to what many take") {
  for (const Net& net : nets()) {
    CAPTURE(net.name);
    nn::Module model = net.make();
    const auto measured = [&](std::int64_t samples, std::array<std::int64_t, 2> by) {
      return nn::activation_memory(
          model, [&](std::int64_t count) { net.batch(model, count); }, samples, by);
    };
    const std::int64_t of_many = measured(96, {2, 96});
    CHECK(off_by(measured(96, net.measured), of_many) < 0.03);
    CHECK(measured(20, net.measured) < of_many);
    CHECK(measured(3, net.measured) <= measured(4, net.measured));
  }
}

TEST_CASE("with checkpoint activations are fewer") {
  const std::vector<Net> all = nets();
  nn::Module plain = all[0].make(), again = all[1].make();
  CHECK(activations_of(all[1], again, 16) < activations_of(all[0], plain, 16) / 2);
}

TEST_CASE("who asks for activations finds the model as it was") {
  for (const Net& net : nets()) {
    CAPTURE(net.name);
    manual_seed(3);
    nn::Module model = net.make();
    model.parameters()[0].set_requires_grad(false);
    const auto before = values_of(model.state_dict());
    const Generator generator = context().generator;
    const std::int64_t bytes = requested_now();
    CHECK(activations_of(net, model, 8) > 0);
    CHECK(requested_now() == bytes);
    CHECK(values_of(model.state_dict()) == before);
    for (const Tensor& p : model.parameters()) CHECK_FALSE(p.grad().defined());
    CHECK(context().generator.offset == generator.offset);
    CHECK(context().generator.seed == generator.seed);
    const auto failing = [&](std::int64_t samples) {
      net.batch(model, samples);
      fail("no more");
    };
    CHECK_THROWS_WITH_AS(nn::activation_memory(model, failing, 8), "no more", Error);
    CHECK(values_of(model.state_dict()) == before);
    CHECK_FALSE(model.parameters().back().grad().defined());
  }
}

TEST_CASE("activations of what cannot be measured are an Error") {
  const Net net = nets()[3];
  nn::Module model = net.make();
  const auto asked = [&](const std::function<void(std::int64_t)>& run, std::int64_t samples = 8) {
    return nn::activation_memory(model, run, samples);
  };
  const auto batch = [&](std::int64_t samples) { net.batch(model, samples); };
  CHECK_THROWS_WITH_AS(asked(batch, 0), doctest::Contains("got 32, 64 and 0"), Error);
  CHECK_THROWS_WITH_AS(nn::activation_memory(model, batch, 8, {2, 2}),
                       doctest::Contains("got 2, 2 and 8"), Error);
  CHECK_THROWS_WITH_AS(asked([](std::int64_t) {}),
                       doctest::Contains("gave no parameter of the model a gradient"), Error);
  CHECK_THROWS_WITH_AS(asked([&](std::int64_t samples) {
                         model.zero_grad();
                         batch(samples);
                       }),
                       doctest::Contains("leave zero_grad() and the optimizer's step out"), Error);
  CHECK_THROWS_WITH_AS(asked([&](std::int64_t samples) {
                         batch(samples);
                         model.zero_grad();
                       }),
                       doctest::Contains("leave zero_grad() and the optimizer's step out"), Error);
  batch(2);
  CHECK_THROWS_WITH_AS(asked(batch), doctest::Contains("words.weight has a gradient"), Error);
  model.zero_grad();
  ranks(1, [&](const Group& group, int) {
    const DDP ddp(model, group);
    CHECK_THROWS_WITH_AS(asked(batch), doctest::Contains("words.weight belongs to a distributed"),
                         Error);
  });
}
