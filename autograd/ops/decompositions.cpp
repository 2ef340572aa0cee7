// SPDX-License-Identifier: Apache-2.0
// The factorisations of linalg.h that have several results. Such an op is recorded with one result,
// in which each matrix's factors lie one after another, for what a gradient saves may be the first
// result alone (grad.h).
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/concatenate.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/factorize.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/linalg.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/matrices.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>

namespace peal::linalg {
namespace {

// The factor of `sizes` that begins at element `at` of each matrix's own.
Tensor factor(const Tensor& packed, std::int64_t at, std::initializer_list<std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return reshaped(as_result(narrow(packed, -1, at, count)), with(batch_of(packed, 1), sizes));
}

// n / d, and 0 where both are 0: of vectors that nothing depends on, whose values may be equal.
Tensor quotient(const Tensor& n, const Tensor& d) {
  const Tensor none = (n == 0) & (d == 0);
  return where(none, 0.0, n / where(none, 1.0, d));
}
// Of values [..., k]: value j less value i, [..., k, k].
Tensor differences(const Tensor& values) { return unsqueeze(values, -2) - unsqueeze(values, -1); }
Tensor skew(const Tensor& a) { return a - flipped(a); }

// Q [m, n] and R [n, n] of a [m, n], m >= n.
Tensor packed_qr(const Tensor& a) {
  constexpr std::string_view op = "linalg.qr";
  const std::int64_t m = a.size(-2), n = a.size(-1), each = m * n + n * n;
  const Tensor packed = host(with(batch_of(a), {each}));
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    double* q = packed.data<double>() + i * each;
    factorize::qr(q, q + m * n, matrix, m, n, n);
  });
  return record(op, packed, {a}, [=, packed = save(packed)](const Tensor& g) {
    const Tensor q = factor(packed(), 0, {m, n}), r = factor(packed(), m * n, {n, n});
    const Tensor of_q = factor(g, 0, {m, n}), of_r = factor(g, m * n, {n, n});
    // (of_q + q s) r^-T with s symmetric, of the upper triangle of of_r r^T - q^T of_q.
    const Tensor whole = matmul(of_r, r, false, true) - matmul(q, of_q, true);
    const Tensor symmetric = triu(whole) + flipped(triu(whole, 1));
    const Tensor sum = of_q + matmul(q, symmetric);
    return flipped(solved_triangular(op, r, flipped(sum), true, false));
  });
}

// Columns that complete q's [m, n] to a basis: [m, m - n]. Not recorded.
Tensor completion(const Tensor& q) {
  const std::int64_t m = q.size(-2), n = q.size(-1);
  const Tensor whole = host(with(batch_of(q), {m, m})), r = host({m, n});
  each_matrix(q.detach(), [&](const double* matrix, std::int64_t i) {
    factorize::qr(whole.data<double>() + i * m * m, r.data<double>(), matrix, m, n, m);
  });
  return narrow(whole, -1, n, m - n);
}

// U [m, k], S [k] and Vh [k, n].
Tensor packed_svd(std::string_view op, const Tensor& a) {
  const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  const std::int64_t each = m * k + k + k * n;
  const Tensor packed = host(with(batch_of(a), {each}));
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    double* u = packed.data<double>() + i * each;
    PEAL_CHECK(factorize::svd(u, u + m * k, u + m * k + k, matrix, m, n), op, ": ", named(a, i),
               " holds what is not finite, or its singular values do not converge");
  });
  return record(op, packed, {a}, [=, packed = save(packed)](const Tensor& g) {
    const Tensor u = factor(packed(), 0, {m, k}), of_u = factor(g, 0, {m, k});
    const Tensor s = factor(packed(), m * k, {k}), of_s = factor(g, m * k, {k});
    const Tensor vh = factor(packed(), m * k + k, {k, n}), of_vh = factor(g, m * k + k, {k, n});
    const Tensor row = unsqueeze(s, -2), column = unsqueeze(s, -1);
    const Tensor apart = differences(s * s);
    const Tensor u_of_u = matmul(u, of_u, true), v_of_v = matmul(vh, of_vh, false, true);
    Tensor within = quotient(skew(u_of_u), apart) * row + column * quotient(skew(v_of_v), apart) +
                    diag_embed(of_s);
    Tensor slope = matmul(matmul(u, within), vh);
    if (m > k) slope = slope + matmul(quotient(of_u - matmul(u, u_of_u), row), vh);
    if (n > k) {
      slope = slope + matmul(u, quotient(of_vh - matmul(v_of_v, vh, true), column));
    }
    return slope;
  });
}

