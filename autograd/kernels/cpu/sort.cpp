// SPDX-License-Identifier: Apache-2.0
// Sorting of rows, and search in sorted ones. Threads split the rows.
#include <peal/autograd/kernels/cpu/parallel.h>
#include <peal/autograd/kernels/cpu/table.h>
#include <peal/autograd/kernels/order.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::cpu {
namespace {

// What has at most 32 bits is sorted as one word of its key and, below it, its place: no two words
// are equal, so any sort is a stable one, and long rows go by their keys' digits.
using Words = std::vector<std::uint64_t>;

template <class C>
constexpr bool has_short_key = sizeof(C) <= 4 || std::is_same_v<C, std::int64_t>;

// In the order of x; least: of i64, the smallest of the row.
template <class C>
std::uint32_t key_of(C x, C least) {
  if constexpr (std::is_same_v<C, float>) {
    if (is_nan(x)) return std::numeric_limits<std::uint32_t>::max();
    const auto bits = std::bit_cast<std::uint32_t>(x == 0 ? 0.0f : x);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  } else {
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(x) -
                                      static_cast<std::uint64_t>(least));
  }
}

// By digits of 11 bits from the lowest on (LSD radix sort), of keys of `bits` bits.
void sort_by_digits(Words& words, Words& other, int bits) {
  constexpr int digit = 11, most = 1 << digit;
  other.resize(words.size());
  for (int shift = 32; shift < 32 + bits; shift += digit) {
    std::array<std::uint32_t, most> places{};
    const auto digit_of = [shift](std::uint64_t word) { return (word >> shift) & (most - 1); };
    for (const std::uint64_t word : words) ++places[digit_of(word)];
    std::uint32_t before = 0;
    for (std::uint32_t& place : places) before += std::exchange(place, before);
    for (const std::uint64_t word : words) other[places[digit_of(word)]++] = word;
    words.swap(other);
  }
}

// The first k words of word(0) to word(n-1), in order, k much smaller than n: most are only
// compared with the k-th of those before.
template <class Word>
void first_words(Words& words, std::int64_t n, std::int64_t k, Word&& word) {
  const auto wanted = static_cast<std::size_t>(k);
  words.clear();
  std::uint64_t bound = std::numeric_limits<std::uint64_t>::max();
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t next = word(i);
    if (next > bound) continue;
    words.push_back(next);
    if (words.size() < 2 * wanted + 64) continue;
    std::nth_element(words.begin(), words.begin() + (k - 1), words.end());
    words.resize(wanted);
    bound = words.back();
  }
  std::sort(words.begin(), words.end());
}

// All of them, in order.
template <class Word>
void all_words(Words& words, Words& scratch, std::int64_t n, Word&& word) {
  words.resize(static_cast<std::size_t>(n));
  std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max(), largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint64_t next = words[static_cast<std::size_t>(i)] = word(i);
    smallest = std::min(smallest, next);
    largest = std::max(largest, next);
  }
  if (n < 512) return std::sort(words.begin(), words.end());
  smallest = smallest >> 32 << 32;
  for (std::uint64_t& each : words) each -= smallest;
  sort_by_digits(words, scratch, std::bit_width((largest - smallest) >> 32));
}

// False where the keys do not fit.
template <class T>
bool sort_as_words(std::int64_t* indices, const T* x, std::int64_t n, std::int64_t k,
                   bool descending, Words& words, Words& scratch) {
  using C = functor::computed<T>;
  C least{};
  if constexpr (!std::is_same_v<C, float>) {
    const auto [low, high] = std::minmax_element(x, x + n);
    least = *low;
    const std::uint64_t range =
        static_cast<std::uint64_t>(*high) - static_cast<std::uint64_t>(least);
    if (range > std::numeric_limits<std::uint32_t>::max()) return false;
  }
  if (n > std::numeric_limits<std::uint32_t>::max()) return false;
  const std::uint32_t turned = descending ? std::numeric_limits<std::uint32_t>::max() : 0;
  const auto word = [x, least, turned](std::int64_t i) {
    const std::uint32_t key = key_of(static_cast<C>(x[i]), least) ^ turned;
    return std::uint64_t{key} << 32 | static_cast<std::uint32_t>(i);
  };
  if (k <= n / 16) {
    first_words(words, n, k, word);
  } else {
    all_words(words, scratch, n, word);
  }
  for (std::int64_t i = 0; i < k; ++i) {
    indices[i] = static_cast<std::uint32_t>(words[static_cast<std::size_t>(i)]);
  }
  return true;
}

// An element beside where it was: a sort moves both, and reads no other memory.
template <class C>
struct Keyed {
  C key;
  std::int64_t place;
};

template <class T>
void sort_as_pairs(std::int64_t* indices, const T* x, std::int64_t n, std::int64_t k,
                   bool descending) {
  using C = functor::computed<T>;
  std::vector<Keyed<C>> row(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    row[static_cast<std::size_t>(i)] = {static_cast<C>(x[i]), i};
  }
  const auto before = [descending](const Keyed<C>& a, const Keyed<C>& b) {
    if (comes_before(a.key, b.key, descending)) return true;
    return !comes_before(b.key, a.key, descending) && a.place < b.place;
  };
  const auto first = row.begin() + static_cast<std::ptrdiff_t>(k);
  if (k < n) std::nth_element(row.begin(), first, row.end(), before);
  std::sort(row.begin(), first, before);
  for (std::int64_t i = 0; i < k; ++i) indices[i] = row[static_cast<std::size_t>(i)].place;
}

template <class T>
void sort_rows(T* values, std::int64_t* indices, const T* x, std::int64_t rows, std::int64_t n,
               std::int64_t k, bool descending) {
  if (k == 0) return;
  Words words, scratch;
  for (std::int64_t row = 0; row < rows; ++row, values += k, indices += k, x += n) {
    bool sorted = false;
    if constexpr (has_short_key<functor::computed<T>>) {
      sorted = sort_as_words(indices, x, n, k, descending, words, scratch);
    }
    if (!sorted) sort_as_pairs(indices, x, n, k, descending);
    for (std::int64_t i = 0; i < k; ++i) values[i] = x[indices[i]];
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
      sort_rows(to + begin * k, at + begin * k, from + begin * n, end - begin, n, k, descending);
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
