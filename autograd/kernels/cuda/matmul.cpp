// SPDX-License-Identifier: Apache-2.0
// The table's products of matrices. A bias is added by the product's last step; where cuBLASLt has
// no algorithm that does (for a bias of little alignment, say) it is spread over the rows first,
// and the product added to it. So with gelu by tanh, and its gradient: where the product's last
// step cannot, or would round more than f32 does, kernels do it after.
//
// Tensor cores' fast products want rows of low precision that lie a multiple of 16 bytes apart:
// with others, as of logits over 50257 words, cuBLASLt falls back to kernels that are four times
// slower (seen on an H100). A large product has such operands copied to rows that do, which costs
// what a small part of it saves.
#include <peal/autograd/kernels/cuda/cublaslt.h>
#include <peal/autograd/kernels/cuda/table.h>

namespace peal::cuda {
namespace {

constexpr std::int64_t whole = 8;  // elements that rows are to be a multiple of
// Below, a product gains less than its copies take: of multiplications, and of those that a copied
// element is used in.
constexpr std::int64_t least_multiplications = std::int64_t{1} << 28, least_uses = 256;

bool is_whole(std::int64_t row) { return row % whole == 0; }

bool gains_by_whole_rows(const RowProduct& o, DType operands) {
  const bool worth = (is_whole(o.row_a) || o.n >= least_uses) &&
                     (is_whole(o.row_b) || o.m >= least_uses) &&
                     (is_whole(o.row_out) || o.k >= least_uses);
  return is_low_precision(operands) && o.batch == 1 && worth &&
         !(is_whole(o.row_a) && is_whole(o.row_b) && is_whole(o.row_out)) &&
         o.m * o.n >= least_multiplications / o.k;
}

// A matrix as it is, or a copy of it with whole rows, whose number becomes `row`.
class WholeRows {
 public:
  WholeRows(const Tensor& dense, std::int64_t& row) : dense_(dense), copy_(dense) {
    if (is_whole(row)) return;
    row = (row + whole - 1) / whole * whole;
    steps_[0] = row, steps_[1] = 1;
    copy_ = Tensor::empty({dense.size(0), row}, dense.dtype(), dense.device());
  }
  void* raw() const { return copy_.raw(); }
  void* filled() const {
    if (copied()) write_strided(copy_, dense_, steps_, 0);
    return raw();
  }
  void take_back() const {
    if (copied()) read_strided(dense_, copy_, steps_, 0);
  }

 private:
  bool copied() const { return steps_[1] != 0; }
  Tensor dense_, copy_;
  Steps steps_{};
};

// As multiply(), without gelu.
bool product(RowProduct o, const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
             bool add, const Tensor& sums = {}) {
  const auto address = [](const Tensor& x) { return x.defined() ? x.raw() : nullptr; };
  const ProductTypes types{a.dtype(), out.dtype()};
  if (!gains_by_whole_rows(o, a.dtype())) {
    return multiply(o, types, out.device(),
                    {out.raw(), a.raw(), b.raw(), address(bias), address(sums)}, 1, add);
  }
  const WholeRows first(a, o.row_a), second(b, o.row_b), result(out, o.row_out);
  const ProductData data{add ? result.filled() : result.raw(), first.filled(), second.filled(),
                         address(bias), address(sums)};
  if (!multiply(o, types, out.device(), data, 1, add)) return false;
  result.take_back();
  return true;
}

// cuBLASLt does not say how exact its tanh is: enough for results that keep 11 bits or 8.
bool may_end_with_gelu(const Tensor& out, const RowProduct& o) {
  return is_low_precision(out.dtype()) && out.numel() > 0 && o.k > 0;
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
  if (out.numel() > 0 && o.k > 0 && product(o, out, a, b, {}, false, sums)) return true;
  return matmul(out, a, b, transpose_a, transpose_b, {}) &&
         sum(sums, a, transpose_a ? 0b01 : 0b10, 1);
}

bool matmul_gelu(const Tensor& out, const Tensor& kept, const Tensor& a, const Tensor& b,
                 const Tensor& bias) {
  if (!has_product(out.dtype())) return false;
  const RowProduct o = dense_product(out.size(0), out.size(1), a.size(1), false, true);
  const auto address = [](const Tensor& x) { return x.defined() ? x.raw() : nullptr; };
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
  const ProductData data{
      out.raw(),   a.raw(),   b.raw(), nullptr, sums.defined() ? sums.raw() : nullptr,
      Gelu::slope, kept.raw()};
  if (may_end_with_gelu(out, o) && multiply(o, {a.dtype(), out.dtype()}, out.device(), data)) {
    return true;
  }
  return matmul(out, a, b, false, false, {}) &&
         pointwise_backward(Pointwise::gelu_tanh, out, out, kept, 0, 0) &&
         (!sums.defined() || sum(sums, out, 0b01, 1));
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
