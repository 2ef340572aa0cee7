// SPDX-License-Identifier: Apache-2.0
// Products of vectors, matrices and batches; sums over dimensions by name; distances of all pairs.
#include <peal/autograd/ops/ops.h>

#include "op_cases.h"

namespace peal::test {
namespace {

class Table {
 public:
  template <class Op>
  void one(const std::string& torch, const Shape& x, Op op) {
    rows_.push_back({torch, [op](const Tensors& in, const Tensors&) { return op(in[0]); }, {{x}}});
  }
  template <class Op>
  void two(const std::string& torch, const Shape& x, const Shape& y, Op op) {
    rows_.push_back(
        {torch, [op](const Tensors& in, const Tensors&) { return op(in[0], in[1]); }, {{x}, {y}}});
  }
  template <class Op>
  void three(const std::string& torch, const Shape& x, const Shape& y, const Shape& z, Op op) {
    rows_.push_back({torch,
                     [op](const Tensors& in, const Tensors&) { return op(in[0], in[1], in[2]); },
                     {{x}, {y}, {z}}});
  }
  void sum(const std::string& equation, const std::vector<Shape>& shapes) {
    std::vector<Input> inputs;
    for (const Shape& shape : shapes) inputs.push_back({shape});
    rows_.push_back({"torch.einsum('" + equation + "', *x)",
                     [equation](const Tensors& x, const Tensors&) { return einsum(equation, x); },
                     inputs});
  }
  std::vector<OpCase> take() { return std::move(rows_); }

 private:
  std::vector<OpCase> rows_;
};

using T = const Tensor&;

void add_products(Table& table) {
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{5}, {5}},
                                                                 {{3}, {3, 4}},
                                                                 {{2, 3}, {3}},
                                                                 {{3}, {2, 3, 4}},
                                                                 {{2, 5, 3}, {3}},
                                                                 {{2, 1, 3}, {3, 4}},
                                                                 {{3, 4}, {2, 4, 3}},
                                                                 {{2, 1, 3, 4}, {3, 4, 2}}}) {
    table.two("x[0] @ x[1]", a, b, [](T x, T y) { return matmul(x, y); });
  }
  table.two("x[0] @ x[1].t()", {2, 3, 4}, {5, 4},
            [](T x, T y) { return matmul(x, y, false, true); });
  table.two("x[0].mT @ x[1]", {2, 4, 3}, {4, 5}, [](T x, T y) { return matmul(x, y, true); });
  table.two("x[0] @ x[1].mT", {4}, {2, 3, 4}, [](T x, T y) { return matmul(x, y, false, true); });
  table.two("torch.mm(x[0], x[1])", {3, 5}, {5, 2}, [](T x, T y) { return mm(x, y); });
  table.two("torch.bmm(x[0], x[1])", {2, 3, 5}, {2, 5, 2}, [](T x, T y) { return bmm(x, y); });
  table.two("torch.mv(x[0], x[1])", {3, 5}, {5}, [](T x, T y) { return mv(x, y); });
  table.two("torch.dot(x[0], x[1])", {7}, {7}, [](T x, T y) { return dot(x, y); });
  table.two("torch.outer(x[0], x[1])", {3}, {5}, [](T x, T y) { return outer(x, y); });
  table.two("torch.kron(x[0], x[1])", {2, 3}, {3, 1}, [](T x, T y) { return kron(x, y); });
  table.two("torch.kron(x[0], x[1])", {2, 1, 3}, {2}, [](T x, T y) { return kron(x, y); });
  table.two("torch.cross(x[0], x[1], dim=1)", {2, 3, 4}, {2, 3, 4},
            [](T x, T y) { return cross(x, y, 1); });
  table.two("torch.cross(x[0], x[1], dim=-1)", {1, 3}, {4, 3},
            [](T x, T y) { return cross(x, y, -1); });
  table.two("torch.linalg.cross(x[0], x[1])", {2, 1, 3}, {1, 3, 3},
            [](T x, T y) { return linalg::cross(x, y); });
  table.two("torch.linalg.cross(x[0], x[1], dim=0)", {3, 2}, {3, 2},
            [](T x, T y) { return linalg::cross(x, y, 0); });
  table.one("x[0].trace()", {3, 5}, [](T x) { return trace(x); });
  table.three("torch.addmm(x[0], x[1], x[2])", {4}, {3, 5}, {5, 4},
              [](T x, T a, T b) { return addmm(x, a, b); });
  table.three("torch.addmm(x[0], x[1], x[2], beta=0.5, alpha=-2)", {3, 1}, {3, 5}, {5, 4},
              [](T x, T a, T b) { return addmm(x, a, b, 0.5, -2); });
  table.three("torch.addmv(x[0], x[1], x[2], beta=-1, alpha=0.5)", {3}, {3, 5}, {5},
              [](T x, T a, T b) { return addmv(x, a, b, -1, 0.5); });
  table.three("torch.baddbmm(x[0], x[1], x[2], beta=2)", {2, 1, 4}, {2, 3, 5}, {2, 5, 4},
              [](T x, T a, T b) { return baddbmm(x, a, b, 2); });
}

