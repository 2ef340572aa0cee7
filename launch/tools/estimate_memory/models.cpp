// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/autograd/ops/ops.h>
#include <peal/launch/tools/estimate_memory/models.h>
#include <peal/nn/models/alexnet.h>
#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/vgg.h>
#include <peal/nn/models/xresnet.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace peal::launch {
namespace {

// Convolutions of so many are done as those of more are; sentences are alike, and large.
constexpr std::array<std::int64_t, 2> few_images{32, 64}, few_sentences{1, 2};

// Images [N, channels, size, size].
auto images(std::int64_t channels, std::int64_t size, std::int64_t classes) {
  return [=](nn::Module& model, std::int64_t samples) {
    const DType dtype = model.parameters()[0].dtype();
    const Tensor x = randn({samples, channels, size, size}, dtype);
    cross_entropy(model(x), randint(0, classes, {samples})).backward();
  };
}

// Tokens [N, length].
auto sentences(std::int64_t vocabulary, std::int64_t length) {
  return [=](nn::Module& model, std::int64_t samples) {
    const Tensor logits = model(randint(0, vocabulary, {samples, length}));
    cross_entropy(reshape(logits, {samples * length, vocabulary}),
                  randint(0, vocabulary, {samples * length}))
        .backward();
  };
}

template <class M>
KnownModel plain(const char* name, const char* what) {
  return {name, what, [] { return nn::Module(M()); }, images(3, 224, 1000), few_images};
}

KnownModel gpt(const char* name, const char* what, std::int64_t layers, std::int64_t heads,
               std::int64_t width) {
  constexpr std::int64_t vocabulary = 50257, positions = 1024;
  return {name, what,
          [=] {
            return nn::Module(nn::GPT({.vocabulary = vocabulary,
                                       .width = width,
                                       .heads = heads,
                                       .layers = layers,
                                       .positions = positions}));
          },
          sentences(vocabulary, positions), few_sentences};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> all{
      {"BasicNet", "PyTorch's MNIST example", [] { return nn::Module(nn::BasicNet()); },
       images(1, 28, 10), few_images},
      plain<nn::AlexNet>("AlexNet", "1000 classes, as those below"),
      plain<nn::VGG11>("VGG11", ""),
      plain<nn::ResNet18>("ResNet18", ""),
      plain<nn::ResNet34>("ResNet34", ""),
      plain<nn::ResNet50>("ResNet50", ""),
      plain<nn::XResNet18>("XResNet18", ""),
      plain<nn::XResNet34>("XResNet34", ""),
      plain<nn::XResNet50>("XResNet50", ""),
      {"AWD_LSTM", "a language model of 60000 words",
       [] { return nn::Module(nn::AwdLanguageModel(nn::awd_lstm_language_model(60000))); },
       sentences(60000, 72), few_sentences},
      gpt("gpt2", "12 layers, 768 wide", 12, 12, 768),
      gpt("gpt2-medium", "24 layers, 1024 wide", 24, 16, 1024)};
  return all;
}

const KnownModel& model_named(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const KnownModel& model : known_models()) {
    if (lower(model.name) == lower(name)) return model;
    names.push_back(lower(model.name));
    list += " " + model.name;
  }
  fail(concat("there is no model '", name, "'", did_you_mean(lower(name), names),
              " (there are:", list, ")"));
}

}  // namespace peal::launch
