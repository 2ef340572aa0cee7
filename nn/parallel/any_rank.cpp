// SPDX-License-Identifier: Apache-2.0
#include <peal/nn/parallel/any_rank.h>

#include <cstdint>

namespace peal::nn {

Tensor packed_bits(const std::vector<bool>& list) {
  const Tensor bits =
      Tensor::zeros({static_cast<std::int64_t>(list.size() / 64 + 1)}, DType::i64, Device{});
  auto* const words = bits.data<std::int64_t>();
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i]) words[i / 64] |= std::int64_t{1} << i % 64;
  }
  return bits;
}

std::vector<bool> unpacked_bits(const Tensor& bits, std::size_t size) {
  const auto* const words = bits.data<std::int64_t>();
  std::vector<bool> list(size);
  for (std::size_t i = 0; i < size; ++i) list[i] = (words[i / 64] >> i % 64 & 1) != 0;
  return list;
}

std::vector<bool> any_rank(const comm::ProcessGroup& group, const std::vector<bool>& mine,
                           const comm::Label& label) {
  const Tensor bits = packed_bits(mine);
  group.all_reduce(bits, comm::ReduceOp::bor, label).wait();
  return unpacked_bits(bits, mine.size());
}

}  // namespace peal::nn
