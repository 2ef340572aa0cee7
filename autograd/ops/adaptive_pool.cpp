// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>
#include <peal/autograd/ops/adaptive_pool.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/averaged.h>
#include <peal/autograd/ops/check.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/ops/convolved.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/ops/index.h>
#include <peal/autograd/ops/strided.h>
#include <peal/autograd/ops/windows.h>

#include <algorithm>

namespace peal {
namespace {

// From lists of cells, which are not empty.
Cells evened(const std::vector<std::vector<std::int64_t>>& lists) {
  Cells cells{static_cast<std::int64_t>(lists.size()), 1, {}};
  for (const auto& list : lists) {
    cells.most = std::max(cells.most, static_cast<std::int64_t>(list.size()));
  }
  for (const auto& list : lists) {
    for (std::int64_t k = 0; k < cells.most; ++k) {
      cells.at.push_back(list[std::min(static_cast<std::size_t>(k), list.size() - 1)]);
    }
  }
  return cells;
}

Cells shares(std::int64_t size, std::int64_t count) {
  std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t at = i * size / count; at < ((i + 1) * size + count - 1) / count; ++at) {
      lists[static_cast<std::size_t>(i)].push_back(at);
    }
  }
  return evened(lists);
}

void check_adaptive(std::string_view op, const Tensor& x, int dims) {
  check_floating(op, x);
  bool right = x.dim() == dims + 2;
  for (int i = 2; right && i < dims + 2; ++i) right = x.size(i) > 0;
  PEAL_CHECK(right, op, ": expected [N, C] or [C] and ", dims, " sizes of at least 1, got shape ",
             x.shape());
}

// Of sizes that behave like a Pair.
template <class Sizes>
Extreme adaptive_max(std::string_view op, const Tensor& input, int dims, const Sizes& sizes) {
  const OpName name(op);
  return extremes_with_batch(input, dims, [&](const Tensor& x) {
    check_adaptive(op, x, dims);
    std::vector<Cells> cells;
    for (int d = 0; d < dims; ++d) {
      const std::int64_t size = sizes[static_cast<std::size_t>(d)];
      PEAL_CHECK(size >= 1, op, ": expected sizes of at least 1, got ", size);
      cells.push_back(shares(x.size(2 + d), size));
    }
    return largest_in_cells(x, cells);
  });
}

Tensor adaptive_mean(std::string_view op, const Tensor& x, Pair size) {
  return average(
      op, x,
      {x.size(0) * x.size(1), x.size(2), x.size(3), size[0], size[1], true, {}, {}, {}, true});
}

}  // namespace

Cells cells_inside(std::string_view op, std::int64_t size, std::int64_t windows,
                   const PoolWindows& pool) {
  std::vector<std::vector<std::int64_t>> lists(static_cast<std::size_t>(windows));
  for (std::int64_t i = 0; i < windows; ++i) {
    auto& list = lists[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < pool.kernel; ++k) {
      const std::int64_t at = i * pool.stride - pool.padding + k * pool.dilation;
      if (at >= 0 && at < size) list.push_back(at);
    }
    PEAL_CHECK(!list.empty(), op, ": no cell of window ", i, " lies in the ", size,
               " elements of its dimension");
  }
  return evened(lists);
}

