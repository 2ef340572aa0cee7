// SPDX-License-Identifier: Apache-2.0
// Writes models, what they make of a batch, gradients and clipped gradients, for
// torch_models.py to compare with PyTorch. usage: torch_models FOLDER
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/attention.h>
#include <peal/nn/models/gpt.h>
#include <peal/nn/models/resnet.h>
#include <peal/nn/optim/clip_grad.h>

#include <cstdio>
#include <limits>

using namespace peal;

namespace {

// State before, loss, gradients, state and outputs in evaluation after; then clipped gradients.
void write_model(const std::filesystem::path& path, nn::Module model, const Tensor& x,
                 const Tensor& target) {
  NamedTensors all{{"x", x}, {"target", target}};
  for (const auto& [name, tensor] : model.state_dict()) {
    all.emplace_back("before." + name, tensor.clone());
  }
  const Tensor y = model(x);
  const Tensor logits = reshape(y, {-1, y.size(-1)});
  const Tensor loss = cross_entropy(logits, target, Reduction::mean, -100, 0.1);
  loss.backward();
  all.emplace_back("y", y.detach());
  all.emplace_back("loss", loss.detach());
  for (const auto& [name, parameter] : model.named_parameters()) {
    all.emplace_back("grad." + name, parameter.grad().clone());
  }
  for (const auto& [name, tensor] : model.state_dict()) {
    all.emplace_back("after." + name, tensor.clone());
  }
  model.eval();
  all.emplace_back("eval", model(x).detach());
  const double infinite = std::numeric_limits<double>::infinity();
  for (const double type : {infinite, 1.0, 2.0}) {
    const double bound = type == 2.0 ? 0.125 : 1e9;  // only the last one clips
    all.emplace_back(concat("norm.", type), nn::clip_grad_norm_(model.parameters(), bound, type));
  }
  for (const auto& [name, parameter] : model.named_parameters()) {
    all.emplace_back("clipped." + name, parameter.grad().clone());
  }
  nn::clip_grad_value_(model.parameters(), 1e-3);
  for (const auto& [name, parameter] : model.named_parameters()) {
    all.emplace_back("cut." + name, parameter.grad());
  }
  save_safetensors(path, all);
}

// Attention of three inputs, and of one to itself; state and gradients of all.
void write_attention(const std::filesystem::path& path, bool bias, bool causal) {
  nn::MultiheadAttention attention(12, 3, {.bias = bias, .causal = causal, .batch_first = true});
  attention.to(DType::f64);
  NamedTensors all;
  Tensors inputs;
  for (int i = 0; i < 3; ++i) {
    inputs.push_back(randn({2, 5, 12}, DType::f64).set_requires_grad());
    all.emplace_back(concat("x.", inputs.size() - 1), inputs.back().detach());
  }
  const Tensor y = attention.attend(inputs[0], inputs[1], inputs[2]) + attention(inputs[0]);
  const Tensor seed = randn(y.shape(), DType::f64);
  y.backward(seed);
  all.emplace_back("y", y.detach());
  all.emplace_back("seed", seed);
  for (const auto& [name, parameter] : attention.named_parameters()) {
    all.emplace_back("state." + name, parameter.detach());
    all.emplace_back("grad." + name, parameter.grad());
  }
  for (std::size_t i = 0; i < 3; ++i) all.emplace_back(concat("dx.", i), inputs[i].grad());
  save_safetensors(path, all);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  try {
    for (const DType dtype : {DType::f32, DType::f64}) {
      manual_seed(1);
      for (const bool small : {false, true}) {
        nn::Module resnet = nn::ResNet18({.num_classes = 10, .small_images = small});
        resnet.to(dtype);
        const std::int64_t size = small ? 16 : 64;
        write_model(folder / concat("resnet18.", small, ".", dtype), resnet,
                    cast(randn({4, 3, size, size}), dtype),
                    Tensor::from<std::int64_t>({3, 1, 4, 1}, {4}));
      }
      const Tensor tokens =
          Tensor::from<std::int64_t>({1, 49, 0, 3, 3, 7, 20, 30, 31, 2, 2, 5, 44, 11}, {2, 7});
      for (const bool tied : {false, true}) {
        const auto form = tied ? GeluApproximation::tanh : GeluApproximation::none;
        nn::Module gpt = nn::GPT({50, 24, 3, 2, 9, form, tied});
        gpt.to(dtype);
        write_model(folder / concat("gpt.", tied, ".", dtype), gpt, tokens,
                    Tensor::from<std::int64_t>(
                        {49, 0, 3, 3, 7, 20, -100, 31, 2, 2, 5, 44, 11, -100}, {14}));
      }
    }
    for (const bool on : {false, true}) {
      write_attention(folder / concat("attention.", on), on, on);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
