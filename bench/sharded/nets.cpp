// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/sharded/nets.h>

namespace peal::bench {
namespace {

template <class O, class Options>
auto optimizer_of(const Options& options) {
  return [options](const nn::Parameters& parameters, const comm::ProcessGroup* group) {
    if (group == nullptr) return MadeOptimizer{std::make_unique<O>(parameters, options)};
    auto made = std::make_unique<nn::ZeroRedundancyOptimizer<O>>(*group, parameters, options);
    const nn::OptimizerShards* const shards = &made->shards();
    return MadeOptimizer{std::move(made), shards};
  };
}

// Tokens to what goes into the first block.
struct GptEmbeddings : nn::Module {
  nn::Embedding wte, wpe;

  explicit GptEmbeddings(const nn::GptTransformer& from)
      : wte(add("wte", from.wte)), wpe(add("wpe", from.wpe)) {}
  Tensor forward(const Tensor& tokens) override {
    return wte(tokens) + wpe(arange(0, tokens.size(1), 1, DType::i64));
  }
};

Tensor summed(const Tensor& logits, const Tensor& target) {
  return cross_entropy(reshape(logits, {-1, logits.size(-1)}), reshape(target, {-1}),
                       Reduction::sum);
}

std::function<Batch(int)> images(const Shape& shape, std::int64_t classes) {
  return [=](int step) {
    manual_seed(static_cast<std::uint64_t>(step) + 100);
    const Tensor x = randn(shape, DType::f64);
    return Batch{x, randint(0, classes, {batch_rows})};
  };
}

nn::Sequential gpt_layers() {
  manual_seed(7);
  nn::GPT gpt({.vocabulary = 24, .width = 32, .heads = 4, .layers = 5, .positions = 8});
  nn::Sequential layers;
  layers.push_back(GptEmbeddings(gpt.transformer));
  for (nn::Module& block : gpt.transformer.h) layers.push_back(block);
  layers.push_back(gpt.transformer.ln_f);
  layers.push_back(gpt.lm_head);
  layers.to(DType::f64);
  return layers;
}

nn::TensorParallelPlan gpt_plan(bool sequence) {
  nn::TensorParallelPlan plan{
      {"0.wte", nn::RowwiseParallel{}},
      {"*.attn.c_attn", nn::ColwiseParallel{.sequence_parallel = sequence, .parts = 3, .heads = 4}},
      {"*.attn.c_proj", nn::RowwiseParallel{.sequence_parallel = sequence}},
      {"*.mlp.c_fc", nn::ColwiseParallel{.sequence_parallel = sequence}},
      {"*.mlp.c_proj", nn::RowwiseParallel{.sequence_parallel = sequence}},
      {"7", nn::ColwiseParallel{.gather_output = true, .sequence_parallel = sequence}}};
  if (!sequence) return plan;
  plan.emplace_back("0", nn::PrepareModuleOutput{});
  for (const char* each : {"*.ln_1", "*.ln_2", "*.attn.resid_dropout", "*.mlp.dropout", "6"}) {
    plan.emplace_back(each, nn::SequenceParallel{});
  }
  return plan;
}

}  // namespace

Net gpt_net() {
  return {.name = "gpt",
          .make = gpt_layers,
          .batch =
              [](int step) {
                manual_seed(static_cast<std::uint64_t>(step) + 100);
                const Tensor x = randint(0, 24, {batch_rows, 8});
                return Batch{x, randint(0, 24, {batch_rows, 8})};
              },
          .loss = summed,
          .counted = 8,
          .optimizer = optimizer_of<nn::AdamW>(nn::AdamWOptions{.lr = 1e-3, .weight_decay = 0.1}),
          .units = {"GptBlock"},
          .tensor = gpt_plan(false),
          .sequence = gpt_plan(true)};
}

Net basic_net() {
  const auto make = [] {
    manual_seed(7);
    const nn::BasicNet net;
    nn::Sequential layers{net.conv1,     nn::ReLU(), net.conv2,  nn::ReLU(), nn::MaxPool2d(2),
                          nn::Flatten(), net.fc1,    nn::ReLU(), net.fc2};
    layers.to(DType::f64);
    return layers;
  };
  return {.name = "basicnet",
          .make = make,
          .batch = images({batch_rows, 1, 28, 28}, 10),
          .loss = summed,
          .counted = 1,
          .optimizer = optimizer_of<nn::AdamW>(nn::AdamWOptions{.lr = 1e-3}),
          .units = {"Conv2d", "Linear"},
          .tensor = {{"6", nn::ColwiseParallel{}}, {"8", nn::RowwiseParallel{}}}};
}

Net resnet18_net() {
  const auto make = [] {
    manual_seed(7);
    nn::ResNet18 net({.num_classes = 8, .small_images = true});
    nn::Sequential layers{net.conv1, net.bn1, nn::ReLU()};
    for (nn::Sequential* part : {&net.layer1, &net.layer2, &net.layer3, &net.layer4}) {
      for (nn::Module& block : *part) layers.push_back(block);
    }
    layers.push_back(nn::AdaptiveAvgPool2d(1));
    layers.push_back(nn::Flatten());
    layers.push_back(net.fc);
    layers.to(DType::f64);
    return layers;
  };
  return {.name = "resnet18",
          .make = make,
          .batch = images({batch_rows, 3, 10, 10}, 8),
          .loss = summed,
          .counted = 1,
          .optimizer = optimizer_of<nn::SGD>(nn::SGDOptions{.lr = 0.01, .momentum = 0.9}),
          .units = {"BasicBlock"},
          .tensor = {{"13", nn::ColwiseParallel{.gather_output = true}}},
          .batch_norm = true};
}

std::vector<Net> all_nets() { return {gpt_net(), basic_net(), resnet18_net()}; }

}  // namespace peal::bench
