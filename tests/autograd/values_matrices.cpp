// SPDX-License-Identifier: Apache-2.0
// Products of integers, of no elements, and with numbers that do not count; linear algebra of what
// is singular, empty or not finite.
#include "value_rows.h"

#include <cmath>

namespace peal::test {

void add_matrices(Rows& rows) {
  for (const DType dtype : {DType::i32, DType::i64, DType::u8, DType::i8}) {
    const Tensor a = cast(arange(6), dtype).reshape({2, 3}), v = cast(arange(3), dtype);
    rows.add("x[0] @ x[1]", {a, v}, matmul(a, v));
    rows.add("torch.dot(x[0], x[0])", {v}, dot(v, v));
    rows.add("torch.outer(x[0], x[0])", {v}, outer(v, v));
    rows.add("torch.kron(x[0], x[1])", {a, v}, kron(a, v));
    rows.add("torch.einsum('ij,kj->ik', x[0], x[0])", {a}, einsum("ij,kj->ik", {a, a}));
    rows.add("torch.addmv(x[1][:2], x[0], x[1], beta=2, alpha=3)", {a, v},
             addmv(slice(v, 0, 0, 2), a, v, 2, 3));
  }
  const Tensor x = full({3, 0}, 1.), whole = cast(arange(3), DType::i64);
  rows.add("x[0] @ x[0].t()", {x}, matmul(x, x, false, true));
  rows.add("x[0].t() @ x[1]", {x, ones({3})}, matmul(t(x), ones({3})));
  rows.add("torch.einsum('ij,kj->ik', x[0], x[0])", {x}, einsum("ij,kj->ik", {x, x}));
  rows.add("torch.cdist(x[0], x[0])", {x}, cdist(x, x));
  rows.add("torch.outer(x[0], torch.ones(2))", {whole}, outer(whole, ones({2})));
  const Tensor nan = full({2, 2}, NAN), one = ones({2, 2});
  rows.add("torch.addmm(x[0], x[1], x[1], beta=0)", {nan, one}, addmm(nan, one, one, 0));
  rows.add("torch.addmm(x[0], x[1], x[1], alpha=0)", {one, one}, addmm(one, one, one, 1, 0));
  rows.add("torch.addmm(x[0], x[1], x[0], alpha=0)", {one, nan}, addmm(one, nan, one, 1, 0));
  const Tensor none_of = ones({2, 2}).set_requires_grad();
  sum(addmm(none_of, one, one, 0)).backward();
  rows.add("torch.zeros(2, 2)", {}, none_of.grad());
  // What an f16 does not hold, and what a bf16 rounds away.
  const Tensor large = full({1, 1, 4}, 200., DType::f16), nothing = zeros({1, 1, 1}, DType::f16);
  rows.add("torch.tensor([[[20000.]]], dtype=torch.float16)", {},
           baddbmm(nothing, large, transpose(large, 1, 2), 0, 0.125));
  const Tensor brief = cast(tensor({{1000., 1.}}), DType::bf16), column = ones({2, 1}, DType::bf16),
               owed = full({1}, -1000., DType::bf16);
  rows.add("torch.ones(1, 1).bfloat16()", {}, addmm(owed, brief, column));
  rows.add("torch.ones(1).bfloat16()", {}, addmv(owed, brief, select(column, 1, 0)));
  const Tensor up = full({1, 2}, 300., DType::f16),
               down = cast(tensor({{300., -300.}}), DType::f16);
  rows.add("torch.zeros(1).half()", {}, einsum("bi,bi->b", {up, down}));
  rows.add("torch.cdist(x[0], x[0], 0)", {one}, cdist(one, one, 0));
}

void add_linalg(Rows& rows) {
  const Tensor one = tensor({{1., 2.}, {2., 4.}}), three = tensor({{3., 1.}, {1., 3.}});
  const Tensor none = Tensor::zeros({0, 0}), nan = full({2, 2}, NAN), both = stack({one, three});
  using namespace linalg;
  rows.add("torch.linalg.matrix_rank(x[0])", {both}, matrix_rank(both));
  const Tensor steps = diag(tensor({3., 1., 0.1}));
  rows.add("torch.linalg.matrix_rank(x[0], atol=0.5)", {steps}, matrix_rank(steps, {.atol = 0.5}));
  rows.add("torch.linalg.matrix_rank(x[0], rtol=0.5)", {steps}, matrix_rank(steps, {.rtol = 0.5}));
  rows.add("torch.linalg.matrix_rank(x[0])", {none}, matrix_rank(none));
  const Tensor count = (cast(arange(9), DType::f64) + 1).reshape({3, 3});  // of rank 2
  rows.add("torch.linalg.matrix_rank(x[0], atol=0.)", {count}, matrix_rank(count, {.atol = 0}));
  rows.add("torch.linalg.pinv(x[0], atol=0.)", {count}, pinv(count, {.atol = 0}));
  const Tensor half = tensor({{2., NAN}, {1., 3.}});
  rows.add("torch.linalg.eigvalsh(x[0])", {half}, eigvalsh(half));
  rows.add("torch.linalg.eigvalsh(x[0].t(), UPLO='U')", {half}, eigvalsh(t(half), 'U'));
  const Tensor changed = three.clone(), first = matrix_power(changed, 1);
  fill_(first, 1);
  rows.add("x[0]", {three}, changed);
  rows.add("torch.linalg.pinv(x[0])", {both}, pinv(both));
  rows.add("torch.linalg.pinv(x[0], atol=0.5)", {steps}, pinv(steps, {.atol = 0.5}));
  rows.add("torch.linalg.matrix_power(x[0], 0)", {both}, matrix_power(both, 0));
  rows.add("torch.linalg.det(x[0])", {both}, det(both));
  rows.add("torch.linalg.slogdet(x[0])[0]", {both}, slogdet(both).sign + 0);
  rows.add("torch.linalg.slogdet(x[0])[1]", {both}, slogdet(both).logabsdet);
  const Tensor turned = stack({three, -one, tensor({{0., 1.}, {1., 0.}})});  // 8, 0 and -1
  rows.add("torch.logdet(x[0])", {turned}, logdet(turned));
  rows.add("torch.det(x[0])", {turned}, peal::det(turned));
  rows.add("torch.slogdet(x[0])[0]", {turned}, peal::slogdet(turned).sign + 0);
  rows.add("torch.matrix_power(x[0], 3)", {turned}, peal::matrix_power(turned, 3));
  rows.add("torch.inverse(x[0])", {three}, peal::inverse(three));
  rows.add("torch.linalg.svdvals(x[0])", {both}, svdvals(both));
  rows.add("torch.linalg.svdvals(x[0] * 1e30)", {three}, svdvals(three * 1e30));
  rows.add("torch.linalg.det(x[0])", {nan}, det(nan));
  rows.add("torch.linalg.inv(x[0])", {nan}, inv(nan));
  rows.add("torch.linalg.eigvalsh(x[0])", {nan}, eigvalsh(nan));
  for (const Tensor& empty : {none, Tensor::zeros({2, 0, 0})}) {
    rows.add("torch.linalg.det(x[0])", {empty}, det(empty));
    rows.add("torch.linalg.slogdet(x[0])[1]", {empty}, slogdet(empty).logabsdet);
    rows.add("torch.linalg.inv(x[0])", {empty}, inv(empty));
    rows.add("torch.linalg.cholesky(x[0])", {empty}, cholesky(empty));
    rows.add("torch.linalg.eigvalsh(x[0])", {empty}, eigvalsh(empty));
  }
  const Tensor same = ones({50, 50}, DType::f64);
  rows.add("torch.linalg.svdvals(x[0])", {same}, svdvals(same));
  const Tensor flat = Tensor::zeros({0, 3});
  rows.add("torch.linalg.svd(x[0])[2]", {flat}, svd(flat).Vh);
  rows.add("torch.linalg.qr(x[0])[1]", {flat}, qr(flat).R);
  rows.add("torch.linalg.inv(x[0])", {Tensor::zeros({0, 3, 3})}, inv(Tensor::zeros({0, 3, 3})));
  // What completes a basis, whose signs are free, where values are 0 too.
  const Tensor ranks = cast(arange(12), DType::f32).reshape({4, 3});
  for (const Tensor& a : {ranks, t(ranks), ranks * 0}) {
    const auto [u, s, vh] = svd(a);
    rows.add("torch.linalg.svdvals(x[0])", {a}, s);
    rows.add("torch.eye(x[0].shape[0])", {a}, matmul(u, u, false, true));
    rows.add("torch.eye(x[0].shape[1])", {a}, matmul(vh, vh, false, true));
    const auto [q, r] = qr(a, QrMode::complete);
    rows.add("x[0]", {a}, matmul(q, r));
    rows.add("torch.eye(x[0].shape[0])", {a}, matmul(q, q, false, true));
  }
  const Tensor a = sin(cast(arange(15), DType::f64)).reshape({5, 3}),
               b = cos(cast(arange(10), DType::f64)).reshape({5, 2});
  const Lstsq least = lstsq(a, b);
  rows.add("torch.linalg.lstsq(x[0], x[1], driver='gelsd')[1]", {a, b}, least.residuals);
  rows.add("torch.linalg.lstsq(x[0], x[1], driver='gelsd')[2]", {a, b}, least.rank);
  rows.add("torch.linalg.lstsq(x[0], x[1], driver='gelsd')[3]", {a, b}, least.singular_values);
  // Of a singular matrix PyTorch's gradient of the determinant is 0, which it is not.
  const Tensor wanting = one.clone().set_requires_grad();
  det(wanting).backward();
  rows.add("torch.tensor([[4., -2], [-2, 1]])", {}, wanting.grad());
}

}  // namespace peal::test
