// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/tools/estimate_memory/models.h>
#include <peal/nn/models/alexnet.h>
#include <peal/nn/models/awd_lstm.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/vgg.h>
#include <peal/nn/models/xresnet.h>

#include <algorithm>
#include <cctype>

namespace peal::launch {
namespace {

template <class M>
KnownModel plain(const char* name, const char* what) {
  return {name, what, [] { return nn::Module(M()); }};
}

KnownModel gpt(const char* name, const char* what, std::int64_t layers, std::int64_t heads,
               std::int64_t width) {
  return {name, what, [=] {
            return nn::Module(nn::GPT({.vocabulary = 50257,
                                       .width = width,
                                       .heads = heads,
                                       .layers = layers,
                                       .positions = 1024}));
          }};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> all{
      plain<nn::BasicNet>("BasicNet", "PyTorch's MNIST example"),
      plain<nn::AlexNet>("AlexNet", "1000 classes, as those below"),
      plain<nn::VGG11>("VGG11", ""),
      plain<nn::ResNet18>("ResNet18", ""),
      plain<nn::ResNet34>("ResNet34", ""),
      plain<nn::ResNet50>("ResNet50", ""),
      plain<nn::XResNet18>("XResNet18", ""),
      plain<nn::XResNet34>("XResNet34", ""),
      plain<nn::XResNet50>("XResNet50", ""),
      {"AWD_LSTM", "a language model of 60000 words",
       [] { return nn::Module(nn::AwdLanguageModel(nn::awd_lstm_language_model(60000))); }},
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
