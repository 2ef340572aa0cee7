// SPDX-License-Identifier: Apache-2.0
// FSDP of a model that is made without memory for its parameters: that it is the one that it would
// have been, however it is cut, and that no rank ever has the whole.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/outer_step.h>
#include <peal/nn/parallel/pipeline/pipe.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>
#include <peal/tests/folder.h>

#include <cstring>

#include "fsdp_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

struct NormBetween : nn::Module {
  nn::Linear in = add("in", nn::Linear(3, 5));
  nn::BatchNorm1d norm = add("norm", nn::BatchNorm1d(5));
  nn::Linear out = add("out", nn::Linear(5, 2));
  Tensor forward(const Tensor& x) override { return out(norm(in(x))); }
};

struct Roomless : nn::Module {  // rank 1 cannot make it
  explicit Roomless(int rank)
      : weight(add_parameter("weight",
                             deferred_tensor({2}, DType::f32, Device{}, [rank](const Tensor& x) {
                               PEAL_CHECK(rank != 1, "there is no room for it");
                               x.zero_();
                             }))) {}
  Tensor forward(const Tensor& x) override { return x * weight; }
  Tensor weight;
};

template <class F>
auto made_empty(F make) {
  const auto empty = nn::init_empty_weights();
  return make();
}

nn::GPT gpt_of_seed(std::uint64_t seed) {
  manual_seed(seed);
  return make_gpt();
}

void check_same_bits(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].first);
    REQUIRE(a[i].first == b[i].first);
    REQUIRE(a[i].second.shape() == b[i].second.shape());
    CHECK(std::memcmp(a[i].second.raw(), b[i].second.raw(), a[i].second.view().bytes()) == 0);
  }
}

constexpr std::int64_t wide = 192, layers = 12;

nn::Sequential tall() {
  nn::Sequential net;
  for (std::int64_t i = 0; i < layers; ++i) net.append(nn::Linear(wide, wide));
  return net;
}

// What making and cutting took at most, of all ranks together; and what it left.
struct Taken {
  std::size_t most = 0, left = 0;
};
Taken taken(int world, bool empty) {
  Taken all;
  ranks(world, [&](const Group& group, int rank) {
    static std::size_t before;
    if (rank == 0) {
      before = cpu_allocator_statistics().in_use;
      cpu_reset_peak();
    }
    group.barrier().wait();
    nn::Sequential net = empty ? made_empty(tall) : tall();
    const FSDP fsdp(net, group, {.wrap = nn::wrap_by_type({"Linear"})});
    group.barrier().wait();
    if (rank == 0) {
      const auto now = cpu_allocator_statistics();
      all = {now.peak - before, now.in_use - before};
    }
    group.barrier().wait();
  });
  return all;
}

}  // namespace

TEST_CASE("a model made empty is the same as one that was there, in any units on any ranks") {
  for (const int world : {1, 2, 3, 4}) {
    for (const nn::WrapPolicy& wrap :
         {nn::WrapPolicy(), nn::wrap_by_type({"GptBlock"}), nn::wrap_by_type({"Linear"})}) {
      ranks(world, [&](const Group& group, int rank) {
        const nn::GPT plain = gpt_of_seed(5);
        nn::GPT there = gpt_of_seed(5);
        // The ranks' seeds differ: values are rank 0's.
        nn::GPT later = made_empty([&] { return gpt_of_seed(5 + static_cast<unsigned>(rank)); });
        CHECK(nn::empty_parameters(later).size() == plain.parameters().size());
        manual_seed(1000);
        const FSDP cut(later, group, {.wrap = wrap}), expected(there, group, {.wrap = wrap});
        check_same_bits(cut.local_parameters(), expected.local_parameters());
        check_same_bits(cut.state_dict(), plain.state_dict());
        CHECK(nn::empty_parameters(later).empty());
      });
    }
  }
}

TEST_CASE("a model made empty trains as one that was there, with buffers and in f64") {
  ranks(3, [](const Group& group, int rank) {
    const auto make = [] {
      manual_seed(9);
      NormBetween model;
      model.to(DType::f64);
      return model;
    };
    NormBetween later = made_empty(make), there = make();
    CHECK(later.norm.running_var.to_vector<double>() == std::vector<double>(5, 1.0));
    FSDP cut(later, group, {.wrap = nn::wrap_by_type({"Linear"})});
    FSDP expected(there, group, {.wrap = nn::wrap_by_type({"Linear"})});
    for (FSDP* const each : {&cut, &expected}) {
      nn::SGD optimizer(each->local_parameters(), {.lr = 0.1, .momentum = 0.9});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        manual_seed(static_cast<std::uint64_t>(10 * step + rank));
        const Tensor x = randn({4, 3}, DType::f64);
        mean((*each)(x)).backward();
        optimizer.step();
      }
    }
    check_same_bits(cut.state_dict(), expected.state_dict());
  });
}

TEST_CASE("no rank has more than its part and a unit while an empty model is made and cut") {
  constexpr std::size_t unit = (wide * wide + wide) * 4, model = layers * unit;
  for (const int world : {1, 2, 4}) {
    const auto ranks = static_cast<std::size_t>(world);
    const Taken taken_now = taken(world, false), later = taken(world, true);
    CAPTURE(world);
    // The allocator rounds up, by a quarter at most, and what a group and plans take is small.
    CHECK(later.left < model * 5 / 4 + ranks * unit);
    CHECK(later.most < (model + ranks * unit) * 5 / 4 + ranks * unit);
    CHECK(taken_now.most > ranks * model);
    if (world > 1) CHECK(later.most < taken_now.most * 5 / 6);
  }
}

