// SPDX-License-Identifier: Apache-2.0
// What the stand-in of cuBLASLt keeps in its opaque structures, and how it refuses. Thread safety:
// a reason is the calling thread's.
#pragma once

#include "library.h"

#include <cublasLt.h>

#include <cstring>
#include <string>

struct cublasLtContext {
  int device;
};

namespace cuda_host {

// What the opaque structures hold. The mark tells that they were initialised.
inline constexpr std::uint32_t mark = 0x5ea1;

struct Layout {
  std::uint32_t marked;
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t batch;
  std::int64_t offset;
};
struct Operation {
  std::uint32_t marked;
  cublasComputeType_t compute;
  cudaDataType scale;
  std::int32_t transpose_a, transpose_b;
  std::uint32_t epilogue;
  const void *bias, *aux;
  std::int64_t aux_leading;
  // The bits that CUBLASLT_EPILOGUE_... are made of.
  bool has(std::uint32_t bits) const { return (epilogue & bits) == bits; }
  bool has_vector() const { return has(4) || has(512); }
  bool sums_rows_of_d() const { return has(16); }
  bool has_aux() const { return has(128); }
};
struct Preference {
  std::uint32_t marked;
  std::uint64_t workspace;
  std::uint32_t reductions;
  std::uint32_t aligned_a, aligned_b, aligned_c, aligned_d;
};
template <class State, class Opaque>
State get(const Opaque* opaque) {
  static_assert(sizeof(State) <= sizeof(Opaque));
  State state;
  std::memcpy(&state, opaque->data, sizeof state);
  return state;
}
template <class State, class Opaque>
void put(Opaque* opaque, const State& state) {
  std::memcpy(opaque->data, &state, sizeof state);
}

// Remembers why, for cublasLtGetStatusString.
cublasStatus_t refuse(cublasStatus_t status, std::string why);
inline cublasStatus_t invalid(std::string why) {
  return refuse(CUBLAS_STATUS_INVALID_VALUE, std::move(why));
}

}  // namespace cuda_host
