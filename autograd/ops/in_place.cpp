// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/in_place.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/hooks.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/in_place.h>
#include <peal/autograd/ops/operands.h>
#include <peal/autograd/ops/promotion.h>

namespace peal {
namespace {

// Whether a kernel may write over x's elements, type by type.
bool direct(const Tensor& x, Binary which) {
  return x.dtype() != DType::boolean && (which != Binary::div || is_floating(x.dtype()));
}

void assign(std::string_view op, Binary which, const Tensor& x, const Tensor& y,
            Tensor (*f)(const Tensor&, const Tensor&)) {
  TraceSpan span(op);
  const bool same = x.dtype() == y.dtype() && x.shape() == y.shape() && x.device() == y.device();
  // Elements that overlap elsewhere would be read after they were written.
  const bool apart = x.storage() != y.storage() || x.raw() == y.raw();
  if (!write_is_recorded(op, x, y) && same && apart && direct(x, which)) {
    kernels(x.device()).binary(op, x, which, x, x, y);
    x.storage()->bump_version();
    return;
  }
  write_back(op, x, f(x, y));
}

void assign(std::string_view op, Unary which, Binary of, const Tensor& x, Scalar y, double s,
            Tensor (*f)(const Tensor&, Scalar)) {
  TraceSpan span(op);
  PEAL_CHECK(of != Binary::sub || !y.is_boolean(), op,
             ": true and false are no numbers to subtract");
  const bool plain = result_type(x, y) == x.dtype() && y.fits_double();
  if (!write_is_recorded(op, x, {}) && plain && direct(x, of)) {
    kernels(x.device()).unary(op, x, which, x, x, checked_number(op, x, s));
    x.storage()->bump_version();
    return;
  }
  write_back(op, x, f(x, y));
}

// x becomes x + alpha * y, or x - alpha * y.
void assign_scaled(std::string_view op, const Tensor& x, const Tensor& y, Scalar alpha,
                   bool minus) {
  TraceSpan span(op);
  const bool same = x.dtype() == y.dtype() && x.shape() == y.shape() && x.device() == y.device();
  const bool direct = same && is_floating(x.dtype()) && alpha.fits_double();
  if (!write_is_recorded(op, x, y) && direct) {
    return peal::add_(x, y, minus ? -alpha.to<double>() : alpha.to<double>());
  }
  const Tensor scaled = y * alpha;
  write_back(op, x, minus ? x - scaled : x + scaled);
}

// A recorded write gives x elements of its own, so of a tensor that has the others, and maybe these
// too, x would be no part any more; under NoGrad it is written through x.
void check_whole(std::string_view op, const Tensor& x) {
  const auto own = static_cast<std::size_t>(x.numel()) * size_of(x.dtype());
  PEAL_CHECK(
      own == x.storage()->bytes() || x.storage().use_count() == 1, op, ": a tensor of shape ",
      x.shape(),
      " that is a part of another one would be written in place, and the result is recorded: "
      "the other one would not see it. Write it through that one (whole[Slice(begin, end)] += "
      "y), into a copy (clone()), or compute out of place");
}

// What is lost with a temporary.
void check_kept(std::string_view op, const Tensor& x, const Tensor& source) {
  check_temporary(op, x);
  PEAL_CHECK(!write_is_recorded(op, x, source), op, ": the result, of shape ", x.shape(),
             ", is recorded, and would be lost with the temporary that it is written into; "
             "x[Slice(begin, end)] ",
             op, " y writes x");
}

}  // namespace

bool write_is_recorded(std::string_view op, const Tensor& x, const Tensor& source) {
  check_no_copy(op, x);
  if (!context().grad_enabled || !(x.requires_grad() || source.requires_grad())) return false;
  PEAL_CHECK(!x.requires_grad() || !x.is_leaf(), op, ": a leaf of shape ", x.shape(),
             " that requires a gradient would be written in place, and its gradient lost; write it "
             "under NoGrad, or compute out of place");
  return true;
}

void write_back(std::string_view op, const Tensor& x, const Tensor& r) {
  PEAL_CHECK(r.shape() == x.shape(), op, ": the result has shape ", r.shape(),
             ", and is written into shape ", x.shape());
  PEAL_CHECK(can_cast(r.dtype(), x.dtype()), op, ": the result is ", r.dtype(),
             ", and is written into ", x.dtype(), "; cast an operand, or compute out of place");
  const Tensor value = cast(r, x.dtype());
  if (!write_is_recorded(op, x, r)) return x.copy_(value);
  check_whole(op, x);
  // The node keeps to value's body as its output (Saved), so x's may be its input and its output.
  TensorBody& to = x.body();
  const TensorBody& from = value.body();
  const std::shared_ptr<Node> before = to.node;
  const int output_before = to.output;
  to.storage = from.storage;
  to.at = from.at;
  to.node = from.node;
  to.output = from.output;
  to.slot = nullptr;
  to.requires_grad = true;
  move_retained(before, output_before, x);
}

#define ASSIGNMENT(op, name, unary, sign)                                                \
  const Tensor& Tensor::operator op(const Tensor& y) const& {                            \
    assign(#op, Binary::name, *this, y, &peal::name);                                    \
    return *this;                                                                        \
  }                                                                                      \
  const Tensor& Tensor::operator op(Scalar y) const& {                                   \
    assign(#op, Unary::unary, Binary::name, *this, y, sign y.to<double>(), &peal::name); \
    return *this;                                                                        \
  }                                                                                      \
  Tensor Tensor::operator op(const Tensor& y) const&& {                                  \
    check_kept(#op, *this, y);                                                           \
    return static_cast<const Tensor&>(*this) op y;                                       \
  }                                                                                      \
  Tensor Tensor::operator op(Scalar y) const&& {                                         \
    check_kept(#op, *this, {});                                                          \
    return static_cast<const Tensor&>(*this) op y;                                       \
  }                                                                                      \
  Tensor Tensor::name##_(const Tensor& y) const&& {                                      \
    const Tensor here = *this;                                                           \
    return here op y;                                                                    \
  }                                                                                      \
  Tensor Tensor::name##_(Scalar y) const&& {                                             \
    const Tensor here = *this;                                                           \
    return here op y;                                                                    \
  }
ASSIGNMENT(+=, add, add_scalar, +)
ASSIGNMENT(-=, sub, add_scalar, -)
ASSIGNMENT(*=, mul, mul_scalar, +)
ASSIGNMENT(/=, div, div_scalar, +)
#undef ASSIGNMENT

const Tensor& Tensor::add_(const Tensor& y, Scalar alpha) const& {
  assign_scaled("add_", *this, y, alpha, false);
  return *this;
}
const Tensor& Tensor::sub_(const Tensor& y, Scalar alpha) const& {
  assign_scaled("sub_", *this, y, alpha, true);
  return *this;
}
Tensor Tensor::add_(const Tensor& y, Scalar alpha) const&& {
  const Tensor here = *this;
  return here.add_(y, alpha);
}
Tensor Tensor::sub_(const Tensor& y, Scalar alpha) const&& {
  const Tensor here = *this;
  return here.sub_(y, alpha);
}

}  // namespace peal
