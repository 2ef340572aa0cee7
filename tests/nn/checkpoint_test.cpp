// SPDX-License-Identifier: Apache-2.0
// A run that stops, is loaded in other objects and goes on equals the run that did not stop, bit
// for bit, dropout included.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

using namespace peal;
using namespace peal::testing;

namespace {

nn::Sequential network() {
  return nn::Sequential(nn::Linear(6, 8), nn::ReLU(), nn::Dropout(0.3), nn::Linear(8, 3));
}

void train(nn::Sequential& net, nn::Optimizer& optimizer, int from, int to) {
  for (int step = from; step < to; ++step) {
    Generator data{99, static_cast<std::uint64_t>(step) * 1000};  // not the one dropout draws from
    std::swap(context().generator, data);
    const Tensor x = randn({4, 6});
    std::swap(context().generator, data);
    optimizer.zero_grad();
    nn::CrossEntropyLoss()(net(x), Tensor::from<std::int64_t>({0, 1, 2, step % 3}, {4})).backward();
    optimizer.step();
  }
}

void check_same(const nn::Module& a, const nn::Module& b) {
  const NamedTensors left = a.state_dict(), right = b.state_dict();
  REQUIRE(left.size() == right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    INFO(left[i].first);
    CHECK(left[i].second.to_vector<float>() == right[i].second.to_vector<float>());
  }
}

// The bytes of its elements.
std::vector<std::uint8_t> content_of_tensor(const Tensor& tensor) {
  const auto* first = static_cast<const std::uint8_t*>(tensor.raw());
  return {first, first + static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype())};
}

}  // namespace

TEST_CASE("a resumed run equals the uninterrupted one bit for bit") {
  const Folder folder;
  const auto path = folder.path / "run.safetensors";
  manual_seed(11);
  nn::Sequential net = network();
  nn::AdamW optimizer(net.parameters(), {.lr = 0.01});
  train(net, optimizer, 0, 3);
  optimizer.set_lr(0.02);
  nn::save(path, {{"model", net}, {"optimizer", optimizer}, {"random", RandomState()}},
           {{"epoch", "3"}});
  train(net, optimizer, 3, 6);

  manual_seed(77);
  nn::Sequential resumed = network();
  nn::AdamW resumed_optimizer(resumed.parameters());
  const nn::Checkpoint checkpoint = nn::load(
      path, {{"model", resumed}, {"optimizer", resumed_optimizer}, {"random", RandomState()}});
  CHECK(checkpoint.metadata == Metadata{{"epoch", "3"}});
  CHECK(context().generator.seed == 11);
  CHECK(resumed_optimizer.lr() == 0.02);
  train(resumed, resumed_optimizer, 3, 6);
  check_same(net, resumed);
}

TEST_CASE("a model's file has its plain keys, and a checkpoint's model loads alone") {
  const Folder folder;
  nn::Sequential net = network(), other = network();
  nn::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
  train(net, optimizer, 0, 1);
  nn::save_model(folder.path / "model", net, {{"made by", "a test"}});
  const Safetensors file = load_safetensors(folder.path / "model");
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : file.tensors) keys.push_back(name);
  CHECK(keys == std::vector<std::string>{"0.weight", "0.bias", "3.weight", "3.bias"});
  CHECK(file.metadata == Metadata{{"made by", "a test"}});
  nn::load_model(folder.path / "model", other);
  check_same(net, other);

  train(net, optimizer, 1, 2);
  nn::save(folder.path / "checkpoint", {{"optimizer", optimizer}, {"model", net}});
  nn::load_model(folder.path / "checkpoint", other);
  check_same(net, other);
}

