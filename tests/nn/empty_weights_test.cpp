// SPDX-License-Identifier: Apache-2.0
// Models without memory for their parameters: that they are the same ones once they have it, how
// much there is of it meanwhile, and who is told that there are no values yet.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/out_of_memory.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/init.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/model_shards.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/sharded/sharded_checkpoint.h>
#include <peal/nn/weight_norm.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace peal;

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.raw(), b.raw(), a.view().bytes()) == 0;
}

void check_same(const NamedTensors& a, const NamedTensors& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].first);
    REQUIRE(a[i].first == b[i].first);
    CHECK(same_bits(a[i].second, b[i].second));
  }
}

// A model of `make`, made at once, and one that gets its values later, from the last parameter to
// the first, while the thread's random numbers have gone on.
void check_made_later(const std::function<nn::Module()>& make, std::size_t computed = 0) {
  manual_seed(3);
  const nn::Module there = make();
  const Tensor next = rand({3});
  manual_seed(3);
  const nn::Module later = [&] {
    const auto empty = nn::init_empty_weights();
    return make();
  }();
  CHECK(same_bits(rand({3}), next));
  INFO(there.class_name());
  CHECK(nn::empty_parameters(later).size() + computed == later.parameters().size());
  std::vector<Tensor> parameters = later.parameters();
  manual_seed(99);
  for (std::size_t p = parameters.size(); p-- > 0;) materialize(parameters[p]);
  CHECK(nn::empty_parameters(later).empty());
  check_same(later.state_dict(), there.state_dict());
}

struct Own : nn::Module {
  nn::Linear fc = add("fc", nn::Linear(3, 4));
  Tensor scale = add_parameter("scale", ones({4}));
  Tensor scaled = add_parameter("scaled", randn({2, 4}) * 0.5);  // computed: it has memory
  Tensor given = add_parameter("given", Tensor::from<float>({1, 2}, {2}));
  Tensor mask = add_buffer("mask", zeros({2, 2}));
  Tensor forward(const Tensor& x) override { return fc(x) * scale; }
};

nn::Module every_init() {
  const auto weight = [](const Shape& shape) { return empty(shape); };
  nn::ParameterList all;
  for (int i = 0; i < 10; ++i) all.append(weight({6, 4}));
  all.append(weight({4, 2, 3}));
  const auto p = all.parameters();
  nn::init::uniform_(p[0], -2, 3);
  nn::init::normal_(p[1], 1, 2);
  nn::init::constant_(p[2], 7);
  nn::init::eye_(p[3]);
  nn::init::sparse_(p[4], 0.3);
  nn::init::trunc_normal_(p[5]);
  nn::init::xavier_uniform_(p[6]);
  nn::init::kaiming_normal_(p[7]);
  nn::init::orthogonal_(p[8]);
  const NoGrad guard;
  normal_(p[9], 1, 2);
  uniform_(p[9].rows(1, 3), 4, 5);
  p[9].rows(2, 4).copy_(p[1].rows(0, 2));
  nn::init::constant_(p[1], 8);  // after its values were copied
  nn::init::dirac_(p[10]);
  return all;
}

std::size_t used_now() { return cpu_allocator_statistics().in_use; }

}  // namespace

TEST_CASE("a model that gets its values later is the one that it would have been, bit by bit") {
  check_made_later([] { return nn::GPT({11, 6, 2, 3, 6}); });
  check_made_later([] { return nn::BasicNet(); });
  check_made_later([] { return nn::LSTM(3, 4, {.num_layers = 2}); });
  check_made_later([] {
    return nn::Sequential(nn::Embedding(5, 3, {.padding_idx = 2}), nn::Conv1d(3, 4, 3),
                          nn::BatchNorm1d(4), nn::PReLU(), nn::ConvTranspose2d(2, 3, 3),
                          nn::GroupNorm(2, 4), nn::Bilinear(2, 3, 4));
  });
  check_made_later([] {
    return nn::TransformerEncoder(nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 8}), 2);
  });
  check_made_later([] { return Own(); }, 2);
  check_made_later(every_init);
  // What is read in the scope has its values from then on: the weight's length.
  check_made_later(
      [] {
        nn::Linear linear(3, 4);
        nn::weight_norm(linear);
        return linear;
      },
      2);
}

TEST_CASE("a scope is its thread's, and ends with it") {
  const auto empty = nn::init_empty_weights();
  CHECK(is_deferred(randn({2})));
  std::thread(with_context([] { CHECK(!is_deferred(randn({2}))); })).join();
  {
    const DeferInit plainly(false);
    CHECK(!is_deferred(nn::Linear(2, 2).weight));
  }
  CHECK(is_deferred(nn::Linear(2, 2).weight));
}

