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

using Make = std::function<Job(std::int64_t batch, Device device)>;
using Net = std::function<nn::Module()>;

// Of numbers, a shape for each sample, that are to be put into so many classes.
Make classifier(const Net& net, const Shape& sample, std::int64_t count) {
  return [=](std::int64_t n, Device device) {
    Shape shape{n};
    for (const std::int64_t size : sample) shape.push_back(size);
    return job(net(), on(device, shape), [y = classes(count, n, device)](const Tensor& out) {
      return cross_entropy(out, y);
    });
  };
}

Make resnet18(std::int64_t size) {
  return classifier([] { return nn::ResNet18({.num_classes = 10, .small_images = true}); },
                    {3, size, size}, 10);
}

// Of samples of so many tokens, that says something of so many words for each.
Make language_model(const Net& net, std::int64_t words, std::int64_t length) {
  return [=](std::int64_t n, Device device) {
    const Tensor tokens = classes(words, n * length, device);
    return job(net(), reshape(tokens, {n, length}), [=](const Tensor& out) {
      return cross_entropy(reshape(out, {-1, words}), tokens);
    });
  };
}

Make gpt(const nn::GptSettings& settings) {
  return language_model([=] { return nn::GPT(settings); }, settings.vocabulary, settings.positions);
}

// With a head of its own, as the counterpart in bench/peers/torch_nets.py.
Make small_gpt(std::int64_t length) {
  return gpt({.positions = length, .gelu = GeluApproximation::none, .tie_word_embeddings = false});
}

Make gpt2(bool tied) {
  return gpt({.vocabulary = 50257,
              .width = 768,
              .heads = 12,
              .layers = 12,
              .positions = 1024,
              .tie_word_embeddings = tied});
}

// BERT of 4 layers of 512 (Turc et al., "Well-read students learn better", 2019, table 1), as it is
// trained to put a text into two classes; without the embeddings of a second text.
struct BertSmall : nn::Module {
  nn::Embedding words = add("words", nn::Embedding(30522, 512));
  nn::Embedding positions = add("positions", nn::Embedding(512, 512));
  nn::LayerNorm norm = add("norm", nn::LayerNorm(512));
  nn::Dropout dropout = add("dropout", nn::Dropout(0.1));
  nn::TransformerEncoder encoder =
      add("encoder",
          nn::TransformerEncoder(
              nn::TransformerEncoderLayer(
                  512, 8, {.dim_feedforward = 2048, .activation = "gelu", .batch_first = true}),
              4));
  nn::Linear pooler = add("pooler", nn::Linear(512, 512));
  nn::Linear head = add("head", nn::Linear(512, 2));

  Tensor forward(const Tensor& tokens) override {
    const Tensor places = arange(0, tokens.size(1), 1, DType::i64, tokens.device());
    const Tensor x = encoder(dropout(norm(words(tokens) + positions(places))));
    return head(tanh(pooler(select(x, 1, 0))));
  }
};

Job bert_small(std::int64_t n, Device device) {
  constexpr std::int64_t length = 128;
  const Tensor tokens = reshape(classes(30522, n * length, device), {n, length});
  return job(BertSmall(), tokens,
             [y = classes(2, n, device)](const Tensor& out) { return cross_entropy(out, y); });
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

Job basic_net(std::int64_t n, Device device) {
  return job(nn::BasicNet(), on(device, {n, 1, 28, 28}),
             [y = classes(10, n, device)](const Tensor& out) { return nll_loss(out, y); });
}

}  // namespace

const std::map<std::string, Model>& models() {
  static const std::map<std::string, Model> all{
      {"basicnet", {64, 10, basic_net}},
      {"mlp",
       {128, 50,
        classifier(
            [] {
              return nn::mlp({784, 512, 512, 10});
            },
            {784}, 10)}},
      {"tabular", {512, 50, tabular}},
      {"gpt", {8, 3, small_gpt(128)}},
      {"gpt_1024", {4, 1, small_gpt(1024)}},
      {"gpt_2048", {2, 1, small_gpt(2048)}},
      {"gpt2", {8, 1, gpt2(false)}},
      {"gpt2_tied", {8, 1, gpt2(true)}},  // as it was published: 124 million parameters
      {"bert_small", {8, 3, bert_small}},
      // fastai's settings, of Penn Treebank's 10,000 words; the states go on from step to step.
      {"awd_lstm",
       {64, 1,
        language_model([] { return nn::AwdLanguageModel(nn::awd_lstm_language_model(10000)); },
                       10000, 70)}},
      {"resnet18", {32, 1, resnet18(32)}},
      {"resnet18_64", {32, 1, resnet18(64)}},
      {"resnet50", {8, 1, classifier([] { return nn::ResNet50(); }, {3, 224, 224}, 1000)}},
  };
  return all;
}

}  // namespace peal::bench
