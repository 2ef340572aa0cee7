// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/nccl/native.h>

#include <algorithm>

namespace peal::comm {
namespace {

bool reduces(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::prod:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return true;
    case ReduceOp::min:
    case ReduceOp::max:
      return !is_floating(dtype);
    default:
      return false;
  }
}

bool equal(std::span<const std::int64_t> counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

}  // namespace

bool nccl_has_native(const NativeCall& call) {
  switch (call.what) {
    case Collective::all_reduce:
    case Collective::reduce:
      return reduces(call.op, call.dtype);
    case Collective::reduce_scatter:
      return reduces(call.op, call.dtype) && equal(call.counts);
    case Collective::broadcast:
      return true;
    case Collective::all_gather:
      return equal(call.counts);
    default:
      return false;
  }
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f64:
      return ncclFloat64;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    case DType::i64:
      return ncclInt64;
    case DType::i8:
      return ncclInt8;
    case DType::u8:
    case DType::boolean:
      return ncclUint8;
  }
  return ncclNumTypes;
}

ncclRedOp_t nccl_reduction(const NativeCall& call) {
  const bool truth = call.dtype == DType::boolean;  // bytes of 0 and 1
  switch (call.op) {
    case ReduceOp::prod:
      return truth ? ncclMin : ncclProd;
    case ReduceOp::min:
      return ncclMin;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::avg:  // of integers peal divides, towards zero
      return is_floating(call.dtype) ? ncclAvg : ncclSum;
    default:
      return truth ? ncclMax : ncclSum;
  }
}

}  // namespace peal::comm
