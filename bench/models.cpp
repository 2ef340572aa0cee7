// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/models.h>
#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/tabular.h>
#include <peal/nn/nn.h>

#include <utility>
#include <vector>

namespace peal::bench {
namespace {

Tensor classes(std::int64_t count, std::int64_t n, Device device) {
  std::vector<std::int64_t> target(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] = static_cast<std::int64_t>(i) * 7 % count;
  }
  return Tensor::from(target, {n}, device);
}

// Drawn on the CPU, so that every device has the same.
Tensor on(Device device, const Shape& shape) { return randn(shape).to(device); }

Job job(nn::Module module, const Tensor& x, std::function<Tensor(const Tensor&)> loss_of) {
  module.to(x.device());
  return {std::move(module),
          [x, loss_of = std::move(loss_of)](nn::Module& model) { return loss_of(model(x)); }};
}

// As many categories as UCI's Adult has words, and widths by data::embedding_width().
const std::vector<std::pair<std::int64_t, std::int64_t>> adult_sizes{
    {9, 5}, {17, 8}, {8, 5}, {15, 7}, {7, 5}, {6, 4}, {3, 3}, {42, 13}};

Job tabular(std::int64_t n, Device device) {
  std::vector<std::int64_t> codes;
  for (std::int64_t i = 0; i < n; ++i) {
    for (const auto& [words, width] : adult_sizes) codes.push_back(i * 7 % words);
  }
  const Tensor x = Tensor::from(codes, {n, std::ssize(adult_sizes)}, device);
  nn::TabularModel net({.embeddings = adult_sizes, .numbers = 6});
  net.to(device);
  return {net, [x, numbers = on(device, {n, 6}), y = classes(2, n, device)](nn::Module& model) {
            return cross_entropy(model.call(&nn::TabularModel::predict, x, numbers), y);
          }};
}

nn::GptSettings gpt2_settings(bool tied) {
  return {.vocabulary = 50257,
          .width = 768,
          .heads = 12,
          .layers = 12,
          .positions = 1024,
          .tie_word_embeddings = tied};
}

Job gpt(const nn::GptSettings& settings, std::int64_t n, Device device) {
  const std::int64_t words = settings.vocabulary, length = settings.positions;
  const Tensor tokens = reshape(classes(words, n * length, device), {n, length});
  return job(nn::GPT(settings), tokens,
             [words, y = classes(words, n * length, device)](const Tensor& out) {
               return cross_entropy(reshape(out, {-1, words}), y);
             });
}

// fastai's settings, of Penn Treebank's 10,000 words; the states go on from step to step.
Job awd_lstm(std::int64_t n, Device device) {
  constexpr std::int64_t words = 10000, length = 70;
  const Tensor tokens = reshape(classes(words, n * length, device), {n, length});
  return job(nn::AwdLanguageModel(nn::awd_lstm_language_model(words)), tokens,
             [y = classes(words, n * length, device)](const Tensor& out) {
               return cross_entropy(reshape(out, {-1, words}), y);
             });
}

}  // namespace

const std::map<std::string, Model>& models() {
  static const std::map<std::string, Model> all{
      {"basicnet",
       {64, 10,
        [](std::int64_t n, Device device) {
          return job(nn::BasicNet(), on(device, {n, 1, 28, 28}),
                     [y = classes(10, n, device)](const Tensor& out) { return nll_loss(out, y); });
        }}},
      {"mlp",
       {128, 50,
        [](std::int64_t n, Device device) {
          return job(
              nn::mlp({784, 512, 512, 10}), on(device, {n, 784}),
              [y = classes(10, n, device)](const Tensor& out) { return cross_entropy(out, y); });
        }}},
      {"tabular", {512, 50, tabular}},
      // Both with a head of their own, as their counterparts in bench/peers/torch_step.py.
      {"gpt",
       {8, 3,
        [](std::int64_t n, Device device) {
          return gpt({.gelu = GeluApproximation::none, .tie_word_embeddings = false}, n, device);
        }}},
      {"gpt2",
       {8, 1, [](std::int64_t n, Device device) { return gpt(gpt2_settings(false), n, device); }}},
      {"awd_lstm", {64, 1, awd_lstm}},
      // As it was published: 124 million parameters.
      {"gpt2_tied",
       {8, 1, [](std::int64_t n, Device device) { return gpt(gpt2_settings(true), n, device); }}},
      {"resnet50",
       {32, 1,
        [](std::int64_t n, Device device) {
          return job(
              nn::ResNet50(), on(device, {n, 3, 224, 224}),
              [y = classes(1000, n, device)](const Tensor& out) { return cross_entropy(out, y); });
        }}},
      {"resnet18",
       {32, 1,
        [](std::int64_t n, Device device) {
          return job(
              nn::ResNet18({.num_classes = 10, .small_images = true}), on(device, {n, 3, 32, 32}),
              [y = classes(10, n, device)](const Tensor& out) { return cross_entropy(out, y); });
        }}},
  };
  return all;
}

}  // namespace peal::bench
