// SPDX-License-Identifier: Apache-2.0
// What the stand-ins of NVIDIA's libraries share: numbers as the device stores them, arguments that
// are held against the simulated memory, and refusals with a reason. Thread safety: any thread.
#pragma once

#include "memory.h"
#include "queue.h"

#include <peal/autograd/core/half.h>

#include <cuda_runtime_api.h>

#include <bit>
#include <cstdint>
#include <string>

namespace cuda_host {

enum class Number { f32, f64, f16, bf16 };

inline std::int64_t bytes_of(Number type) {
  return type == Number::f64 ? 8 : type == Number::f32 ? 4 : 2;
}

inline double load(const void* data, Number type, std::int64_t i) {
  switch (type) {
    case Number::f32:
      return static_cast<const float*>(data)[i];
    case Number::f64:
      return static_cast<const double*>(data)[i];
    case Number::f16:
      return static_cast<const peal::Half*>(data)[i];
    case Number::bf16:
      return static_cast<const peal::BFloat16*>(data)[i];
  }
  return 0;
}

inline void store(void* data, Number type, std::int64_t i, double value) {
  switch (type) {
    case Number::f32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case Number::f64:
      static_cast<double*>(data)[i] = value;
      break;
    case Number::f16:
      static_cast<peal::Half*>(data)[i] = peal::Half(static_cast<float>(value));
      break;
    case Number::bf16:
      static_cast<peal::BFloat16*>(data)[i] = peal::BFloat16(static_cast<float>(value));
      break;
  }
}

// An f32 as the tensor cores take it: 10 bits of fraction.
inline double to_tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

// The largest power of two, up to 256, that divides an address.
inline std::uint64_t alignment_of(const void* data) {
  const auto bits = reinterpret_cast<std::uintptr_t>(data) | 256u;
  return bits & (~bits + 1);
}

// Empty where `bytes` bytes from here on are in one allocation of the device.
inline std::string wrong_with(const char* name, const void* data, std::int64_t bytes, int device) {
  const Lock guard;
  if (data == nullptr) return std::string(name) + " is null";
  if (device_of(data) != device) return std::string(name) + " is not memory of the current device";
  const auto room = static_cast<std::int64_t>(room_at(data));
  if (room >= bytes) return {};
  return std::string(name) + " has " + std::to_string(room) + " of " + std::to_string(bytes) +
         " bytes";
}

// Empty where it is a stream of the current device.
inline std::string wrong_with(cudaStream_t stream, int device) {
  const Lock guard;
  const CUstream_st* found = stream_of(stream);
  if (found == nullptr || found->gone) return "the stream is none";
  return found->device == device ? "" : "the stream is another device's";
}

inline int current_device() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? device : -1;
}

// What the calling thread's last product did beside, by cuBLASLt's numbers.
unsigned last_product_epilogue();

// What the calling thread's last convolution ran, by cuDNN's numbers.
int last_convolution_algorithm();

// From now on the calling thread's convolutions by these algorithms, a bit each, are refused when
// they are to run: what heuristics and sizes of workspace do not tell.
void refuse_convolutions(int algorithms);

// From now on the calling thread's convolutions by these algorithms, a bit each, take an hour of
// the simulated clock.
void slow_convolutions(int algorithms);

}  // namespace cuda_host