Extreme largest_in_cells(const Tensor& x, const std::vector<Cells>& cells) {
  Shape result{x.size(0), x.size(1)};
  std::vector<std::int64_t> places = {0};  // of each window each cell, dimension by dimension
  std::int64_t windows = 1, most = 1, plane = 1;
  for (std::size_t d = 0; d < cells.size(); ++d) {
    const Cells& along = cells[d];
    const std::int64_t size = x.size(2 + static_cast<int>(d));
    std::vector<std::int64_t> next;
    for (std::int64_t w = 0; w < windows; ++w) {
      for (std::int64_t v = 0; v < along.windows; ++v) {
        for (std::int64_t c = 0; c < most; ++c) {
          for (std::int64_t k = 0; k < along.most; ++k) {
            next.push_back(places[static_cast<std::size_t>(w * most + c)] * size +
                           along.at[static_cast<std::size_t>(v * along.most + k)]);
          }
        }
      }
    }
    places = std::move(next);
    windows *= along.windows;
    most *= along.most;
    plane *= size;
    result.push_back(along.windows);
  }
  const std::int64_t n = x.size(0), c = x.size(1);
  const Tensor index = index_of_places(places, x.device());
  const Tensor seen = index_select(reshaped(x, {n, c, plane}), 2, index);
  const Extreme found = max(reshaped(seen, {n, c, windows, most}), 3);
  const Tensor row = arange(windows, DType::i64, x.device()) * most;
  return {reshaped(found.values, result), reshaped(take(index, found.indices + row), result)};
}

Tensor adaptive_avg_pool2d(const Tensor& input, Pair size) {
  constexpr std::string_view op = "adaptive_avg_pool2d";
  const OpName name(op);
  return with_batch(input, 2, [&](const Tensor& x) {
    check_images(op, x);
    PEAL_CHECK(size[0] >= 1 && size[1] >= 1, op, ": expected sizes of at least 1, got ", size[0],
               " x ", size[1]);
    return adaptive_mean(op, x, size);
  });
}

Tensor adaptive_avg_pool1d(const Tensor& input, std::int64_t size) {
  constexpr std::string_view op = "adaptive_avg_pool1d";
  const OpName name(op);
  return with_batch(input, 1, [&](const Tensor& x) {
    check_adaptive(op, x, 1);
    PEAL_CHECK(size >= 1, op, ": expected a size of at least 1, got ", size);
    return squeeze(adaptive_mean(op, unsqueeze(x, 2), {1, size}), 2);
  });
}

Tensor adaptive_avg_pool3d(const Tensor& input, Triple size) {
  constexpr std::string_view op = "adaptive_avg_pool3d";
  const OpName name(op);
  return with_batch(input, 3, [&](const Tensor& x) {
    check_adaptive(op, x, 3);
    PEAL_CHECK(size[0] >= 1 && size[1] >= 1 && size[2] >= 1, op,
               ": expected sizes of at least 1, got ", size[0], " x ", size[1], " x ", size[2]);
    const std::int64_t n = x.size(0), c = x.size(1), d = x.size(2), area = size[1] * size[2];
    const Tensor wide = cast(x, computed_in(x.dtype()));  // so that means of means round once
    const Tensor planes =
        adaptive_mean(op, reshaped(wide, {n, c * d, x.size(3), x.size(4)}), size.plane());
    const Tensor deep = adaptive_mean(op, reshaped(planes, {n, c, d, area}), {size[0], area});
    return cast(reshaped(deep, {n, c, size[0], size[1], size[2]}), x.dtype());
  });
}

Extreme adaptive_max_pool1d_with_indices(const Tensor& x, std::int64_t size) {
  return adaptive_max("adaptive_max_pool1d", x, 1, Single(size));
}
Extreme adaptive_max_pool2d_with_indices(const Tensor& x, Pair size) {
  return adaptive_max("adaptive_max_pool2d", x, 2, size);
}
Extreme adaptive_max_pool3d_with_indices(const Tensor& x, Triple size) {
  return adaptive_max("adaptive_max_pool3d", x, 3, size);
}
Tensor adaptive_max_pool1d(const Tensor& x, std::int64_t size) {
  return adaptive_max_pool1d_with_indices(x, size).values;
}
Tensor adaptive_max_pool2d(const Tensor& x, Pair size) {
  return adaptive_max_pool2d_with_indices(x, size).values;
}
Tensor adaptive_max_pool3d(const Tensor& x, Triple size) {
  return adaptive_max_pool3d_with_indices(x, size).values;
}

}  // namespace peal