void add_forms(Table& table) {
  for (const Shape& front : {Shape{}, Shape{4}, Shape{2, 3}}) {
    Shape a = front, b = front;
    a.push_back(5);
    b.push_back(3);
    table.three("F.bilinear(x[0], x[1], x[2])", a, b, {2, 5, 3},
                [](T x, T y, T w) { return bilinear(x, y, w); });
    table.three("F.bilinear(x[0], x[1], x[2], x[2].sum((1, 2)))", a, b, {2, 5, 3},
                [](T x, T y, T w) {
                  return bilinear(x, y, w, sum(w, {1, 2}));
                });
  }
}

void add_sums(Table& table) {
  table.sum("ij,kj->ik", {{3, 5}, {2, 5}});
  table.sum("ij,jk", {{3, 5}, {5, 2}});
  table.sum("ji,jk->ki", {{5, 3}, {5, 2}});
  table.sum("bij, bjk -> bik", {{2, 3, 4}, {2, 4, 3}});
  table.sum("bij,jk->bik", {{2, 3, 4}, {4, 3}});
  table.sum("ij,bjk->bik", {{3, 4}, {2, 4, 3}});
  table.sum("ii", {{4, 4}});
  table.sum("ii->i", {{4, 4}});
  table.sum("iij,jj->ij", {{3, 3, 2}, {2, 2}});
  table.sum("iii->i", {{3, 3, 3}});
  table.sum("ij->ji", {{3, 5}});
  table.sum("ij->", {{3, 5}});
  table.sum("i,j->ij", {{3}, {5}});
  table.sum("i,i->", {{5}, {5}});
  table.sum("bi,bi->b", {{3, 5}, {3, 5}});
  table.sum("bi,bi->bi", {{3, 5}, {3, 5}});
  table.sum("ij,k->k", {{3, 5}, {4}});
  table.sum("bhqd,bhkd->bhqk", {{2, 2, 3, 4}, {2, 2, 5, 4}});
  table.sum("bqhd,bkhd->bhqk", {{2, 3, 2, 4}, {2, 5, 2, 4}});
  table.sum("...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}});
  table.sum("...i,i", {{4, 2, 3}, {3}});
  table.sum("i...,j", {{3, 2}, {4}});
  table.sum("...ij->ij", {{4, 2, 3}});
  table.sum("...,...->...", {{4, 1}, {1, 3}});
  table.sum("ij,jk", {{4, 1}, {3, 2}});
  table.sum("ij,jk->ijk", {{4, 3}, {1, 2}});
  table.sum("bA,ba", {{3, 1}, {3, 2}});
  table.sum("bn,anm,bm->ba", {{2, 3}, {4, 3, 5}, {2, 5}});
  table.sum("i,ij,j,->", {{3}, {3, 4}, {4}, {}});
  table.sum("ijk,jil->kl", {{2, 3, 4}, {3, 2, 5}});
  table.two("torch.tensordot(x[0], x[1], 2)", {2, 3, 4}, {3, 4, 5},
            [](T x, T y) { return tensordot(x, y); });
  table.two("torch.tensordot(x[0], x[1], 0)", {2, 3}, {4},
            [](T x, T y) { return tensordot(x, y, 0); });
  table.two("torch.tensordot(x[0], x[1], ([0, -1], [2, 0]))", {2, 3, 4}, {4, 5, 2}, [](T x, T y) {
    return tensordot(x, y, {0, -1}, {2, 0});
  });
  table.two("torch.tensordot(x[0], x[1], 1)", {2, 1}, {3, 4},
            [](T x, T y) { return tensordot(x, y, 1); });
}

void add_distances(Table& table) {
  for (const double p : {1., 2., 3., 2.5, 1.5}) {
    table.two(concat("torch.cdist(x[0], x[1], ", p, ")"), {4, 3}, {5, 3},
              [p](T x, T y) { return cdist(x, y, p); });
  }
  for (const double p : {1., 2., 3., 1.5}) {
    table.one(concat("F.pdist(x[0], ", p, ")"), {5, 3}, [p](T x) { return pdist(x, p); });
  }
  table.one("F.pdist(x[0] * 3)", {4, 2}, [](T x) { return pdist(x * 3); });
  table.one("F.pdist(x[0])", {45, 67}, [](T x) { return pdist(x); });
  table.one("F.pdist(x[0], math.inf)", {2, 3},
            [](T x) { return pdist(x, std::numeric_limits<double>::infinity()); });
  table.one("F.pdist(x[0], 0) + x[0].sum()", {4, 3}, [](T x) { return pdist(x, 0) + sum(x); });
  table.two("torch.cdist(x[0], x[1], math.inf)", {2, 4, 3}, {5, 3},
            [](T x, T y) { return cdist(x, y, std::numeric_limits<double>::infinity()); });
  table.two("torch.cdist(x[0], x[1], 0) + x[0].sum() + x[1].sum()", {4, 3}, {5, 3},
            [](T x, T y) { return cdist(x, y, 0) + sum(x) + sum(y); });
  table.two("torch.cdist(x[0], x[1])", {26, 3}, {2, 4, 3}, [](T x, T y) { return cdist(x, y); });
}

}  // namespace

std::vector<OpCase> product_cases() {
  Table table;
  add_products(table);
  add_forms(table);
  add_sums(table);
  add_distances(table);
  return table.take();
}

}  // namespace peal::test
