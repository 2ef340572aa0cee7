// SPDX-License-Identifier: Apache-2.0
// Products of integers, of no elements, and with numbers that do not count.
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
  const Tensor x = full({3, 0}, 1), whole = cast(arange(3), DType::i64);
  rows.add("x[0] @ x[0].t()", {x}, matmul(x, x, false, true));
  rows.add("x[0].t() @ x[1]", {x, ones({3})}, matmul(t(x), ones({3})));
  rows.add("torch.einsum('ij,kj->ik', x[0], x[0])", {x}, einsum("ij,kj->ik", {x, x}));
  rows.add("torch.cdist(x[0], x[0])", {x}, cdist(x, x));
  rows.add("torch.outer(x[0], torch.ones(2))", {whole}, outer(whole, ones({2})));
  const Tensor nan = full({2, 2}, NAN), one = ones({2, 2});
  rows.add("torch.addmm(x[0], x[1], x[1], beta=0)", {nan, one}, addmm(nan, one, one, 0));
  rows.add("torch.addmm(x[0], x[1], x[1], alpha=0)", {one, one}, addmm(one, one, one, 1, 0));
  rows.add("torch.cdist(x[0], x[0], 0)", {one}, cdist(one, one, 0));
}

}  // namespace peal::test
