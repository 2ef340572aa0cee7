// SPDX-License-Identifier: Apache-2.0
// Linear algebra. What is factored is far from singular; vectors of which the sign is free are
// squared, or multiplied with those that have the same sign.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

#include <limits>

namespace peal::test {
namespace {

using T = const Tensor&;

Tensor identity(T x) { return eye(x.size(-1), std::nullopt, x.dtype(), x.device()); }
// Far from singular, symmetric, and positive definite; and in PyTorch.
Tensor firm(T x) { return x * 0.5 + identity(x) * 3; }
Tensor symmetric(T x) { return x + x.transpose(-2, -1); }
Tensor positive(T x) { return matmul(x, x, false, true) * 0.25 + identity(x) * 2; }
std::string in_torch(std::string text, const Shape& shape) {
  const std::string eye = concat("torch.eye(", shape[-1], ")");
  const std::pair<std::string, std::string> words[] = {
      {"FIRM", "(x[0] * 0.5 + " + eye + " * 3)"},
      {"SYMMETRIC", "(x[0] + x[0].mT)"},
      {"POSITIVE", "(x[0] @ x[0].mT * 0.25 + " + eye + " * 2)"},
      {"L.", "torch.linalg."}};
  for (const auto& [word, expression] : words) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      text.replace(at, word.size(), expression);
      at += expression.size();
    }
  }
  return text;
}

class Table {
 public:
  template <class Op>
  void one(const std::string& torch, const Shape& x, Op op) {
    rows_.push_back(
        {in_torch(torch, x), [op](const Tensors& in, const Tensors&) { return op(in[0]); }, {{x}}});
  }
  template <class Op>
  void two(const std::string& torch, const Shape& x, const Shape& y, Op op) {
    rows_.push_back({in_torch(torch, x),
                     [op](const Tensors& in, const Tensors&) { return op(in[0], in[1]); },
                     {{x}, {y}}});
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

void add_equations(Table& table) {
  using namespace linalg;
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 3}, Shape{2, 4, 4}}) {
    table.one("L.inv(FIRM)", shape, [](T x) { return inv(firm(x)); });
    table.one("L.det(x[0])", shape, [](T x) { return det(x); });
    table.one("L.slogdet(FIRM)[1]", shape, [](T x) { return slogdet(firm(x)).logabsdet; });
    table.one("torch.logdet(FIRM)", shape, [](T x) { return logdet(firm(x)); });
    table.one("torch.inverse(FIRM)", shape, [](T x) { return inverse(firm(x)); });
    table.one("L.slogdet(x[0])[0] * x[0].sum()", shape,
              [](T x) { return slogdet(x).sign * sum(x); });
    table.one("L.cholesky(POSITIVE)", shape, [](T x) { return cholesky(positive(x)); });
  }
  table.one("L.cholesky(POSITIVE, upper=True)", {3, 3},
            [](T x) { return cholesky(positive(x), true); });
  for (const int n : {-2, -1, 1, 2, 5}) {
    table.one(concat("L.matrix_power(FIRM * 0.25, ", n, ")"), {3, 3},
              [n](T x) { return matrix_power(firm(x) * 0.25, n); });
  }
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3, 3}, {3, 2}},
                                                                 {{3, 3}, {3}},
                                                                 {{2, 3, 3}, {2, 3}},
                                                                 {{3, 3}, {2, 3, 1}},
                                                                 {{2, 3, 3}, {3, 2}}}) {
    table.two("L.solve(FIRM, x[1])", a, b, [](T x, T y) { return solve(firm(x), y); });
  }
  table.two("L.solve(FIRM, x[1], left=False)", {3, 3}, {2, 3},
            [](T x, T y) { return solve(firm(x), y, false); });
  // A matrix for each of the batch, where solve() has as many vectors.
  table.two("L.solve_triangular(FIRM, x[1], upper=True)", {3, 3, 3}, {3, 3},
            [](T x, T y) { return solve_triangular(firm(x), y, true); });
  for (const bool upper : {false, true}) {
    for (const bool left : {false, true}) {
      for (const bool unit : {false, true}) {
        const char* words[] = {"False", "True"};
        table.two(concat("L.solve_triangular(FIRM, x[1], upper=", words[upper],
                         ", left=", words[left], ", unitriangular=", words[unit], ")"),
                  {2, 3, 3}, {3, 3},
                  [=](T x, T y) { return solve_triangular(firm(x), y, upper, left, unit); });
      }
    }
  }
}