Tensor packed_eigh(std::string_view op, const Tensor& a) {
  const std::int64_t n = a.size(-1), each = n + n * n;
  const Tensor packed = host(with(batch_of(a), {each}));
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    double* w = packed.data<double>() + i * each;
    PEAL_CHECK(factorize::eigh(w, w + n, matrix, n), op, ": the eigenvalues of ", named(a, i),
               " do not converge");
  });
  return record(op, packed, {a}, [=, packed = save(packed)](const Tensor& g) {
    const Tensor w = factor(packed(), 0, {n}), v = factor(packed(), n, {n, n});
    const Tensor of_w = factor(g, 0, {n}), of_v = factor(g, n, {n, n});
    const Tensor turn = quotient(skew(matmul(v, of_v, true)) * 0.5, differences(w));
    return matmul(matmul(v, turn + diag_embed(of_w)), v, false, true);
  });
}
Tensor eigh_of(std::string_view op, const Tensor& a, char uplo) {
  check_square(op, a);
  PEAL_CHECK(uplo == 'L' || uplo == 'U', op, ": expected 'L' or 'U', got '", uplo, "'");
  const Tensor wide = on_host(op, a);
  return packed_eigh(op, uplo == 'U' ? flipped(wide) : wide);
}

}  // namespace

Qr qr(const Tensor& a, QrMode mode) {
  constexpr std::string_view op = "linalg.qr";
  const OpName name(op);
  const TraceSpan span(op);
  const Tensor wide = on_host(op, a);
  const std::int64_t m = a.size(-2), n = a.size(-1), k = std::min(m, n);
  // Of more columns than rows the first ones are factored.
  const Tensor packed = packed_qr(m < n ? narrow(wide, -1, 0, m) : wide);
  Tensor q = factor(packed, 0, {m, k}), r = factor(packed, m * k, {k, k});
  if (m < n) r = cat({r, matmul(q, narrow(wide, -1, m, n - m), true)}, -1);
  if (mode == QrMode::complete && m > n) {
    const auto none = [op](const Tensor&) -> Tensor {
      PEAL_CHECK(false, op, ": a complete Q of more rows than columns has no gradient; ",
                 "QrMode::reduced has one");
    };
    q = record(op, cat({q.detach(), completion(q)}, -1), {wide}, none);
    r = record(
        op,
        cat({r.detach(), Tensor::zeros(with(batch_of(a), {m - n, n}), DType::f64, Device{})}, -2),
        {wide}, none);
  }
  return {mode == QrMode::r ? Tensor() : as_before(a, q), as_before(a, r)};
}

Svd svd(const Tensor& a, bool full_matrices) {
  constexpr std::string_view op = "linalg.svd";
  const OpName name(op);
  const TraceSpan span(op);
  const std::int64_t k = a.dim() < 2 ? 0 : std::min(a.size(-2), a.size(-1));
  const Tensor packed = packed_svd(op, on_host(op, a));
  const std::int64_t m = a.size(-2), n = a.size(-1);
  Tensor u = factor(packed, 0, {m, k}), vh = factor(packed, m * k + k, {k, n});
  if (full_matrices && m > k) u = cat({u, completion(u)}, -1);
  if (full_matrices && n > k) vh = cat({vh, flipped(completion(flipped(vh.detach())))}, -2);
  return {as_before(a, u), as_before(a, factor(packed, m * k, {k})), as_before(a, vh)};
}

Tensor svdvals(const Tensor& a) {
  constexpr std::string_view op = "linalg.svdvals";
  const OpName name(op);
  const TraceSpan span(op);
  const Tensor packed = packed_svd(op, on_host(op, a));
  const std::int64_t k = std::min(a.size(-2), a.size(-1));
  return as_before(a, factor(packed, a.size(-2) * k, {k}));
}

Eigh eigh(const Tensor& a, char uplo) {
  constexpr std::string_view op = "linalg.eigh";
  const OpName name(op);
  const TraceSpan span(op);
  const Tensor packed = eigh_of(op, a, uplo);
  const std::int64_t n = a.size(-1);
  return {as_before(a, factor(packed, 0, {n})), as_before(a, factor(packed, n, {n, n}))};
}

Tensor eigvalsh(const Tensor& a, char uplo) {
  constexpr std::string_view op = "linalg.eigvalsh";
  const OpName name(op);
  const TraceSpan span(op);
  return as_before(a, factor(eigh_of(op, a, uplo), 0, {a.size(-1)}));
}

}  // namespace peal::linalg