TEST_CASE("what does not fit is an error that names the file and the part") {
  const Folder folder;
  nn::Sequential net = network();
  nn::SGD sgd(net.parameters());
  nn::Adam adam(net.parameters());
  train(net, adam, 0, 1);
  const auto model = folder.path / "model", checkpoint = folder.path / "checkpoint";
  nn::save_model(model, net);
  nn::save(checkpoint, {{"model", net}, {"optimizer", adam}});

  nn::BasicNet other;
  const std::string message = error_of([&] { nn::load_model(model, other); });
  check_has(message, "load " + model.string() + ": load_state_dict: ");
  check_has(message, "BasicNet: 12 differences");
  check_has(message, "missing: conv1.weight f32 [32, 1, 3, 3]");
  check_has(message, "unexpected: 0.weight f32 [8, 6]");
  check_has(error_of([&] {
              nn::load(model, {{"model", net}});
            }),
            "this is a model, not a checkpoint (its metadata has no 'peal.parts'); use load_model, "
            "or load_sharded where a wrapper has cut the model");
  check_has(
      error_of([&] {
        nn::load(checkpoint, {{"model", net}, {"optimizer", sgd}});
      }),
      "load " + checkpoint.string() + ": part 'optimizer': SGD: load_state_dict: 14 differences");
  check_has(error_of([&] {
              nn::save(folder.path / "c", {{"model", net}}, {{"peal.x", ""}});
            }),
            "metadata 'peal.x' starts with 'peal.'");
  check_has(error_of([&] {
              nn::save(folder.path / "c", {{"model", net}, {"model", adam}});
            }),
            "the part 'model' comes twice");
  for (const std::string name : {"", "a.b", "a b"}) {
    check_has(error_of([&] { nn::Part(name, net); }), "got '" + name + "'");
  }
  const nn::Sequential& constant = net;
  nn::save(checkpoint, {{"model", constant}});
  check_has(error_of([&] {
              nn::load(checkpoint, {{"model", constant}});
            }),
            "part 'model': the object is const");
  save_safetensors(checkpoint, {{"stray", ones({1})}}, {{"peal.parts", "model"}});
  check_has(error_of([&] { nn::load_model(checkpoint, net); }),
            "the tensor 'stray' belongs to none of the parts");
  CHECK(folder.entries() == 2);
}

TEST_CASE("parts that only one side has are an error, or passed over and told") {
  const Folder folder;
  const auto path = folder.path / "c";
  nn::Sequential net = network(), other = network();
  nn::SGD optimizer(net.parameters());
  nn::LRScheduler scheduler(optimizer, nn::step_lr(2));
  nn::save(path, {{"model", net}, {"scheduler", scheduler}});
  const std::string message = error_of([&] {
    nn::load(path, {{"model", other}, {"optimizer", optimizer}});
  });
  check_has(message,
            "its parts are model, scheduler; missing: optimizer; not asked for: scheduler");
  CHECK(other.child("0").state_dict()[0].second.to_vector<float>() !=
        net.child("0").state_dict()[0].second.to_vector<float>());  // nothing was loaded
  const nn::Checkpoint told = nn::load(path, {{"model", other}, {"optimizer", optimizer}}, false);
  check_same(net, other);
  CHECK(told.missing_parts == std::vector<std::string>{"optimizer"});
  CHECK(told.unexpected_parts == std::vector<std::string>{"scheduler"});
  nn::save(path, {{"scheduler", scheduler}});
  check_has(error_of([&] { nn::load_model(path, net); }), "no part 'model', but: scheduler");
}

