// SPDX-License-Identifier: Apache-2.0
// Modules of two inputs: distances, angles, and a bilinear form. Thread safety: as of Module.
#pragma once

#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/products.h>
#include <peal/nn/module.h>

namespace peal::nn {

// autograd/ops/distance.h has the formulas.
class CosineSimilarity : public Module {
 public:
  explicit CosineSimilarity(int dim = 1, double eps = 1e-8) : dim_(dim), eps_(eps) {}
  Tensor operator()(const Tensor& a, const Tensor& b) {
    return call(&CosineSimilarity::compare, a, b);
  }
  Tensor compare(const Tensor& a, const Tensor& b) { return cosine_similarity(a, b, dim_, eps_); }

 private:
  int dim_;
  double eps_;
};

class PairwiseDistance : public Module {
 public:
  explicit PairwiseDistance(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p_(p), eps_(eps), keepdim_(keepdim) {}
  Tensor operator()(const Tensor& a, const Tensor& b) {
    return call(&PairwiseDistance::compare, a, b);
  }
  Tensor compare(const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, p_, eps_, keepdim_);
  }

 private:
  double p_, eps_;
  bool keepdim_;
};

// y[o] = a weight[o] b + bias[o] (bilinear() in autograd/ops/products.h).
class Bilinear : public Module {
 public:
  // weight [out, in1, in2] and bias [out], both uniform in +-1/sqrt(in1), drawn in this order.
  Bilinear(std::int64_t in1, std::int64_t in2, std::int64_t out, bool with_bias = true);
  // a [..., in1], b [..., in2] -> [..., out].
  Tensor operator()(const Tensor& a, const Tensor& b) { return call(&Bilinear::join, a, b); }
  Tensor join(const Tensor& a, const Tensor& b) { return bilinear(a, b, weight, bias); }
  std::string extra_repr() const override;

  Tensor weight, bias;  // bias is undefined where there is none
};

}  // namespace peal::nn
