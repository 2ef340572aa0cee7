// SPDX-License-Identifier: Apache-2.0
// Choosing and writing of integers and masks, and what gives places.
#include "value_rows.h"

#include <cmath>

namespace peal::test {
namespace {

Tensor integers(const std::vector<std::int64_t>& values, const Shape& shape) {
  return Tensor::from(values, shape);
}

}  // namespace

void add_choosing(Rows& rows) {
  const Tensor x = integers({3, 0, -1, 0, 5, 2, 0, 0, 7, 1, 0, 4}, {3, 4});
  const Tensor index = integers({2, 0, 2, 1}, {4}), cells = integers({1, 0, 2, 2, 0, 1}, {2, 3});
  for (const DType dtype : {DType::i64, DType::f32, DType::boolean, DType::i8}) {
    const Tensor of = cast(x, dtype);
    rows.add("x[0].nonzero()", {of}, nonzero(of));
    rows.add("torch.where(x[0])[1]", {of}, where(of)[1]);
    rows.add("x[0].reshape(1, 2, 2, 3).nonzero()", {of}, nonzero(of.reshape({1, 2, 2, 3})));
    rows.add("x[0].masked_select(x[0] != 0)", {of}, masked_select(of, of != 0));
    rows.add("x[0].masked_fill(x[0] == 0, 1)", {of}, masked_fill(of, of == 0, 1));
    rows.add("x[0].masked_scatter(x[0] != 0, x[0].flip(0))", {of},
             masked_scatter(of, of != 0, flip(of, 0)));
    rows.add("x[0].scatter(0, x[1], x[0][:, 1:])", {of, cells},
             scatter(of, 0, cells, slice(of, 1, 1)));
    rows.add("x[0].scatter(0, x[1], 1)", {of, cells}, scatter(of, 0, cells, 1));
    rows.add("x[0].gather(1, x[1])", {of, cells}, gather(of, 1, cells));
    rows.add("x[0].take(x[1])", {of, cells}, take(of, cells));
    rows.add("x[0].index_copy(1, x[1][:2], x[0][:, 2:])", {of, index},
             index_copy(of, 1, index.rows(0, 2), slice(of, 1, 2)));
    rows.add("x[0].index_fill(1, x[1], 0)", {of, index}, index_fill(of, 1, index, 0));
    rows.add("x[0].repeat(2, 2)", {of}, repeat(of, {2, 2}));
    rows.add("x[0].expand(2, 3, 4)", {of}, expand(of, {2, 3, 4}));
    rows.add("x[0].roll(1).flip(1)", {of}, flip(roll(of, 1), 1));
    rows.add("x[0].tril(1)", {of}, tril(of, 1));
    rows.add("x[0].rot90()", {of}, rot90(of));
    rows.add("torch.block_diag(x[0], x[0][0])", {of}, block_diag({of, of[0]}));
    rows.add("x[0].clone().fill_diagonal_(1)", {of}, of.clone().fill_diagonal_(1));
    rows.add("x[0].diagonal(1)", {of}, diagonal(of, 1));
    rows.add("x[0][0].diag_embed(-1)", {of}, diag_embed(of[0], -1));
    if (dtype == DType::boolean) continue;
    rows.add("torch.cross(x[0], x[0].flip(1), dim=0)", {of}, cross(of, flip(of, 1)));
    rows.add("x[0].clamp_min(2)", {of}, clamp_min(of, 2));
    rows.add("x[0].clamp_max(2)", {of}, clamp_max(of, 2));
    rows.add("x[0].clamp_min(2.5)", {of}, clamp_min(of, 2.5));
    rows.add("x[0].clamp_max(-math.inf)", {of}, clamp_max(of, -INFINITY));
    rows.add("x[0].clamp_min(x[0].flip(0) * .5)", {of}, clamp_min(of, flip(of, 0) * .5));
    rows.add("x[0].clamp_max(x[0][0])", {of}, clamp_max(of, of[0]));
    rows.add("x[0].scatter_add(0, x[1], x[0][:, 1:])", {of, cells},
             scatter_add(of, 0, cells, slice(of, 1, 1)));
    rows.add("x[0].index_add(0, x[1], x[0][[0, 1, 2, 0]], alpha=2)", {of, index},
             index_add(of, 0, index, index_select(of, 0, integers({0, 1, 2, 0}, {4})), 2));
    struct Way {
      const char* name;
      ScatterReduce reduce;
    };
    for (const Way& way : {Way{"sum", ScatterReduce::sum}, Way{"prod", ScatterReduce::prod},
                           Way{"amax", ScatterReduce::amax}, Way{"amin", ScatterReduce::amin}}) {
      for (const bool include : {true, false}) {
        rows.add(concat("x[0].scatter_reduce(0, x[1], x[0][:, 1:], '", way.name,
                        "', include_self=", include ? "True)" : "False)"),
                 {of, cells}, scatter_reduce(of, 0, cells, slice(of, 1, 1), way.reduce, include));
      }
    }
  }
  const Tensor seven = cast(x, DType::f32), none = Tensor::zeros({0, 3});
  rows.add("x[0].float().clamp_min(math.nan)", {x}, clamp_min(seven, NAN));
  rows.add("x[0].bool().clamp_min(1)", {x}, clamp_min(x != 0, 1));
  const Tensor large = integers({9007199254740993, 5, -9007199254740993}, {3});
  rows.add("x[0].clamp_min(9007199254740993)", {large}, clamp_min(large, 9007199254740993));
  rows.add("x[0].clamp_max(-9007199254740993)", {large}, clamp_max(large, -9007199254740993));
  rows.add("torch.block_diag()", {}, block_diag({}));
  rows.add("torch.block_diag(x[0], x[1], x[0][0])", {x, none}, block_diag({x, none, x[0]}));
  rows.add("torch.block_diag(x[0], x[1], torch.zeros(0))", {x, seven},
           block_diag({x, seven, Tensor::zeros({0})}));
  rows.add("torch.block_diag(x[0], x[1][0, 0].double())", {seven, x},
           block_diag({seven, cast(x, DType::f64)[0][0]}));
  rows.add("torch.block_diag(x[0], x[1][0, 0])", {x, seven}, block_diag({x, seven[0][0]}));
  rows.add("x[0].rot90(1, (1, 0))", {none}, rot90(none, 1, {1, 0}));
  rows.add("x[0].clone().fill_diagonal_(5)", {none}, none.clone().fill_diagonal_(5));
  rows.add("torch.linalg.cross(x[0], x[0])", {none}, linalg::cross(none, none));
  for (const std::int64_t rows_of : {1, 3, 4, 5, 8, 9}) {
    const Tensor tall = Tensor::zeros({rows_of, 3}, DType::i64);
    rows.add("x[0].clone().fill_diagonal_(5, True)", {tall}, tall.clone().fill_diagonal_(5, true));
    rows.add("x[0].clone().fill_diagonal_(5)", {tall}, tall.clone().fill_diagonal_(5));
  }
  rows.add("x[0].masked_fill(x[0] == 0, 1.75)", {x}, masked_fill(x, x == 0, 1.75));
  rows.add("torch.tensor(2.).nonzero()", {}, nonzero(full({}, 2.)));
  rows.add("torch.tensor(0).nonzero()", {}, nonzero(Tensor::scalar(0)));
  rows.add("torch.where(torch.tensor(True))[0]", {}, where(Tensor::scalar(true))[0]);
  rows.add("F.one_hot(x[0])", {cells}, one_hot(cells));
  rows.add("F.one_hot(x[0], 5)", {cells}, one_hot(cells, 5));
  rows.add("torch.tril_indices(3, 4, 1)", {}, tril_indices(3, 4, 1));
  rows.add("torch.triu_indices(4, 3, -1)", {}, triu_indices(4, 3, -1));
  rows.add("torch.zeros(0, 3).nonzero()", {}, nonzero(Tensor::zeros({0, 3})));
}

}  // namespace peal::test
