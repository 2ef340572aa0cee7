// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/perf/operation.h>
#include <peal/bench/perf/values.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace peal::bench {
namespace {

using comm::ReduceOp;

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The largest number up to which a type has all integers.
double most_exact(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return 256;
    case DType::f16:
      return 2048;
    case DType::i8:
      return 127;
    case DType::u8:
      return 255;
    default:
      return 1 << 24;
  }
}

template <class T>
T narrowed(double value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value));
  } else if constexpr (std::is_same_v<T, double>) {
    return value;
  } else {
    return T(static_cast<float>(value));
  }
}

// Of a value of the type about as large as `value`, from one to the next.
double unit_in_last_place(DType dtype, double value) {
  const int digits = dtype == DType::bf16  ? 8
                     : dtype == DType::f16 ? 11
                     : dtype == DType::f32 ? 24
                                           : 53;
  return value == 0 ? 0 : std::ldexp(1.0, std::ilogb(value) + 1 - digits);
}

}  // namespace

Values::Values(DType dtype, ReduceOp op, int ranks)
    : dtype_(dtype),
      op_(op),
      ranks_(ranks),
      size_(static_cast<std::int64_t>(size_of(dtype))),
      most_(most_exact(dtype)) {}

double Values::value(int rank, std::int64_t i) const {
  const auto n = static_cast<std::uint64_t>(ranks_);
  const std::uint64_t place = mixed(static_cast<std::uint64_t>(i));
  const std::uint64_t own = mixed(place + static_cast<std::uint64_t>(rank) * 40503u);
  const std::uint64_t turn = place + static_cast<std::uint64_t>(rank);
  if (op_ == ReduceOp::prod) return turn % n < 4 && own % 2 == 0 ? 2 : 1;  // 16 at most
  if (op_ != ReduceOp::sum && op_ != ReduceOp::avg) return static_cast<double>(own % 101);
  const auto most = static_cast<std::uint64_t>(most_);
  if (n <= most) return static_cast<double>(own % (std::min<std::uint64_t>(most / n, 1000) + 1));
  return turn % ((n + most - 1) / most) == 0 ? 1 : 0;  // some ranks' count
}

double Values::reduced(std::int64_t i) const {
  double all = value(0, i);
  for (int r = 1; r < ranks_; ++r) {
    const double next = value(r, i);
    if (op_ == ReduceOp::sum || op_ == ReduceOp::avg) all += next;
    if (op_ == ReduceOp::prod) all *= next;
    if (op_ == ReduceOp::min) all = std::min(all, next);
    if (op_ == ReduceOp::max) all = std::max(all, next);
  }
  if (op_ != ReduceOp::avg) return all;
  return is_floating(dtype_) ? all / ranks_ : std::trunc(all / ranks_);
}

const Values::Table& Values::table(int rank) {
  Table& made = tables_[rank];
  if (!made.empty()) return made;
  made.resize(static_cast<std::size_t>(period * size_));
  visit(dtype_, [&]<class T>() {
    for (std::int64_t i = 0; i < period; ++i) {
      const T element = narrowed<T>(rank == Expected::reduction ? reduced(i) : value(rank, i));
      std::memcpy(made.data() + i * size_, &element, sizeof element);
    }
  });
  return made;
}

// f(at, from, n): elements [at, at + n) are those of a table from `from` on.
template <class F>
void Values::in_pieces(std::int64_t first, std::int64_t count, int filling, F f) const {
  std::int64_t from = (first + std::int64_t{filling} * 1237) % period;
  for (std::int64_t at = 0; at < count;) {
    const std::int64_t n = std::min(count - at, period - from);
    f(at, from, n);
    at += n;
    from = 0;
  }
}

void Values::write(std::byte* to, int rank, std::int64_t first, std::int64_t count, int filling) {
  const Table& from_table = table(rank);
  in_pieces(first, count, filling, [&](std::int64_t at, std::int64_t from, std::int64_t n) {
    std::memcpy(to + at * size_, from_table.data() + from * size_,
                static_cast<std::size_t>(n * size_));
  });
}

std::int64_t Values::wrong(const std::byte* got, int rank, std::int64_t first, std::int64_t count,
                           int filling) {
  const Table& wanted = table(rank);
  std::int64_t bad = 0;
  in_pieces(first, count, filling, [&](std::int64_t at, std::int64_t from, std::int64_t n) {
    const std::byte *here = got + at * size_, *there = wanted.data() + from * size_;
    if (std::memcmp(here, there, static_cast<std::size_t>(n * size_)) != 0) {
      bad += count_wrong(here, there, n);
    }
  });
  return bad;
}

std::int64_t Values::count_wrong(const std::byte* got, const std::byte* wanted,
                                 std::int64_t count) const {
  const bool rounded = op_ == ReduceOp::avg && is_floating(dtype_);
  return visit(dtype_, [&]<class T>() {
    std::int64_t bad = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      T a, b;
      std::memcpy(&a, got + i * size_, sizeof a);
      std::memcpy(&b, wanted + i * size_, sizeof b);
      if (std::memcmp(&a, &b, sizeof a) == 0) continue;
      const auto x = static_cast<double>(a), y = static_cast<double>(b);
      const bool near = rounded && std::abs(x - y) <= 2 * unit_in_last_place(dtype_, y);
      if (!near) ++bad;
    }
    return bad;
  });
}

}  // namespace peal::bench
