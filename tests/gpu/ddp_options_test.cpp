// SPDX-License-Identifier: Apache-2.0
// Each option of DDP on devices, over the CPU's transport, gives what it gives on the CPU; and what
// ranks on devices are told where one of them leaves a part of the model out. On a GPU and on the
// host.
#include "ddp_options.h"

#include <peal/nn/layers/layers.h>
#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::testing;

TEST_CASE("each option gives on devices what it gives on the CPU") {
  for (const OptionsCase& one : options_cases()) check_as_on_cpu(one);
}

namespace {

struct TwoParts : nn::Module {
  nn::Linear fc1 = add("fc1", nn::Linear(3, 2)), fc2 = add("fc2", nn::Linear(3, 2));
  Tensor pick(const Tensor& x, bool both) { return both ? fc1(x) + fc2(x) : fc1(x); }
};

}  // namespace

TEST_CASE("ranks on devices are told in the same step who has no gradient for what, and go on") {
  for (const bool static_graph : {false, true}) {
    for (const bool hook : {false, true}) {
      CAPTURE(static_graph);
      CAPTURE(hook);
      ranks(3, [&](const Group& group, int rank) {
        const OnDevice here(rank);
        TwoParts net;
        net.to(here.device);
        write_whole(net);
        DDP ddp(net, group, {.static_graph = static_graph});
        if (hook) ddp.register_comm_hook(nn::bf16_compress_hook(group));
        const Tensor x = full({2, 3}, rank + 1, DType::f32, here.device);
        const auto step = [&](bool both) {
          ddp.zero_grad();
          sum(ddp.call(&TwoParts::pick, x, both)).backward();
          return net.fc2.bias.grad().to_vector<float>();
        };
        const std::vector<float> each{2, 2};
        CHECK(step(true) == each);
        const std::string told = error_of([&] { step(rank != 1); });
        for (const char* words : {"[ddp] step 2: rank 1: no gradient came for fc2.weight, fc2.bias",
                                  "rank       0 1 2", "fc2.weight . x .", "fc2.bias   . x ."}) {
          check_has(told, words);
        }
        CHECK_FALSE(group.poisoned());
        CHECK(step(true) == each);
      });
    }
  }
}

TEST_CASE("steps on devices whose hook sends nothing meet nobody, after the first") {
  two([](const Group& group, int rank) {
    const OnDevice here(rank);
    TwoParts net;
    net.to(here.device);
    DDP ddp(net, group);
    ddp.register_comm_hook(nn::noop_hook());
    const Tensor x = full({2, 3}, rank + 1, DType::f32, here.device);
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t before = group.sequence();
      sum(ddp.call(&TwoParts::pick, x, true)).backward();
      // The second one learns the order of the first.
      if (step > 1) CHECK(group.sequence() == before);
    }
    ddp.register_comm_hook(nn::average_gradients(group));  // whose steps ask again
    ddp.zero_grad();
    const std::string told =
        error_of([&] { sum(ddp.call(&TwoParts::pick, x, rank == 0)).backward(); });
    check_has(told, "rank 1: no gradient came for fc2.weight, fc2.bias");
    CHECK_FALSE(group.poisoned());
  });
}

TEST_CASE(
    "a part that is recomputed in backward is not missing, in a first step and in later ones") {
  two([](const Group& group, int rank) {
    struct Again : nn::Module {
      nn::Linear fc1 = add("fc1", nn::Linear(3, 3)), fc2 = add("fc2", nn::Linear(3, 3));
      Tensor forward(const Tensor& x) override { return again(fc2, fc1(x)); }
    };
    const OnDevice here(rank);
    Again net, alone;
    for (nn::Module* const model :
         {static_cast<nn::Module*>(&net), static_cast<nn::Module*>(&alone)}) {
      model->to(here.device);
      write_whole(*model);
    }
    DDP ddp(net, group);
    for (int step = 0; step < 3; ++step) {
      const Tensor x = full({2, 3}, rank + step, DType::f32, here.device);
      for (nn::Module* const model :
           {static_cast<nn::Module*>(&ddp), static_cast<nn::Module*>(&alone)}) {
        model->zero_grad();
        sum((*model)(x)).backward();
      }
      check_averaged(net, alone, group);
    }
  });
}