TEST_CASE("an empty model takes no memory, and init functions of it none") {
  manual_seed(1);
  const std::size_t before = used_now();
  cpu_reset_peak();
  nn::Sequential net = [] {
    const auto empty = nn::init_empty_weights();
    return nn::Sequential(nn::Linear(256, 256), nn::Linear(256, 256));
  }();
  net.apply([](nn::Module& each) {
    if (auto* const linear = each.as<nn::Linear>()) nn::init::normal_(linear->weight, 0, 0.02);
  });
  net.to(DType::bf16);
  CHECK(cpu_allocator_statistics().peak - before < 4096);
  CHECK(nn::empty_parameters(net) ==
        std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"});
  manual_seed(1);
  nn::Sequential there(nn::Linear(256, 256), nn::Linear(256, 256));
  for (const char* name : {"0.weight", "1.weight"}) {
    nn::init::normal_(there.get_parameter(name), 0, 0.02);
  }
  there.to(DType::bf16);
  nn::materialize_module(net);
  check_same(net.state_dict(), there.state_dict());
}

TEST_CASE("who reads a parameter without values is told its name") {
  nn::GPT gpt = [] {
    const auto empty = nn::init_empty_weights();
    return nn::GPT({11, 6, 2, 3, 6});
  }();
  const std::string name = "transformer.h.1.attn.c_attn.weight";
  const Tensor weight = gpt.get_parameter(name);
  CHECK(weight.shape() == Shape{18, 6});
  CHECK(weight.requires_grad());
  const auto check_named = [&](const std::function<void()>& f, const std::string& which) {
    const std::string words = testing::error_of(f);
    INFO(words);
    CHECK(words.find(which + " has no values yet") != std::string::npos);
    CHECK(words.find("nn::materialize_module()") != std::string::npos);
  };
  check_named([&] { (void)weight.to_vector<float>(); }, name);
  check_named([&] { (void)(weight * 2.0); }, name);
  check_named([&] { weight.detach().mul_(2.0); }, name);
  check_named([&] { (void)weight.detach().rows(3, 4).clone(); }, name);
  check_named([&] { gpt(Tensor::from<std::int64_t>({1, 2}, {1, 2})); }, "e.weight");
  check_named([&] { (void)to_string(weight); }, name);
  const testing::Folder folder;
  check_named([&] { nn::save_model_shards(folder.path, gpt); }, "transformer.wte.weight");
  CHECK(nn::empty_parameters(gpt).size() == gpt.parameters().size());
  // Shapes, sizes and the model's text need none.
  const NamedTensors state = gpt.state_dict(), there = nn::GPT({11, 6, 2, 3, 6}).state_dict();
  REQUIRE(state.size() == there.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    CHECK(state[i].first == there[i].first);
    CHECK(state[i].second.shape() == there[i].second.shape());
  }
  CHECK(!gpt.repr().empty());
  CHECK(nn::empty_parameters(gpt).size() == gpt.parameters().size());
  nn::SGD optimizer(gpt.named_parameters(), {.lr = 0.1});
  optimizer.zero_grad();
}

TEST_CASE("what is no parameter and has no values is told who makes them") {
  const Tensor own = [] {
    const auto empty = nn::init_empty_weights();
    return full({4}, 0.5);
  }();
  const std::string words = testing::error_of([&] { (void)own.to_vector<float>(); });
  testing::check_has(words, "a tensor of 16 bytes has no values yet");
  testing::check_has(words, "add_buffer()");
  CHECK_FALSE(testing::contains(words, "nn::materialize_module()"));
  materialize(own);
  CHECK(own.to_vector<float>() == std::vector<float>(4, 0.5F));
}

TEST_CASE("rows copied within an empty tensor, and between two, are made once each") {
  constexpr std::int64_t rows = 64;
  const auto row = [](const Tensor& x, std::int64_t r) { return x.rows(r, r + 1); };
  const auto copied = [&] {
    const Tensor alike = randn({rows, 3}), a = randn({rows, 3}), b = randn({rows, 3});
    for (std::int64_t r = 1; r < rows; ++r) {
      row(alike, r).copy_(row(alike, r % 2 == 0 ? 0 : r - 1));
      if (r == 9) uniform_(row(alike, 0), 4, 5);  // of later copies
    }
    alike.copy_(alike);
    for (std::int64_t r = 1; r < rows; ++r) {
      row(a, r).copy_(row(b, r - 1));
      row(b, r).copy_(row(a, r));
    }
    const Tensor taken = randn({2, 3}), table = randn({rows, 3});
    row(taken, 0).copy_(row(table, 5));
    row(taken, 1).copy_(row(table, 3));
    const Tensor both = empty({4, 3}), one = randn({2, 3}), other = randn({2, 3});
    both.rows(0, 2).copy_(one);
    both.rows(2, 4).copy_(other);
    nn::ParameterList all;
    for (const Tensor& each : {alike, a, b, taken, table, both, one, other}) all.append(each);
    return all;
  };
  check_made_later(copied, 4);  // a, b, taken and table have memory: their lists would be long
}

// Sanitizers end the process where memory for a tensor is refused.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("an empty tensor for which there is no memory stays as it is") {
  const Shape shape{std::int64_t{1} << 50};
  const Tensor large = [&] {
    const auto scope = nn::init_empty_weights();
    return zeros(shape);
  }();
  float element = 0;  // stands for all of them, which nobody reads
  const Tensor given = Tensor::from_blob(&element, shape, DType::f32);
  testing::check_has(testing::error_of([&] { large.copy_(given); }), "the system has no");
  CHECK(is_deferred(large));
  testing::check_has(testing::error_of([&] { materialize(large); }), "the system has no");
  CHECK_THROWS_AS(materialize(large), OutOfMemory);
  CHECK(is_deferred(large));
}
#endif

