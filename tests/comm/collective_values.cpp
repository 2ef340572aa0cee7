// SPDX-License-Identifier: Apache-2.0
#include "collective_values.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <type_traits>

namespace peal::comm::testing {

bool meaningful(DType dtype, ReduceOp op) {
  const bool bits = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  if (bits) return !is_floating(dtype);
  return dtype != DType::boolean || op != ReduceOp::avg;
}

double value(int rank, std::int64_t i, DType dtype) {
  const auto mixed = static_cast<std::int64_t>(
      (static_cast<std::uint64_t>(i) * 2654435761u + static_cast<std::uint64_t>(rank) * 40503u) >>
      4);
  if (dtype == DType::boolean) return static_cast<double>(mixed & 1);
  return static_cast<double>(mixed % 3 + 1);
}

Tensor filled(std::int64_t count, DType dtype, const std::function<double(std::int64_t)>& at) {
  Tensor out = Tensor::empty({count}, dtype, Device{});
  visit(dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        out.data<T>()[i] = T(static_cast<float>(at(i)));
      } else {
        out.data<T>()[i] = static_cast<T>(at(i));
      }
    }
  });
  return out.to(context().device);
}

// A copy on the CPU. Elements are asked for one by one, of a few tensors in turn, so the newest
// copies are kept.
Tensor on_cpu(const Tensor& tensor) {
  if (tensor.device().type == DeviceType::cpu) return tensor;
  struct Copy {
    Tensor of, copy;
    std::uint64_t version;
  };
  thread_local std::deque<Copy> copies;
  const std::uint64_t version = tensor.storage()->version();
  for (const Copy& made : copies) {
    if (made.of.same_as(tensor) && made.version == version) return made.copy;
  }
  if (copies.size() == 4) copies.pop_back();
  copies.push_front({tensor, tensor.to(Device{}), version});
  return copies.front().copy;
}

double element(const Tensor& where, std::int64_t i) {
  const Tensor tensor = on_cpu(where);
  return visit(tensor.dtype(), [&]<class T>() { return static_cast<double>(tensor.data<T>()[i]); });
}

double expected(int world, std::int64_t i, DType dtype, ReduceOp op) {
  double sum = 0, product = 1, least = 1e300, most = -1e300;
  std::int64_t band = -1, bor = 0, bxor = 0;
  for (int r = 0; r < world; ++r) {
    const double v = value(r, i, dtype);
    sum += v;
    product *= v;
    least = std::min(least, v);
    most = std::max(most, v);
    band &= static_cast<std::int64_t>(v);
    bor |= static_cast<std::int64_t>(v);
    bxor ^= static_cast<std::int64_t>(v);
  }
  switch (op) {
    case ReduceOp::sum:
      return dtype == DType::boolean ? most : sum;
    case ReduceOp::avg:
      return is_floating(dtype) ? sum / world : std::trunc(sum / world);
    case ReduceOp::prod:
      return dtype == DType::i8 ? static_cast<std::int8_t>(product) : product;
    case ReduceOp::min:
      return least;
    case ReduceOp::max:
      return most;
    case ReduceOp::band:
      return static_cast<double>(band);
    case ReduceOp::bor:
      return static_cast<double>(bor);
    default:
      return static_cast<double>(bxor);
  }
}

}  // namespace peal::comm::testing
