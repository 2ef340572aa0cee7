// SPDX-License-Identifier: Apache-2.0
// A table of ops with options and odd shapes, each beside the expression of PyTorch that it equals.
// op_table_test.cpp holds each against central differences and f32 against f64; torch_parity.cpp
// against PyTorch, outputs and gradients, where there is one.
#pragma once

#include "arrays.h"

#include <algorithm>
#include <string>

namespace peal::test {

enum class Values { normal, positive, nonzero, distinct };

struct Input {
  Shape shape;
  Values values = Values::normal;
};

struct OpCase {
  std::string torch;  // of x[0], x[1], ... and k[0], ...
  std::function<Tensor(const Tensors& x, const Tensors& k)> op;
  std::vector<Input> inputs;  // wanting gradients
  Tensors constants{};        // integers or bool
  bool derivative = true;     // false: something is kept out of the gradient on purpose
  std::string needs{};        // what `torch` calls that older versions lack: "F.rms_norm"
};

// One table a family.
std::vector<OpCase> basic_cases();
std::vector<OpCase> pointwise_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> layer_cases();
std::vector<OpCase> image_cases();
std::vector<OpCase> class_loss_cases();
std::vector<OpCase> pair_loss_cases();
std::vector<OpCase> window_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> indexing_cases();
std::vector<OpCase> scatter_cases();
std::vector<OpCase> rearrange_cases();
std::vector<OpCase> order_cases();
std::vector<OpCase> function_cases();
std::vector<OpCase> activation_cases();
std::vector<OpCase> reduce_cases();
std::vector<OpCase> binary_cases();
std::vector<OpCase> recurrent_cases();
std::vector<OpCase> product_cases();
std::vector<OpCase> convolution_cases();
std::vector<OpCase> linalg_cases();
std::vector<OpCase> pool_cases();
std::vector<OpCase> grid_cases();

inline std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto& table :
       {basic_cases,      pointwise_cases, shape_cases,     layer_cases,     image_cases,
        class_loss_cases, pair_loss_cases, window_cases,    attention_cases, indexing_cases,
        scatter_cases,    rearrange_cases, order_cases,     function_cases,  activation_cases,
        reduce_cases,     binary_cases,    recurrent_cases, product_cases,   convolution_cases,
        linalg_cases,     pool_cases,      grid_cases}) {
    for (OpCase& entry : table()) all.push_back(std::move(entry));
  }
  return all;
}

// Numbers that f32 holds exactly. distinct: 2^-6 apart, none within 2^-7 of 0, for ops with kinks.
template <class T>
Tensor input_of(const Input& input, unsigned seed) {
  std::vector<float> values = normals(input.shape.numel(), seed);
  if (input.values == Values::distinct) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = (static_cast<float>(i) - static_cast<float>(values.size() / 2) + 0.5f) / 64;
    }
    std::shuffle(values.begin(), values.end(), std::mt19937(seed));
  }
  for (float& value : values) {
    if (input.values == Values::positive) value = std::abs(value) + 0.25f;
    if (input.values == Values::nonzero) value += value < 0 ? -0.25f : 0.25f;
  }
  return tensor_of<T>(values, input.shape);
}

template <class T>
Tensors inputs_of(const OpCase& entry) {
  Tensors x;
  for (const Input& input : entry.inputs) {
    x.push_back(input_of<T>(input, static_cast<unsigned>(x.size()) + 1));
    x.back().set_requires_grad();
  }
  return x;
}

}  // namespace peal::test
