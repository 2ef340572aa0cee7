// SPDX-License-Identifier: Apache-2.0
// Values: what ranks put into their buffers, and what their reduction is. Sums and products of them
// are exact in any order, in every type, so that a result is right or wrong and nothing between;
// the average alone is divided, and may be two units in the last place off. Every filling of the
// same buffer has other values: what a call left out shows. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/dtype.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace peal::bench {

class Values {
 public:
  Values(DType dtype, comm::ReduceOp op, int ranks);

  // Writes `count` elements: those from `first` on of what `rank` gives in filling number
  // `filling`.
  void write(std::byte* to, int rank, std::int64_t first, std::int64_t count, int filling);
  // How many elements are something else than that (rank: Expected::reduction, than the reduction).
  std::int64_t wrong(const std::byte* got, int rank, std::int64_t first, std::int64_t count,
                     int filling);

 private:
  // Of a prime length, so that what is moved by a round number of elements is other elements.
  static constexpr std::int64_t period = 8191;
  using Table = std::vector<std::byte>;

  double value(int rank, std::int64_t i) const;
  double reduced(std::int64_t i) const;
  const Table& table(int rank);
  template <class F>
  void in_pieces(std::int64_t first, std::int64_t count, int filling, F f) const;
  std::int64_t count_wrong(const std::byte* got, const std::byte* wanted, std::int64_t count) const;

  DType dtype_;
  comm::ReduceOp op_;
  int ranks_;
  std::int64_t size_;  // of an element
  double most_;        // that a sum may be
  std::map<int, Table> tables_;
};

}  // namespace peal::bench
