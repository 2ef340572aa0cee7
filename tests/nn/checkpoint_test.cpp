// SPDX-License-Identifier: Apache-2.0
// A run that stops, is loaded in other objects and goes on equals the run that did not stop, bit
// for bit, dropout included.
#include "folder.h"

#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/nn.h>

using namespace peal;

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

}  // namespace

TEST_CASE("a resumed run equals the uninterrupted one bit for bit") {
  const Folder folder;
  const auto path = folder.path / "run.safetensors";
  manual_seed(11);
  nn::Sequential net = network();
  nn::AdamW optimizer(net.parameters(), {.lr = 0.01});
  train(net, optimizer, 0, 3);
  optimizer.set_lr(0.02);
  nn::save_checkpoint(path, net, optimizer, {{"epoch", "3"}});
  train(net, optimizer, 3, 6);

  manual_seed(77);
  nn::Sequential resumed = network();
  nn::AdamW resumed_optimizer(resumed.parameters());
  const nn::Checkpoint checkpoint = nn::load_checkpoint(path, resumed, resumed_optimizer);
  CHECK(checkpoint.metadata == Metadata{{"epoch", "3"}});
  CHECK(checkpoint.generator.seed == 11);
  CHECK(resumed_optimizer.lr() == 0.02);
  context().generator = checkpoint.generator;
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
  nn::save_checkpoint(folder.path / "checkpoint", net, optimizer);
  nn::load_model(folder.path / "checkpoint", other);
  check_same(net, other);
}

TEST_CASE("what does not fit is an error that names the file") {
  const Folder folder;
  nn::Sequential net = network();
  nn::SGD sgd(net.parameters());
  nn::Adam adam(net.parameters());
  train(net, adam, 0, 1);
  nn::save_model(folder.path / "model", net);
  nn::save_checkpoint(folder.path / "checkpoint", net, adam);

  nn::BasicNet other;
  const std::string message = error_of([&] { nn::load_model(folder.path / "model", other); });
  check_has(message, "load " + (folder.path / "model").string() + ": load_state_dict: ");
  check_has(message, "BasicNet: 12 differences");
  check_has(message, "missing: conv1.weight f32 [32, 1, 3, 3]");
  check_has(message, "unexpected: 0.weight f32 [8, 6]");
  check_has(error_of([&] { nn::load_checkpoint(folder.path / "model", net, adam); }),
            "this is a model, not a checkpoint; use load_model");
  check_has(error_of([&] { nn::load_checkpoint(folder.path / "checkpoint", net, sgd); }),
            "SGD: load_state_dict: 14 differences");

  save_safetensors(folder.path / "bad", {}, {{"peal.generator.seed", "x"}});
  check_has(error_of([&] { nn::load_checkpoint(folder.path / "bad", net, adam); }),
            "metadata 'peal.generator.seed': expected a number, got 'x'");
  check_has(error_of([&] {
              nn::save_checkpoint(folder.path / "c", net, adam, {{"peal.x", ""}});
            }),
            "metadata 'peal.x' starts with 'peal.'");
  nn::Sequential named;
  named.add("optimizer", nn::Linear(1, 1));
  check_has(error_of([&] { nn::save_checkpoint(folder.path / "c", named, adam); }),
            "the model's key 'optimizer.weight' starts with 'optimizer.'");
  CHECK_FALSE(std::filesystem::exists(folder.path / "c"));
}