void add_factors(Table& table) {
  using namespace linalg;
  for (const Shape& shape : {Shape{3, 3}, Shape{5, 3}, Shape{2, 3, 4}}) {
    table.one("L.qr(x[0])[0]", shape, [](T x) { return qr(x).Q; });
    table.one("L.qr(x[0])[1]", shape, [](T x) { return qr(x).R; });
    table.one("(lambda q, r: q.square().sum((-2, -1)) + r.exp().sum((-2, -1)))(*L.qr(x[0]))", shape,
              [](T x) {
                const auto [q, r] = qr(x);
                return sum(square(q), {-2, -1}) + sum(exp(r), {-2, -1});
              });
    table.one("L.svdvals(x[0])", shape, [](T x) { return svdvals(x); });
    table.one("L.svd(x[0], full_matrices=False)[0].square()", shape,
              [](T x) { return square(svd(x, false).U); });
    table.one("L.svd(x[0], full_matrices=False)[2].square()", shape,
              [](T x) { return square(svd(x, false).Vh); });
    table.one(
        "(lambda u, s, v: (u * s.exp().unsqueeze(-2)) @ v)(*L.svd(x[0], full_matrices=False))",
        shape, [](T x) {
          const auto [u, s, vh] = svd(x, false);
          return matmul(u * unsqueeze(exp(s), -2), vh);
        });
    table.one("L.svd(x[0])[1]", shape, [](T x) { return svd(x).S; });
    table.one("L.pinv(x[0])", shape, [](T x) { return pinv(x); });
  }
  table.one("L.qr(x[0], mode='complete')[1]", {3, 4},
            [](T x) { return qr(x, QrMode::complete).R; });
  for (const Shape& shape : {Shape{1, 1}, Shape{4, 4}, Shape{2, 3, 3}}) {
    table.one("L.eigvalsh(SYMMETRIC)", shape, [](T x) { return eigvalsh(symmetric(x)); });
    table.one("L.eigh(SYMMETRIC, UPLO='U')[0]", shape,
              [](T x) { return eigh(symmetric(x), 'U').eigenvalues; });
    table.one("L.eigh(SYMMETRIC)[1].square()", shape,
              [](T x) { return square(eigh(symmetric(x)).eigenvectors); });
    table.one("(lambda w, v: (v * w.tanh().unsqueeze(-2)) @ v.mT)(*L.eigh(SYMMETRIC))", shape,
              [](T x) {
                const auto [w, v] = eigh(symmetric(x));
                return matmul(v * unsqueeze(tanh(w), -2), v, false, true);
              });
  }
  table.two("L.lstsq(x[0], x[1])[0]", {5, 3}, {5, 2},
            [](T x, T y) { return lstsq(x, y).solution; });
  table.two("L.lstsq(x[0], x[1])[0]", {2, 3, 4}, {2, 3, 1},
            [](T x, T y) { return lstsq(x, y).solution; });
}

void add_norms(Table& table) {
  using namespace linalg;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Shape shape{2, 3, 4};
  table.one("L.matrix_norm(x[0])", shape, [](T x) { return matrix_norm(x); });
  table.one("L.matrix_norm(x[0], 'nuc')", shape,
            [](T x) { return matrix_norm(x, MatrixNorm::nuc); });
  for (const double ord : {1., -1., 2., -2., infinity, -infinity}) {
    const std::string word =
        std::isinf(ord) ? concat("math.inf * ", ord > 0 ? 1 : -1) : concat(ord);
    table.one("L.matrix_norm(x[0], " + word + ")", shape,
              [ord](T x) { return matrix_norm(x, ord); });
    table.one("L.matrix_norm(x[0], " + word + ", dim=(2, 0), keepdim=True)", shape, [ord](T x) {
      return matrix_norm(x, ord, {2, 0}, true);
    });
  }
}

}  // namespace

std::vector<OpCase> linalg_cases() {
  Table table;
  add_equations(table);
  add_factors(table);
  add_norms(table);
  return table.take();
}

}  // namespace peal::test
