// SPDX-License-Identifier: Apache-2.0
// Rows of expressions for torch_values.py, which compares types, shapes and values: of what has no
// gradient.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/ops/ops.h>

#include <string>

namespace peal::test {

struct Rows {
  NamedTensors tensors;
  Metadata expressions;

  void add(const std::string& expression, const Tensors& x, const Tensor& y) {
    const std::size_t row = expressions.size();
    expressions[std::to_string(row)] = expression;
    tensors.emplace_back(concat(row, ".y"), y);
    for (std::size_t i = 0; i < x.size(); ++i) tensors.emplace_back(concat(row, ".x.", i), x[i]);
  }
  void add_text(const std::string& expression, const std::string& text) {
    expressions[concat("text ", expressions.size())] = expression + "\n" + text;
  }
};

// One table a family.
void add_choosing(Rows& rows);
void add_making(Rows& rows);
void add_order(Rows& rows);
void add_functions(Rows& rows);
void add_matrices(Rows& rows);
void add_linalg(Rows& rows);

}  // namespace peal::test
