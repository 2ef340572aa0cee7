// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/op_name.h>
#include <peal/autograd/kernels/table.h>
#include <peal/autograd/ops/broadcast.h>
#include <peal/autograd/ops/chosen.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/index_write.h>
#include <peal/autograd/ops/permute.h>
#include <peal/autograd/ops/shape.h>
#include <peal/autograd/ops/strided.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace peal {
namespace {

using Offsets = std::vector<std::int64_t>;

// A part where tensors choose, brought to the form [what is chosen from, the rest] of which they
// choose rows.
struct Choice {
  std::vector<int> front;  // the part's dimensions in that order
  int chosen = 0;          // how many of them are chosen from
  Shape shape;             // of the indices together
  Offsets rows;            // which row each chooses
  std::int64_t count = 1;  // of rows to choose from
  Shape rest;
  int place = 0;  // where the indices' dimensions are in the result
};

Choice choice_of(const Shape& shape, const Tensors& picks) {
  Choice choice;
  std::vector<int> others;
  int before = -1;
  bool adjacent = true;
  for (int i = 0; i < shape.dim(); ++i) {
    const Tensor& pick = picks[static_cast<std::size_t>(i)];
    if (!pick.defined()) {
      others.push_back(i);
      choice.rest.push_back(shape[i]);
      continue;
    }
    adjacent = adjacent && (before < 0 || before == i - 1);
    if (before < 0) choice.place = i;
    before = i;
    choice.front.push_back(i);
    choice.count *= shape[i];
    choice.shape =
        choice.chosen++ == 0 ? pick.shape() : broadcast("x[...]", choice.shape, pick.shape());
  }
  if (!adjacent) choice.place = 0;
  choice.rows.assign(static_cast<std::size_t>(choice.shape.numel()), 0);
  for (const int dim : choice.front) {
    const Tensor pick = stretched_to("index", picks[static_cast<std::size_t>(dim)], choice.shape);
    const std::int64_t* at = pick.data<std::int64_t>();
    for (std::size_t i = 0; i < choice.rows.size(); ++i) {
      choice.rows[i] = choice.rows[i] * shape[dim] + at[i];
    }
  }
  choice.front.insert(choice.front.end(), others.begin(), others.end());
  return choice;
}

Shape joined_shape(const Shape& a, const Shape& b) {
  Shape all = a;
  for (const std::int64_t size : b) all.push_back(size);
  return all;
}

Tensor in_order(const Tensor& x, const std::vector<int>& order) {
  return std::is_sorted(order.begin(), order.end()) ? x : permute(x, order);
}

std::vector<int> inverse(const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  return back;
}

// Which dimension of [indices, rest] is which of the result, where the indices stand at their
// place.
std::vector<int> order_of_result(const Choice& choice) {
  std::vector<int> order;
  const int indices = choice.shape.dim();
  for (int i = 0; i < choice.place; ++i) order.push_back(indices + i);
  for (int i = 0; i < indices; ++i) order.push_back(i);
  for (int i = choice.place; i < choice.rest.dim(); ++i) order.push_back(indices + i);
  return order;
}

Tensor choosable_rows(const Tensor& part, const Choice& choice) {
  return reshaped(in_order(part, choice.front), joined_shape({choice.count}, choice.rest));
}

Tensor index_of(const Offsets& rows, Device device) {
  return Tensor::from(rows, {static_cast<std::int64_t>(rows.size())}, device);
}

// The values, stretched to what is chosen, as a row each of [indices, rest].
Tensor rows_of_values(const Tensor& values, const Choice& choice) {
  const std::vector<int> order = order_of_result(choice);
  const Shape there = joined_shape(choice.shape, choice.rest);
  Shape result;
  for (const int dim : order) result.push_back(there[dim]);
  const Tensor fit = in_order(stretched_to("index", values, result), inverse(order));
  return reshaped(fit, joined_shape({std::ssize(choice.rows)}, choice.rest));
}

// The rows that were chosen from, as the part that they are.
Tensor part_of_rows(const Tensor& rows, const Shape& part, const Choice& choice) {
  Shape permuted;
  for (const int dim : choice.front) permuted.push_back(part[dim]);
  return in_order(reshaped(rows, permuted), inverse(choice.front));
}

}  // namespace

Shape chosen_shape(const Shape& part, const Tensors& picks) {
  const Choice choice = choice_of(part, picks);
  const Shape there = joined_shape(choice.shape, choice.rest);
  Shape result;
  for (const int dim : order_of_result(choice)) result.push_back(there[dim]);
  return result;
}

