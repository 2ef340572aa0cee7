// SPDX-License-Identifier: Apache-2.0
// Jacobians and Hessians of functions of tensors, and their products with vectors
// (torch.autograd.functional); and gradcheck, which holds a function's gradients against central
// differences (torch.autograd.gradcheck).
//
//   const Tensor J = autograd::jacobian([](const Tensor& x) { return exp(x); }, x);  // [n, n]
//   const Tensor H = autograd::hessian([](const Tensor& x) { return sum(x * x * x); }, x);
//
// The functions are called with tensors of their own that share the elements of those given, so
// graphs and gradients outside are left alone. With create_graph the results are recorded from the
// tensors given. A Jacobian takes a backward for each element of the output, jvp two (of the
// gradient's gradient). Thread safety: as of the tape.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <functional>
#include <utility>

namespace peal::autograd {

using Function = std::function<Tensor(const Tensor& x)>;
using FunctionOfSeveral = std::function<Tensor(const Tensors& inputs)>;

// [shape of f(x), shape of x]; zeros where f(x) does not depend on x. Error unless x is floating.
Tensor jacobian(const Function& f, const Tensor& x, bool create_graph = false);
// One for each input.
Tensors jacobian(const FunctionOfSeveral& f, const Tensors& inputs, bool create_graph = false);
// [shape of x, shape of x]. Error unless f(x) has one element.
Tensor hessian(const Function& f, const Tensor& x, bool create_graph = false);

// f(x), and v J, of x's shape; v has that of f(x), and may be left out where that is one element.
std::pair<Tensor, Tensor> vjp(const Function& f, const Tensor& x, const Tensor& v = {},
                              bool create_graph = false);
// f(x), and J v, of its shape; v has that of x.
std::pair<Tensor, Tensor> jvp(const Function& f, const Tensor& x, const Tensor& v,
                              bool create_graph = false);
// f(x), and H v, of x's shape.
std::pair<Tensor, Tensor> hvp(const Function& f, const Tensor& x, const Tensor& v,
                              bool create_graph = false);

struct GradcheckOptions {
  double eps = 1e-6;   // of the central difference
  double atol = 1e-5;  // |gradient - difference| is at most atol + rtol |difference|
  double rtol = 1e-3;
  bool raise_exception = true;  // Error where one differs; else false
};
// Whether f's gradients with respect to those of `inputs` that want one are its central
// differences, element by element. Error unless those are f64; f must give the same at each call.
bool gradcheck(const FunctionOfSeveral& f, const Tensors& inputs,
               const GradcheckOptions& options = {});

}  // namespace peal::autograd
