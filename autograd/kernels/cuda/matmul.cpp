// SPDX-License-Identifier: Apache-2.0
// The table's products of matrices. A bias is added by the product's last step; where cuBLASLt has
// no algorithm that does (for a bias of little alignment, say) it is spread over the rows first,
// and the product added to it. So with gelu by tanh, and its gradient: where the product's last
// step cannot, or would round more than f32 does, kernels do it after.
#include <peal/autograd/kernels/cuda/cublaslt.h>
#include <peal/autograd/kernels/cuda/table.h>
#include <peal/autograd/kernels/cuda/whole_matrix.h>

#include <optional>

namespace peal::cuda {
namespace {

void* address(const Tensor& x) { return x.defined() ? x.raw() : nullptr; }

bool product(const RowProduct& o, const Tensor& out, const Tensor& a, const Tensor& b,
             const Tensor& bias, bool add) {
  const ProductTypes types{a.dtype(), out.dtype()};
  const std::optional<RowProduct> whole = whole_product(o, a.dtype());
  if (!whole) {
    return multiply(o, types, out.device(), {out.raw(), a.raw(), b.raw(), address(bias)}, 1, add);
  }
  if (bias.defined()) return false;  // its vector would have to be longer, too
  const auto matrix = [](const Tensor& x, std::int64_t rows, std::int64_t columns,
                         bool transposed) {
    return transposed ? WholeMatrix(x, columns, rows) : WholeMatrix(x, rows, columns);
  };
  const WholeMatrix first = matrix(a, whole->m, whole->k, o.transpose_a),
                    second = matrix(b, whole->k, whole->n, o.transpose_b),
                    result(out, whole->m, whole->n);
  const ProductData data{add ? result.filled() : result.raw(), first.filled(), second.filled()};
  if (!multiply(*whole, types, out.device(), data, 1, add)) return false;
  result.take_back();
  return true;
}

// cuBLASLt does not say how exact its tanh is: enough for results that keep 11 bits or 8.
bool may_end_with_gelu(const Tensor& out, const RowProduct& o) {
  return is_low_precision(out.dtype()) && out.numel() > 0 && o.k > 0 &&
         !whole_product(o, out.dtype());
}

}  // namespace

bool matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b,
            const Tensor& bias) {
  if (!has_product(out.dtype())) return false;
  if (out.numel() == 0) return true;
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(transpose_a ? 0 : 1),
                                     transpose_a, transpose_b);
  if (o.k == 0) return bias.defined() ? expand(out, bias, 1) : fill(out, 0);
  return product(o, out, a, b, bias, false) ||
         (expand(out, bias, 1) && product(o, out, a, b, {}, true));
}

bool matmul_and_sums(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                     bool transpose_b, const Tensor& sums) {
  if (!has_product(out.dtype())) return false;
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(transpose_a ? 0 : 1),
                                     transpose_a, transpose_b);
  const ProductData data{out.raw(), a.raw(), b.raw(), nullptr, sums.raw()};
  if (out.numel() > 0 && o.k > 0 && !whole_product(o, a.dtype()) &&
      multiply(o, {a.dtype(), out.dtype()}, out.device(), data)) {
    return true;
  }
  return matmul(out, a, b, transpose_a, transpose_b, {}) &&
         sum(sums, a, transpose_a ? 0b01 : 0b10, 1);
}

bool matmul_gelu(const Tensor& out, const Tensor& kept, const Tensor& a, const Tensor& b,
                 const Tensor& bias) {
  if (!has_product(out.dtype())) return false;
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(1), false, true);
  const ProductData data{out.raw(), a.raw(),    b.raw(),      address(bias),
                         nullptr,   Gelu::made, address(kept)};
  if (may_end_with_gelu(out, o) && multiply(o, {a.dtype(), out.dtype()}, out.device(), data)) {
    return true;
  }
  const Tensor& input = kept.defined() ? kept : out;
  return matmul(input, a, b, false, true, bias) &&
         pointwise(Pointwise::gelu_tanh, out, input, 0, 0);
}

bool matmul_gelu_backward(const Tensor& out, const Tensor& sums, const Tensor& a, const Tensor& b,
                          const Tensor& kept) {
  if (!has_product(out.dtype())) return false;
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(1), false, false);
  // Not with the sums: cuBLASLt's products that end with both take four times as long (an H100).
  const ProductData data{out.raw(), a.raw(), b.raw(), nullptr, nullptr, Gelu::slope, kept.raw()};
  const bool made =
      (may_end_with_gelu(out, o) && multiply(o, {a.dtype(), out.dtype()}, out.device(), data)) ||
      (matmul(out, a, b, false, false, {}) &&
       pointwise_backward(Pointwise::gelu_tanh, out, out, kept, 0, 0));
  return made && (!sums.defined() || sum(sums, out, 0b01, 1));
}

bool batched_matmul(const Tensor& out, const Tensor& a, const Tensor& b, bool transpose_a,
                    bool transpose_b) {
  if (!has_product(out.dtype())) return false;
  if (out.numel() == 0) return true;
  const RowProduct o = dense_product(out.size(1), out.size(2), a.size(transpose_a ? 1 : 2),
                                     transpose_a, transpose_b, out.size(0));
  return o.k == 0 ? fill(out, 0) : product(o, out, a, b, {}, false);
}

}  // namespace peal::cuda
