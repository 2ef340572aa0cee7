// SPDX-License-Identifier: Apache-2.0
// Weights that PyTorch wrote (torch_weights.py) under torchvision's and transformers' keys, and
// what its models make of a batch, against peal's models with these weights; then GPT-2's go back.
// usage: torch_weights FOLDER
#include <peal/autograd/ops/ops.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/models/alexnet.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/models/vgg.h>
#include <peal/nn/models/xresnet.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

using namespace peal;

namespace {

bool same(const std::string& what, nn::Module model, const std::filesystem::path& batch) {
  Tensor x, expected;
  for (const auto& [name, tensor] : load_safetensors(batch).tensors) {
    (name == "x" ? x : expected) = tensor;
  }
  model.eval();
  const Tensor y = model(x).detach();
  PEAL_CHECK(y.shape() == expected.shape(), what, ": expected ", expected.shape(), ", got ",
             y.shape());
  const float error = max(abs(y - expected)).item<float>();
  const float largest = max(abs(expected)).item<float>();
  std::printf("%s: outputs up to %.3g differ by at most %.2g\n", what.c_str(), largest, error);
  return largest > 0.1f && error < 1e-5f * std::max(1.0f, largest);
}

const std::vector<std::pair<std::string, std::function<nn::Module()>>> image_models{
    {"resnet18", [] { return nn::Module(nn::ResNet18()); }},
    {"resnet34", [] { return nn::Module(nn::ResNet34()); }},
    {"resnet50", [] { return nn::Module(nn::ResNet50()); }},
    {"vgg11", [] { return nn::Module(nn::VGG11({.hidden = 32})); }},
    {"vgg11_bn", [] { return nn::Module(nn::VGG11({.batch_norm = true, .hidden = 32})); }},
    {"alexnet", [] { return nn::Module(nn::AlexNet({.hidden = 32})); }},
    {"xresnet18", [] { return nn::Module(nn::XResNet18({.num_classes = 10})); }},
    {"xresnet34", [] { return nn::Module(nn::XResNet34({.num_classes = 10})); }},
    {"xresnet50", [] { return nn::Module(nn::XResNet50({.num_classes = 10})); }}};

bool check(const std::filesystem::path& folder) {
  bool good = true;
  for (const auto& [name, made] : image_models) {
    nn::Module model = made();
    nn::load_model(folder / name, model);
    good = same(name, model, folder / (name + ".batch")) && good;
  }
  for (const std::string form : {"whole", "shared", "bare", "linear"}) {
    nn::GPT gpt({50, 24, 3, 2, 9});
    const NamedTensors state = load_safetensors(folder / ("gpt2." + form)).tensors;
    gpt.load_state_dict(form == "linear" ? state : nn::from_gpt2(state));
    good = same("gpt2, " + form, gpt, folder / "gpt2.batch") && good;
    if (form == "bare") save_safetensors(folder / "gpt2.back", nn::to_gpt2(gpt.state_dict()));
    if (form != "linear") continue;
    try {
      nn::from_gpt2(state);
      good = false;
    } catch (const Error& error) {
      const std::string message = error.what();
      good = good && message.find("c_attn.weight: expected [width, 3 width]") != message.npos &&
             message.find("load_state_dict takes as it is") != message.npos;
    }
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return check(argv[1]) ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
