// SPDX-License-Identifier: Apache-2.0
// What NCCL reduces, on the host: floating types as double, integers as 64 bits that wrap.
#include "nccl_world.h"

#include <peal/autograd/core/half.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cuda_host::nccl {
std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

namespace {

template <class T, class Wide>
void reduce(const Meeting& meeting, std::vector<char>& result) {
  const std::size_t count = result.size() / sizeof(T);
  const Share& first = meeting.shares[0];
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (std::size_t r = 0; r < meeting.shares.size(); ++r) {
      const Share& share = meeting.shares[r];
      T element;
      std::memcpy(&element, static_cast<const char*>(share.in) + i * sizeof(T), sizeof(T));
      Wide value;
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<Wide>(static_cast<std::int64_t>(element));
      } else {
        value = static_cast<Wide>(element);
        if (share.factor) value *= *share.factor;
      }
      if (r == 0) {
        sum = value;
        continue;
      }
      const auto less = [](Wide a, Wide b) {
        if constexpr (std::is_integral_v<Wide>) {
          return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b);
        } else {
          return a < b;
        }
      };
      switch (first.op) {
        case ncclProd:
          sum = sum * value;
          break;
        case ncclMin:
          sum = less(value, sum) ? value : sum;
          break;
        case ncclMax:
          sum = less(sum, value) ? value : sum;
          break;
        default:
          sum = sum + value;
      }
    }
    if constexpr (!std::is_integral_v<T>) {
      if (first.op == ncclAvg) sum /= static_cast<double>(meeting.shares.size());
    }
    T element;
    if constexpr (std::is_same_v<T, peal::Half> || std::is_same_v<T, peal::BFloat16>) {
      element = T(static_cast<float>(sum));
    } else {
      element = static_cast<T>(sum);
    }
    std::memcpy(result.data() + i * sizeof(T), &element, sizeof(T));
  }
}

}  // namespace

std::vector<char> reduced(const Meeting& meeting, std::size_t count) {
  const ncclDataType_t type = meeting.shares[0].type;
  std::vector<char> result(count * size_of(type));
  switch (type) {
    case ncclInt8:
      reduce<std::int8_t, std::uint64_t>(meeting, result);
      break;
    case ncclUint8:
      reduce<std::uint8_t, std::uint64_t>(meeting, result);
      break;
    case ncclInt32:
      reduce<std::int32_t, std::uint64_t>(meeting, result);
      break;
    case ncclInt64:
      reduce<std::int64_t, std::uint64_t>(meeting, result);
      break;
    case ncclFloat16:
      reduce<peal::Half, double>(meeting, result);
      break;
    case ncclBfloat16:
      reduce<peal::BFloat16, double>(meeting, result);
      break;
    case ncclFloat32:
      reduce<float, double>(meeting, result);
      break;
    default:
      reduce<double, double>(meeting, result);
  }
  return result;
}

}  // namespace cuda_host::nccl
