// SPDX-License-Identifier: Apache-2.0
// Sorting of rows, and search in sorted ones. Threads split the rows.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/order.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace peal::cpu {
namespace {

// An element beside where it was: a sort moves both, and reads no other memory.
template <class C>
struct Keyed {
  C key;
  std::int64_t place;
};

template <class T>
void sort_row(T* values, std::int64_t* indices, const T* x, std::int64_t n, std::int64_t k,
              bool descending) {
  using C = functor::computed<T>;
  std::vector<Keyed<C>> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    row[static_cast<std::size_t>(i)] = {static_cast<C>(x[i]), i};
  }
  // With the place as the last word no two are equal, so any sort is a stable one.
  const auto before = [descending](const Keyed<C>& a, const Keyed<C>& b) {
    if (comes_before(a.key, b.key, descending)) return true;
    return !comes_before(b.key, a.key, descending) && a.place < b.place;
  };
  const auto first = row.begin() + static_cast<std::ptrdiff_t>(k);
  if (k < n) {
    std::nth_element(row.begin(), first, row.end(), before);
    std::sort(row.begin(), first, before);
  } else {
    std::sort(row.begin(), row.end(), before);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    indices[i] = row[static_cast<std::size_t>(i)].place;
    values[i] = x[indices[i]];
  }
}

}  // namespace

bool sort(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending) {
  const std::int64_t n = x.size(1), k = values.size(1);
  visit(x.dtype(), [&]<class T>() {
    const T* from = x.data<T>();
    T* to = values.data<T>();
    std::int64_t* at = indices.data<std::int64_t>();
    const std::int64_t levels = std::bit_width(static_cast<std::uint64_t>(n));
    parallel_for(x.size(0), n * levels, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        sort_row(to + row * k, at + row * k, from + row * n, n, k, descending);
      }
    });
  });
  return true;
}

bool search(const Tensor& out, const Tensor& sorted, const Tensor& x, bool right) {
  const std::int64_t size = sorted.size(-1), n = x.size(1);
  const std::int64_t step = sorted.dim() == 1 ? 0 : size;
  visit(x.dtype(), [&]<class T>() {
    const T *from = x.data<T>(), *rows = sorted.data<T>();
    std::int64_t* to = out.data<std::int64_t>();
    const std::int64_t levels = std::bit_width(static_cast<std::uint64_t>(size)) + 1;
    parallel_for(x.numel(), levels, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        to[i] = place_in_order(rows + i / n * step, size, from[i], right);
      }
    });
  });
  return true;
}

}  // namespace peal::cpu
