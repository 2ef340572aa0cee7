// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/diagonal.h>
#include <peal/autograd/ops/factorize.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/linalg.h>
#include <peal/autograd/ops/math.h>
#include <peal/autograd/ops/matmul.h>
#include <peal/autograd/ops/matrices.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <cmath>

namespace peal::linalg {
namespace {

// a x = b, or a^T x = b, of equal batches.
Tensor solved(const Tensor& a, const Tensor& b, bool transposed) {
  constexpr std::string_view op = "linalg.solve";
  const OpName name(op);
  const std::int64_t n = a.size(-1), k = b.size(-1);
  const Tensor x = host(b.shape());
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    PEAL_CHECK(factorize::solve(x.data<double>() + i * n * k, matrix, transposed,
                                b.data<double>() + i * n * k, n, k),
               op, ": ", named(a, i), " is singular; lstsq gives the x of least squares");
  });
  return record(op, x, {a, b},
                [a = save(a), x = save(x), transposed](const Tensor& g, Needs needs) {
                  Tensors grads(2);
                  grads[1] = solved(a(), g, !transposed);
                  if (needs[0]) {
                    grads[0] = -(transposed ? matmul(x(), grads[1], false, true)
                                            : matmul(grads[1], x(), false, true));
                  }
                  return grads;
                });
}

// Whether b is one vector, or one for each matrix of a.
bool holds_vectors(const Tensor& a, const Tensor& b) {
  return b.dim() == 1 || (b.dim() + 1 == a.dim() && b.shape() == batch_of(a, 1));
}

// The two sides of an equation as solved() takes them: of one batch, with b's matrices.
struct Sides {
  Tensor a, b;
  bool vectors, turned;
};
Sides sides_of(std::string_view op, const Tensor& a, const Tensor& b, bool left, bool vectors) {
  check_alike(op, a, b);
  Tensor of_a = on_host(op, a), of_b = on_host(op, vectors ? unsqueeze(b, -1) : b);
  const bool turned = !left && !vectors;
  if (turned) of_b = flipped(of_b);
  PEAL_CHECK(of_b.size(-2) == of_a.size(-2), op, ": matrices of shape ", a.shape(),
             " do not fit a side of shape ", b.shape());
  const Shape batch = broadcast(op, batch_of(of_a), batch_of(of_b));
  of_a = stretched_to(op, of_a, with(batch, {of_a.size(-2), of_a.size(-1)}));
  of_b = stretched_to(op, of_b, with(batch, {of_b.size(-2), of_b.size(-1)}));
  return {of_a, of_b, vectors, turned};
}
Tensor answer(const Tensor& like, const Sides& sides, const Tensor& x) {
  return as_before(like, sides.turned ? flipped(x) : sides.vectors ? squeeze(x, -1) : x);
}

}  // namespace

Tensor flipped(const Tensor& a) { return as_result(transpose(a, -2, -1)); }
Tensor beside_matrices(const Tensor& x) { return unsqueeze(unsqueeze(x, -1), -1); }

Tensor inverse(std::string_view op, const Tensor& a) {
  const OpName name(op);
  const std::int64_t n = a.size(-1);
  const Tensor y = host(a.shape());
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    PEAL_CHECK(factorize::invert(y.data<double>() + i * n * n, matrix, n), op, ": ", named(a, i),
               " is singular; pinv gives what is nearest to an inverse");
  });
  return record(op, y, {a}, [y = save(y)](const Tensor& g) {
    return -matmul(matmul(y(), g, true), y(), false, true);
  });
}

Tensor solved_triangular(std::string_view op, const Tensor& a, const Tensor& b, bool upper,
                         bool transposed, bool unit) {
  const OpName name(op);
  const std::int64_t n = a.size(-1), k = b.size(-1);
  const Tensor x = host(b.shape());
  const factorize::Triangle triangle{upper, unit, transposed};
  each_matrix(a, [&](const double* matrix, std::int64_t i) {
    PEAL_CHECK(factorize::solve_triangular(x.data<double>() + i * n * k, matrix, triangle,
                                           b.data<double>() + i * n * k, n, k),
               op, ": ", named(a, i), " is singular: an element of its diagonal is 0");
  });
  return record(
      op, x, {a, b},
      [op, a = save(a), x = save(x), upper, transposed, unit](const Tensor& g, Needs needs) {
        Tensors grads(2);
        grads[1] = solved_triangular(op, a(), g, upper, !transposed, unit);
        if (needs[0]) {
          const Tensor whole = -(transposed ? matmul(x(), grads[1], false, true)
                                            : matmul(grads[1], x(), false, true));
          grads[0] = upper ? triu(whole, unit ? 1 : 0) : tril(whole, unit ? -1 : 0);
        }
        return grads;
      });
}

Tensor inv(const Tensor& a) {
  constexpr std::string_view op = "linalg.inv";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  return as_before(a, inverse(op, on_host(op, a)));
}