TEST_CASE("a model that cannot be saved leaves the checkpoint that is in the folder") {
  const testing::Folder folder;
  const auto make = [] { return nn::Sequential(nn::Linear(4, 4), nn::Linear(4, 4)); };
  manual_seed(1);
  const nn::Sequential saved = make();
  nn::save_model_shards(folder.path, saved, {.max_shard_size = 64});
  const auto files = folder.entries();
  CHECK(files == 5);  // of four tensors, and the index
  const nn::Sequential partly = [&] {
    const auto empty = nn::init_empty_weights();
    return make();
  }();
  materialize(partly.get_parameter("0.weight"));
  testing::check_has(testing::error_of([&] {
                       nn::save_model_shards(folder.path, partly, {.max_shard_size = 64});
                     }),
                     "0.bias has no values yet");
  CHECK(folder.entries() == files);
  nn::Sequential loaded = make();
  nn::load_checkpoint_in_model(loaded, folder.path);
  check_same(loaded.state_dict(), saved.state_dict());
}

TEST_CASE("a checkpoint is loaded into an empty model, which is there once") {
  const testing::Folder folder;
  constexpr std::int64_t wide = 512;  // a weight is 1 MiB
  const auto make = [] {
    return nn::Sequential(nn::Linear(wide, wide), nn::Linear(wide, wide), nn::Linear(wide, wide));
  };
  manual_seed(1);
  const nn::Sequential saved = make();
  nn::save_model_shards(folder.path, saved, {.max_shard_size = 3 << 20});
  const auto made_empty = [&] {
    const auto empty = nn::init_empty_weights();
    return make();
  };
  nn::save_model(folder.path / "model", saved);
  nn::save(folder.path / "run", {{"model", saved}, {"random", RandomState()}});
  nn::save_sharded(folder.path / "cut", {{"model", saved}});
  const auto check_once = [&](const std::function<void(nn::Module&)>& load) {
    nn::Sequential net = made_empty();
    const std::size_t before = used_now();
    cpu_reset_peak();
    load(net);
    const std::size_t model = used_now() - before, peak = cpu_allocator_statistics().peak - before;
    CHECK(model >= 3 * wide * wide * 4);
    CHECK(peak < model + model / 2);  // one weight is a third
    check_same(net.state_dict(), saved.state_dict());
    net.get_parameter("0.weight").detach().zero_();  // it is its own memory
    CHECK(saved.get_parameter("0.weight").detach().sum().item<float>() != 0);
  };
  check_once([&](nn::Module& net) { nn::load_checkpoint_in_model(net, folder.path); });
  check_once([&](nn::Module& net) { nn::load_model(folder.path / "model", net); });
  check_once([&](nn::Module& net) { nn::load_sharded(folder.path / "cut", {{"model", net}}); });
  check_once([&](nn::Module& net) {
    RandomState random;
    nn::load_sharded(folder.path / "run", {{"model", net}, {"random", random}});
  });
  // What the file lacks is made as it would have been, and what it has wrong changes nothing.
  manual_seed(5);
  nn::Sequential more = make();
  more.add("extra", nn::Linear(2, 2));
  manual_seed(5);
  nn::Sequential less = [&] {
    const auto empty = nn::init_empty_weights();
    nn::Sequential all = make();
    all.add("extra", nn::Linear(2, 2));
    return all;
  }();
  CHECK_THROWS_WITH_AS(nn::load_checkpoint_in_model(less, folder.path),
                       doctest::Contains("missing: extra.weight"), Error);
  CHECK(nn::empty_parameters(less).size() == 8);
  nn::load_checkpoint_in_model(less, folder.path, false);
  CHECK(nn::empty_parameters(less) == std::vector<std::string>{"extra.weight", "extra.bias"});
  nn::materialize_module(less);
  CHECK(same_bits(less.get_parameter("extra.weight"), more.get_parameter("extra.weight")));
}
