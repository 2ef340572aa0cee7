// SPDX-License-Identifier: Apache-2.0
// What ranks put into the collectives' tests, and what must come out.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/reduce/reduce_op.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace peal::comm::testing {

// Whether the reduction is defined for the type.
bool meaningful(DType dtype, ReduceOp op);
// Small integers, different for each rank and element: products of five stay exact in bf16.
double value(int rank, std::int64_t i, DType dtype);
// The reduction of element i over the world.
double expected(int world, std::int64_t i, DType dtype, ReduceOp op);

// On the context's device.
Tensor filled(std::int64_t count, DType dtype, const std::function<double(std::int64_t)>& at);
// All of one number.
inline Tensor filled(std::int64_t count, float value) {
  return Tensor::from(std::vector<float>(static_cast<std::size_t>(count), value), {count});
}
// From any device, ordered on the calling thread's current stream.
double element(const Tensor& tensor, std::int64_t i);

}  // namespace peal::comm::testing