Tensor det(const Tensor& a) {
  constexpr std::string_view op = "linalg.det";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  const Tensor wide = on_host(op, a);
  const std::int64_t n = a.size(-1);
  const Tensor d = host(batch_of(a));
  each_matrix(wide, [&](const double* matrix, std::int64_t i) {
    d.data<double>()[i] = factorize::determinant(matrix, n);
  });
  const auto backward = [op, n, a = save(wide), d = save(d)](const Tensor& g) {
    if (backward_is_recorded()) {
      return beside_matrices(g * d()) * flipped(inverse(op, a()));
    }
    const Tensor slopes = host(a().shape());
    each_matrix(a(), [&](const double* matrix, std::int64_t i) {
      factorize::cofactors(slopes.data<double>() + i * n * n, matrix, n);
    });
    return beside_matrices(g) * slopes;
  };
  return as_before(a, record(op, d, {wide}, backward));
}

Slogdet slogdet(const Tensor& a) {
  constexpr std::string_view op = "linalg.slogdet";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  const Tensor wide = on_host(op, a);
  const Tensor sign = host(batch_of(a)), log = host(batch_of(a));
  each_matrix(wide, [&](const double* matrix, std::int64_t i) {
    factorize::log_determinant(sign.data<double>() + i, log.data<double>() + i, matrix, a.size(-1));
  });
  const Tensor recorded = record(op, log, {wide}, [op, a = save(wide)](const Tensor& g) {
    return beside_matrices(g) * flipped(inverse(op, a()));
  });
  return {as_before(a, sign), as_before(a, recorded)};
}

Tensor matrix_power(const Tensor& a, std::int64_t n) {
  constexpr std::string_view op = "linalg.matrix_power";
  const OpName name(op);
  check_floating(op, a);
  check_square(op, a);
  if (n == 0) {
    return stretched_to(op, eye(a.size(-1), std::nullopt, a.dtype(), a.device()), a.shape());
  }
  if (n == 1) return a.clone();  // not a itself, which may change
  if (n < 0) return n == -1 ? inv(a) : matrix_power(inv(a), -n);
  Tensor power = a, product;
  for (std::int64_t left = n; left > 0; left /= 2) {
    if (left % 2 == 1) product = product.defined() ? matmul(product, power) : power;
    if (left > 1) power = matmul(power, power);
  }
  return product;
}

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  constexpr std::string_view op = "linalg.solve";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  const Sides sides = sides_of(op, a, b, left, holds_vectors(a, b));
  return answer(b, sides, solved(sides.a, sides.b, !left));
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left,
                        bool unitriangular) {
  constexpr std::string_view op = "linalg.solve_triangular";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  PEAL_CHECK(b.dim() >= 2, op, ": expected b as matrices [..., n, k], got shape ", b.shape(),
             "; a vector is one with a last dimension of 1");
  const Sides sides = sides_of(op, a, b, left, false);
  return answer(b, sides, solved_triangular(op, sides.a, sides.b, upper, !left, unitriangular));
}

Lstsq lstsq(const Tensor& a, const Tensor& b) {
  constexpr std::string_view op = "linalg.lstsq";
  const OpName name(op);
  const TraceSpan span(op);
  const Sides sides = sides_of(op, a, b, true, holds_vectors(a, b));
  const std::int64_t m = a.size(-2), n = a.size(-1);
  const Tolerance tolerance{.rtol = static_cast<double>(std::max(m, n)) * epsilon_of(a.dtype())};
  const Tensor x = matmul(pinv(sides.a, tolerance), sides.b);
  const Tensor rank = matrix_rank(sides.a.detach(), tolerance);
  Tensor residuals = host({0});
  if (m > n && all(rank == n)) {
    residuals = sum(square(matmul(sides.a.detach(), x.detach()) - sides.b.detach()), {-2});
    if (sides.vectors) residuals = squeeze(residuals, -1);
  }
  return {answer(b, sides, x), as_before(b, residuals), rank.to(b.device()),
          as_before(b, svdvals(sides.a.detach()))};
}

Tensor cholesky(const Tensor& a, bool upper) {
  constexpr std::string_view op = "linalg.cholesky";
  const OpName name(op);
  const TraceSpan span(op);
  check_square(op, a);
  const Tensor wide = upper ? flipped(on_host(op, a)) : on_host(op, a);
  const std::int64_t n = a.size(-1);
  const Tensor l = host(wide.shape());
  each_matrix(wide, [&](const double* matrix, std::int64_t i) {
    const std::int64_t minor = factorize::cholesky(l.data<double>() + i * n * n, matrix, n);
    PEAL_CHECK(minor == 0, op, ": ", named(a, i),
               " is not positive definite: its leading minor of ", minor, " is not positive");
  });
  const Tensor recorded = record(op, l, {wide}, [op, n, l = save(l)](const Tensor& g) {
    const Tensor half =
        tril(ones({n, n}, DType::f64, Device{})) - eye(n, std::nullopt, DType::f64, Device{}) * 0.5;
    // l^-T (half of l^T g) l^-1
    const Tensor right = solved_triangular(op, l(), matmul(l(), g, true) * half, false, true);
    const Tensor both = solved_triangular(op, l(), flipped(right), false, true);
    return (both + flipped(both)) * 0.5;
  });
  return as_before(a, upper ? flipped(recorded) : recorded);
}

}  // namespace peal::linalg

namespace peal {

Tensor logdet(const Tensor& a) {
  const OpName name("logdet");
  const auto [sign, log] = linalg::slogdet(a);
  return log * where(lt(sign, 0), NAN, ones({}, log.dtype(), log.device()));
}

}  // namespace peal