Tensor chosen_from(const Tensor& part, const Tensors& picks) {
  const Choice choice = choice_of(part.shape(), picks);
  const Tensor rows =
      index_select(choosable_rows(part, choice), 0, index_of(choice.rows, part.device()));
  return in_order(reshaped(rows, joined_shape(choice.shape, choice.rest)), order_of_result(choice));
}

Tensor with_chosen(const Tensor& part, const Tensors& picks, const Tensor& values) {
  const OpName name("index_put");
  const Choice choice = choice_of(part.shape(), picks);
  if (choice.rows.empty()) return part;
  std::unordered_map<std::int64_t, std::int64_t> last;  // which value comes into each row
  for (std::size_t i = 0; i < choice.rows.size(); ++i) {
    last[choice.rows[i]] = static_cast<std::int64_t>(i);
  }
  Tensor given = rows_of_values(values, choice);
  Offsets rows = choice.rows;
  if (last.size() < rows.size()) {
    Offsets kept;
    rows.clear();
    for (std::size_t i = 0; i < choice.rows.size(); ++i) {
      if (last[choice.rows[i]] != static_cast<std::int64_t>(i)) continue;
      kept.push_back(static_cast<std::int64_t>(i));
      rows.push_back(choice.rows[i]);
    }
    given = index_select(given, 0, index_of(kept, part.device()));
  }
  const Tensor all =
      index_copy(choosable_rows(part, choice), 0, index_of(rows, part.device()), given);
  return part_of_rows(all, part.shape(), choice);
}

Tensor with_added(const Tensor& part, const Tensors& picks, const Tensor& values) {
  const OpName name("index_put");
  const Choice choice = choice_of(part.shape(), picks);
  if (choice.rows.empty()) return part;
  const Tensor all =
      index_add(choosable_rows(part, choice), 0, index_of(choice.rows, part.device()),
                rows_of_values(values, choice));
  return part_of_rows(all, part.shape(), choice);
}

void write_chosen(const Tensor& x, const Shape& part, const Steps& steps, std::int64_t at,
                  const Tensors& picks, const Tensor& values, bool accumulate) {
  const OpName name("index_put");
  const Choice choice = choice_of(part, picks);
  const Tensor given = rows_of_values(values, choice);
  if (given.numel() == 0) return;
  const auto write = [&](const Tensor& out, const Tensor& source, const Offsets& places) {
    const Tensor index = index_of(places, x.device());
    if (accumulate) {
      kernels(x.device()).index_add("index_put", x, out, source, index, 0);
    } else {
      kernels(x.device()).index_copy("index_put", x, out, source, index, 0);
    }
  };
  if (in_one_piece(part, steps) && std::is_sorted(choice.front.begin(), choice.front.end())) {
    return write(x.detach(joined_shape({choice.count}, choice.rest), at), given, choice.rows);
  }
  // Rows that do not lie in one piece: element by element.
  Offsets within{0};
  for (std::size_t i = static_cast<std::size_t>(choice.chosen); i < choice.front.size(); ++i) {
    const int dim = choice.front[i];
    Offsets longer;
    for (const std::int64_t before : within) {
      for (std::int64_t k = 0; k < part[dim]; ++k) {
        longer.push_back(before + k * steps[static_cast<std::size_t>(dim)]);
      }
    }
    within = std::move(longer);
  }
  Offsets places;
  places.reserve(choice.rows.size() * within.size());
  for (std::int64_t row : choice.rows) {
    std::int64_t begin = at;
    for (int i = choice.chosen; i-- > 0;) {
      const int dim = choice.front[static_cast<std::size_t>(i)];
      begin += row % part[dim] * steps[static_cast<std::size_t>(dim)];
      row /= part[dim];
    }
    for (const std::int64_t offset : within) places.push_back(begin + offset);
  }
  write(x.detach({x.numel()}), reshaped(given, {given.numel()}), places);
}

Tensor fitted(const Tensor& values, const Shape& shape) {
  Shape own;
  int extra = values.dim() - shape.dim();
  for (const std::int64_t size : values.shape()) {
    if (extra-- > 0 && size == 1) continue;
    own.push_back(size);
  }
  bool fits = own.dim() <= shape.dim();
  for (int i = 1; fits && i <= own.dim(); ++i) fits = own[-i] == 1 || own[-i] == shape[-i];
  PEAL_CHECK(fits, "x[...] = y: a part of shape ", shape, " cannot take values of shape ",
             values.shape());
  return own == values.shape() ? values : reshaped(values, own);
}

}  // namespace peal
