// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/functional.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>

#include <cmath>

namespace peal::autograd {
namespace {

// Another tensor of the same elements that wants a gradient: in the graph of the one given, or not.
Tensor argument(std::string_view op, const Tensor& x, bool create_graph) {
  PEAL_CHECK(is_floating(x.dtype()), op, ": expected inputs of a floating type, got ", x.dtype());
  if (create_graph && x.requires_grad()) return view_as(x, x);
  const Tensor own = x.detach();
  own.set_requires_grad();
  return own;
}

Tensors arguments(std::string_view op, const Tensors& inputs, bool create_graph) {
  Tensors all;
  for (const Tensor& x : inputs) all.push_back(argument(op, x, create_graph));
  return all;
}

FunctionOfSeveral of_several(const Function& f) {
  return [&f](const Tensors& inputs) { return f(inputs[0]); };
}

// 0 where y does not depend on x.
Tensor gradient(const Tensor& y, const Tensor& x, const Tensor& seed, bool create_graph) {
  if (!y.requires_grad()) return zeros_like(x);
  const Tensor g = grad({y}, {x},
                        {.grad_outputs = {seed},
                         .retain_graph = true,
                         .create_graph = create_graph,
                         .allow_unused = true})[0];
  return g.defined() ? g : zeros_like(x);
}

std::vector<std::int64_t> joined(const Shape& a, const Shape& b) {
  std::vector<std::int64_t> sizes;
  for (const Shape* shape : {&a, &b}) {
    for (int d = 0; d < shape->dim(); ++d) sizes.push_back((*shape)[d]);
  }
  return sizes;
}

// The Jacobian of a y that was computed from `inputs`: a backward for each of its elements.
Tensors rows_of(const Tensor& y, const Tensors& inputs, bool create_graph) {
  std::vector<Tensors> rows(inputs.size());
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const Tensor seed = zeros_like(y);
    seed.detach({y.numel()}).rows(i, i + 1).copy_(ones({1}, y.dtype(), y.device()));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      rows[k].push_back(gradient(y, inputs[k], seed, create_graph));
    }
  }
  Tensors jacobians;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const auto shape = joined(y.shape(), inputs[k].shape());
    jacobians.push_back(rows[k].empty() ? Tensor::zeros(Shape(shape), y.dtype(), y.device())
                                        : reshape(stack(rows[k], 0), shape));
  }
  return jacobians;
}

}  // namespace

Tensors jacobian(const FunctionOfSeveral& f, const Tensors& inputs, bool create_graph) {
  const EnableGrad guard;
  const Tensors own = arguments("jacobian", inputs, create_graph);
  return rows_of(f(own), own, create_graph);
}

Tensor jacobian(const Function& f, const Tensor& x, bool create_graph) {
  return jacobian(of_several(f), {x}, create_graph)[0];
}

Tensor hessian(const Function& f, const Tensor& x, bool create_graph) {
  const EnableGrad guard;
  const Tensor own = argument("hessian", x, create_graph);
  const Tensor y = f(own);
  PEAL_CHECK(y.numel() == 1, "hessian: expected a function of one element, got shape ", y.shape());
  return rows_of(gradient(y, own, {}, true), {own}, create_graph)[0];
}

std::pair<Tensor, Tensor> vjp(const Function& f, const Tensor& x, const Tensor& v,
                              bool create_graph) {
  const EnableGrad guard;
  const Tensor own = argument("vjp", x, create_graph);
  const Tensor y = f(own);
  PEAL_CHECK(v.defined() || y.numel() == 1, "vjp: f(x) has shape ", y.shape(),
             ", so a v of that shape is needed");
  return {create_graph ? y : y.detach(), gradient(y, own, v, create_graph)};
}

std::pair<Tensor, Tensor> jvp(const Function& f, const Tensor& x, const Tensor& v,
                              bool create_graph) {
  PEAL_CHECK(v.shape() == x.shape(), "jvp: expected a v of x's shape ", x.shape(), ", got ",
             v.shape());
  const EnableGrad guard;
  const Tensor own = argument("jvp", x, create_graph);
  const Tensor y = f(own);
  // u J is linear in u, and the gradient of its product with v with respect to u is J v.
  const Tensor u = zeros_like(y);
  u.set_requires_grad();
  const Tensor along = gradient(gradient(y, own, u, true), u, v, create_graph);
  return {create_graph ? y : y.detach(), along};
}

std::pair<Tensor, Tensor> hvp(const Function& f, const Tensor& x, const Tensor& v,
                              bool create_graph) {
  PEAL_CHECK(v.shape() == x.shape(), "hvp: expected a v of x's shape ", x.shape(), ", got ",
             v.shape());
  const EnableGrad guard;
  const Tensor own = argument("hvp", x, create_graph);
  const Tensor y = f(own);
  PEAL_CHECK(y.numel() == 1, "hvp: expected a function of one element, got shape ", y.shape());
  const Tensor slope = gradient(y, own, {}, true);
  return {create_graph ? y : y.detach(), gradient(slope, own, v, create_graph)};
}

bool gradcheck(const FunctionOfSeveral& f, const Tensors& inputs, const GradcheckOptions& options) {
  Tensors wanted, own;
  for (const Tensor& x : inputs) {
    own.push_back(x.detach().clone());
    if (!x.requires_grad()) continue;
    PEAL_CHECK(x.dtype() == DType::f64, "gradcheck: expected inputs f64, got ", x.dtype(),
               ": the differences of a narrower type are too coarse");
    own.back().set_requires_grad();
    wanted.push_back(own.back());
  }
  PEAL_CHECK(!wanted.empty(), "gradcheck: none of ", inputs.size(), " inputs wants a gradient");
  const EnableGrad guard;
  const Tensor y = f(own);
  const Tensors jacobians = rows_of(y, wanted, false);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Tensor& x = wanted[k];
    const std::vector<double> slopes = jacobians[k].to_vector<double>();
    for (std::int64_t j = 0; j < x.numel(); ++j) {
      const Tensor place = x.detach({x.numel()}).rows(j, j + 1), kept = place.clone();
      const auto at = [&](double by) {
        place.copy_(kept + by);
        return f(own).detach().to(DType::f64).to_vector<double>();
      };
      const std::vector<double> above = at(options.eps), below = at(-options.eps);
      place.copy_(kept);
      for (std::int64_t i = 0; i < y.numel(); ++i) {
        const auto e = static_cast<std::size_t>(i);
        const double difference = (above[e] - below[e]) / (2 * options.eps);
        const double slope = slopes[static_cast<std::size_t>(i * x.numel() + j)];
        if (std::abs(slope - difference) <= options.atol + options.rtol * std::abs(difference)) {
          continue;
        }
        PEAL_CHECK(!options.raise_exception, "gradcheck: element ", i, " of the output by element ",
                   j, " of input ", k, ": the gradient is ", slope, ", the difference quotient ",
                   difference);
        return false;
      }
    }
  }
  return true;
}

}  // namespace peal::autograd