TEST_CASE("where rank 0 has values and the others none all get those") {
  ranks(3, [](const Group& group, int rank) {
    const nn::GPT loaded = gpt_of_seed(77);
    nn::GPT model = rank == 0 ? gpt_of_seed(77) : made_empty(make_gpt);
    const FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
    check_same_bits(fsdp.state_dict(), loaded.state_dict());
  });
  ranks(2, [](const Group& group, int rank) {
    const nn::GPT loaded = gpt_of_seed(77);
    nn::GPT model = rank == 0 ? gpt_of_seed(77) : made_empty(make_gpt);
    const DDP ddp(model, group);
    check_same_bits(model.state_dict(), loaded.state_dict());
  });
}

TEST_CASE("a pipeline makes the values of its own stage alone") {
  ranks(2, [](const Group& group, int rank) {
    manual_seed(6);
    const nn::Sequential there = nn::mlp({4, 5, 3});
    manual_seed(6);
    const nn::Sequential later = made_empty([] { return nn::mlp({4, 5, 3}); });
    const auto names = nn::empty_parameters(later);
    CHECK(names == std::vector<std::string>{"1.weight", "1.bias", "3.weight", "3.bias"});
    nn::Pipe pipe(group, later, {.micro_batches = 2, .balance = {2, 2}});
    const auto left = nn::empty_parameters(later);
    CHECK(left == (rank == 0 ? std::vector<std::string>{"3.weight", "3.bias"}
                             : std::vector<std::string>{"1.weight", "1.bias"}));
    for (const char* name : {"1.weight", "3.weight"}) {
      if (std::find(left.begin(), left.end(), name) != left.end()) continue;
      CHECK(later.get_parameter(name).to_vector<float>() ==
            there.get_parameter(name).to_vector<float>());
    }
  });
}

TEST_CASE("modules that are left alone get each rank's own values") {
  two([](const Group& group, int rank) {
    const auto make = [&] {
      manual_seed(rank == 0 ? 3 : 4);
      return NormBetween();
    };
    const NormBetween there = make();
    NormBetween later = made_empty(make);
    const FSDP fsdp(later, group, {.ignored_modules = {"out"}});
    CHECK(later.out.weight.to_vector<float>() == there.out.weight.to_vector<float>());
    NormBetween again = made_empty(make);
    const DDP ddp(again, group, {.ignored = {"out.weight", "out.bias"}});
    CHECK(nn::empty_parameters(again).empty());
    CHECK(again.out.weight.to_vector<float>() == there.out.weight.to_vector<float>());
  });
}

TEST_CASE("a rank that cannot make its values tells the others, whichever the wrapper") {
  using Wrap = std::function<void(const Roomless& model, const Group& group)>;
  const std::vector<Wrap> wraps{
      [](const Roomless& model, const Group& group) { const DDP ddp(model, group); },
      [](const Roomless& model, const Group& group) { const FSDP fsdp(model, group, {}); },
      [](const Roomless& model, const Group& group) { const nn::TensorParallel tp(model, group); },
      [](const Roomless& model, const Group& group) {
        const nn::DiLoCo outer(group, model.parameters(), {.sync_every = 2});
      },
      [](const Roomless& model, const Group& group) {
        const nn::Pipe pipe(group, nn::Sequential(nn::Linear(2, 2), model),
                            {.micro_batches = 2, .balance = {1, 1}});
        group.barrier().wait();  // rank 0 has made what is its own
      }};
  for (std::size_t i = 0; i < wraps.size(); ++i) {
    const std::string all = failure([&](const Group& group, int rank) {
      CAPTURE(i);
      const std::string words = error_of([&] { wraps[i](Roomless(rank), group); });
      check_has(words, "rank 1: ");
      check_has(words, "which was made empty, cannot get its values: ");
      check_has(words, "there is no room for it");
    });
    check_has(all, "there is no room for it");
  }
}

TEST_CASE("a sharded checkpoint is loaded into an empty model, plain or cut") {
  const Folder folder;
  ranks(2, [&](const Group& group, int) {
    const nn::GPT saved = gpt_of_seed(21);
    {
      nn::GPT model = gpt_of_seed(21);
      const FSDP fsdp(model, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
      nn::save_sharded(folder.path / "cut", {{"model", fsdp}}, group);
    }
    nn::GPT plain = made_empty(make_gpt), cut = made_empty(make_gpt);
    nn::load_sharded(folder.path / "cut", {{"model", plain}}, group);
    check_same_bits(plain.state_dict(), saved.state_dict());
    FSDP fsdp(cut, group, {.wrap = nn::wrap_by_type({"GptBlock"})});
    nn::load_sharded(folder.path / "cut", {{"model", fsdp}}, group);
    check_same_bits(fsdp.state_dict(), saved.state_dict());
  });
  nn::GPT alone = made_empty(make_gpt);
  nn::load_sharded(folder.path / "cut", {{"model", alone}});
  check_same_bits(alone.state_dict(), gpt_of_seed(21).state_dict());
  nn::save(folder.path / "one.safetensors", {{"model", alone}});
  nn::GPT again = made_empty(make_gpt), third = made_empty(make_gpt);
  nn::load(folder.path / "one.safetensors", {{"model", again}});
  nn::load_model(folder.path / "one.safetensors", third);
  check_same_bits(again.state_dict(), alone.state_dict());
  check_same_bits(third.state_dict(), alone.state_dict());
}
