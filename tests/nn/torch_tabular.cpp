// SPDX-License-Identifier: Apache-2.0
// Writes tabular models, what they make of a batch while training and in evaluation, and gradients,
// for torch_tabular.py to compare with PyTorch. usage: torch_tabular FOLDER
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/tabular.h>

#include <cstdio>
#include <vector>

using namespace peal;

namespace {

const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{3, 2}, {9, 5}, {42, 13}};

void write(const std::filesystem::path& path, DType dtype) {
  nn::TabularModel model({.embeddings = sizes, .numbers = 4, .outputs = 3, .layers = {20, 10}});
  model.to(dtype);
  for (const Tensor& parameter : model.parameters()) {  // none of it 0, nor alike
    parameter.detach().copy_(parameter.detach() + randn(parameter.shape(), dtype) * 0.1);
  }
  const std::int64_t n = 33;
  std::vector<std::int64_t> of_rows, of_classes;
  for (std::int64_t i = 0; i < n; ++i) {
    for (const auto& [words, width] : sizes) of_rows.push_back(i * i * 5 % words);
    of_classes.push_back(i * 7 % 3);
  }
  const Tensor codes = Tensor::from(of_rows, {n, std::ssize(sizes)});
  const Tensor classes = Tensor::from(of_classes, {n}), numbers = randn({n, 4}, dtype);
  NamedTensors all{{"codes", codes}, {"numbers", numbers}, {"classes", classes}};
  for (const auto& [name, tensor] : model.state_dict()) {
    all.emplace_back("before." + name, tensor.clone());
  }
  const Tensor y = model(codes, numbers);
  cross_entropy(y, classes).backward();
  all.emplace_back("y", y.detach());
  for (const auto& [name, parameter] : model.named_parameters()) {
    all.emplace_back("grad." + name, parameter.grad());
  }
  for (const auto& [name, tensor] : model.state_dict()) {
    all.emplace_back("after." + name, tensor.clone());
  }
  model.eval();
  all.emplace_back("eval", model(codes, numbers).detach());
  save_safetensors(path, all);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    const std::filesystem::path folder = argv[1];
    manual_seed(5);
    write(folder / "f64", DType::f64);
    write(folder / "f32", DType::f32);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
