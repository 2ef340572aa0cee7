// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/distance.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/products.h>
#include <peal/autograd/ops/random.h>
#include <peal/autograd/ops/rearrange.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/spread.h>
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/computed_parameter.h>
#include <peal/nn/weight_norm.h>

#include <string>
#include <vector>

namespace peal::nn {
namespace {

int checked_dim(std::string_view what, const Tensor& weight, int dim) {
  PEAL_CHECK(dim >= -weight.dim() && dim < weight.dim(), what, ": there is no dimension ", dim,
             " of ", weight.shape());
  return dim < 0 ? dim + weight.dim() : dim;
}

// The module's own parameter, which it keeps where there is no dimension `dim`, or this rank has a
// piece of it alone: a norm would be of that, and nobody would know any more what is cut.
Tensor taken(std::string_view what, Module& module, std::string_view name, std::optional<int> dim) {
  for (const auto& [key, tensor] : module.named_parameters()) {
    if (key != name) continue;
    PEAL_CHECK(
        !tensor.storage()->is_piece(), what, ": ", key, " ", tensor.shape(), " of ",
        module.class_name(),
        " is this rank's piece of a sharded or tensor-parallel parameter, and its norm would "
        "be that of the piece; leave this layer whole");
    if (dim) checked_dim(what, tensor, *dim);
  }
  return module.remove_parameter(name);
}

// Over all dimensions but `dim`, which stays, with sizes of 1 beside it.
Tensor norm_except(const Tensor& v, std::optional<int> dim) {
  if (!dim) return norm(v);
  std::vector<int> others;
  for (int d = 0; d < v.dim(); ++d) {
    if (d != *dim) others.push_back(d);
  }
  return others.empty() ? abs(v) : norm(v, 2, others, true);
}

// [size of dim, the others].
Tensor as_matrix(const Tensor& weight, int dim) {
  return reshape(movedim(weight, dim, 0), {weight.size(dim), -1});
}

}  // namespace

// What a layer begins with is worked out in f64, so that it is the same on all devices.
void apply_weight_norm(Module& module, std::string_view name, std::optional<int> dim) {
  const std::string own(name);
  if (dim == -1) dim = std::nullopt;  // as PyTorch has it
  const Tensor weight = taken("weight_norm", module, name, dim);
  if (dim) dim = checked_dim("weight_norm", weight, *dim);
  const Tensor length = norm_except(cast(weight.detach(), DType::f64), dim);
  const Tensor g = module.add_parameter(own + "_g", cast(length, weight.dtype()).clone());
  const Tensor v = module.add_parameter(own + "_v", weight.detach().clone());
  compute_before_forward(module, weight, [=](bool) { return v * (g / norm_except(v, dim)); });
}

void apply_spectral_norm(Module& module, std::string_view name,
                         const SpectralNormOptions& options) {
  PEAL_CHECK(options.n_power_iterations > 0,
             "spectral_norm: n_power_iterations: expected at least 1, got ",
             options.n_power_iterations);
  const std::string own(name);
  const bool transposed = own_class(module).find("ConvTranspose") != std::string::npos;
  const int wanted = options.dim.value_or(transposed ? 1 : 0);
  const Tensor weight = taken("spectral_norm", module, name, wanted);
  const int dim = checked_dim("spectral_norm", weight, wanted);
  const Tensor original = module.add_parameter(own + "_orig", weight.detach().clone());
  const double eps = options.eps;
  const auto direction = [eps](const Tensor& x) { return normalize(x, 2, 0, eps); };
  const std::int64_t outputs = weight.size(dim), inputs = weight.numel() / outputs;
  const auto drawn = [&](const char* which, std::int64_t size) {
    const Tensor exact = direction(randn({size}, DType::f64, weight.device()));
    return module.add_buffer(own + which, cast(exact, weight.dtype()));
  };
  const Tensor u = drawn("_u", outputs), v = drawn("_v", inputs);
  compute_before_forward(module, weight, [=, rounds = options.n_power_iterations](bool training) {
    const Autocast off(DType::bf16, false);
    const Tensor matrix = as_matrix(original, dim);
    if (training && !recomputing()) {
      const NoGrad guard;
      for (std::int64_t i = 0; i < rounds; ++i) {
        v.copy_(direction(mv(transpose(matrix, 0, 1), u)));
        u.copy_(direction(mv(matrix, v)));
      }
    }
    // Copies, as another forward may come before this one's backward.
    return original / dot(u.clone(), mv(matrix, v.clone()));
  });
}

}  // namespace peal::nn
