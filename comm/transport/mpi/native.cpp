// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/mpi/native.h>

#include <numeric>

namespace peal::comm {
namespace {

// MPI has no f16 and bf16, and its bool is another. min and max of floating types are left to the
// schedules: MPI does not define them for NaN.
bool reduces(ReduceOp op, DType dtype) {
  if (is_low_precision(dtype) || dtype == DType::boolean) return false;
  return !is_floating(dtype) || (op != ReduceOp::min && op != ReduceOp::max);
}

}  // namespace

bool mpi_has_native(const NativeCall& call) {
  const auto total = std::accumulate(call.counts.begin(), call.counts.end(), std::int64_t{0});
  if (total > mpi_native_limit) return false;
  switch (call.what) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
      return reduces(call.op, call.dtype);
    case Collective::broadcast:
    case Collective::all_gather:
    case Collective::barrier:
      return true;
    default:
      return false;
  }
}

}  // namespace peal::comm