TEST_CASE("everything that has a state is a part") {
  static_assert(Stateful<nn::Module> && Stateful<nn::BasicNet>);
  static_assert(Stateful<nn::Optimizer> && Stateful<nn::AdamW>);
  static_assert(Stateful<nn::LRScheduler> && Stateful<nn::ReduceLROnPlateau>);
  static_assert(Stateful<nn::ExponentialMovingAverage> && Stateful<nn::GradScaler>);
  static_assert(Stateful<RandomState> && !Stateful<Tensor>);
  const Folder folder;
  const auto path = folder.path / "all";
  // One of two runs saves half way, and the other goes on from there.
  struct Run {
    nn::Sequential net = network();
    nn::SGD optimizer{net.named_parameters(), {.lr = 1, .momentum = 0.9}};
    nn::LRScheduler scheduler{optimizer, nn::step_lr(2, 0.5)};
    nn::GradScaler scaler{{.init_scale = 8, .growth_interval = 2}};
    nn::ExponentialMovingAverage ema{net, {.decay = 0.5}};
    void steps(int from, int to) {
      for (int step = from; step < to; ++step) {
        train(net, optimizer, step, step + 1);
        scaler.unscale_(optimizer);
        scaler.update();
        scheduler.step();
        ema.update();
      }
    }
    std::vector<nn::Part> parts() {
      return {
          {"model", net}, {"optimizer", optimizer}, {"scheduler", scheduler}, {"scaler", scaler},
          {"ema", ema},   {"random", RandomState()}};
    }
  };
  manual_seed(5);
  Run first;
  first.steps(0, 3);
  nn::save(path, first.parts());
  first.steps(3, 5);
  manual_seed(6);
  Run second;
  nn::load(path, second.parts());
  CHECK(second.optimizer.lr() == 0.5);
  second.steps(3, 5);
  for (const nn::Part& part : second.parts()) {
    INFO(part.name());
    for (const nn::Part& other : first.parts()) {
      if (other.name() != part.name()) continue;
      const NamedTensors expected = other.state_dict(), got = part.state_dict();
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(got[i].first);
        CHECK(got[i].first == expected[i].first);
        CHECK(content_of_tensor(got[i].second) == content_of_tensor(expected[i].second));
      }
    }
  }
}

TEST_CASE("the random numbers of a checkpoint, with the seed or in a stream of one's own") {
  const RandomState all, place{.keep_seed = true};
  manual_seed(3);
  uniform({10}, 0, 1);
  const NamedTensors state = all.state_dict();
  const auto expected = uniform({10}, 0, 1).to_vector<float>();
  manual_seed(4);
  place.load_state_dict(state);
  CHECK(context().generator.seed == 4);
  CHECK(uniform({10}, 0, 1).to_vector<float>() != expected);
  all.load_state_dict(state);
  CHECK(uniform({10}, 0, 1).to_vector<float>() == expected);
  check_has(error_of([&] { all.load_state_dict({state[0]}); }),
            "RandomState: load_state_dict: 1 difference\n  missing: offset i64 []");
}

TEST_CASE("a checkpoint of the first format still loads") {
  const Folder folder;
  const auto path = folder.path / "old";
  manual_seed(8);
  nn::Sequential net = network(), resumed = network();
  nn::AdamW optimizer(net.parameters());
  train(net, optimizer, 0, 2);
  NamedTensors all = net.state_dict();
  for (const auto& [name, tensor] : optimizer.state_dict()) {
    all.emplace_back("optimizer." + name, tensor);
  }
  all.emplace_back("extra.best", ones({1}));
  const Generator& now = context().generator;
  save_safetensors(path, all,
                   {{"epoch", "2"},
                    {"peal.generator.seed", std::to_string(now.seed)},
                    {"peal.generator.offset", std::to_string(now.offset)}});
  train(net, optimizer, 2, 4);

  manual_seed(9);
  nn::AdamW resumed_optimizer(resumed.named_parameters());  // which were saved by numbers
  const nn::Checkpoint told = nn::load(
      path, {{"model", resumed}, {"optimizer", resumed_optimizer}, {"random", RandomState()}},
      false);
  CHECK(told.metadata == Metadata{{"epoch", "2"}});
  CHECK(told.unexpected_parts == std::vector<std::string>{"extra"});
  train(resumed, resumed_optimizer, 2, 4);
  check_same(net, resumed);
  nn::load_model(path, resumed);
  save_safetensors(path, {}, {{"peal.generator.seed", "x"}});
  check_has(error_of([&] {
              nn::load(path, {{"model", net}});
            }),
            "metadata 'peal.generator.seed': expected a number, got 'x'");
}
