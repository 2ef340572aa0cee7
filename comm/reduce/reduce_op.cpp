// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/reduce/reduce_op.h>

namespace peal::comm {

bool has_reduction(DType dtype, ReduceOp op) {
  const bool bits = op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor;
  const bool scales = op == ReduceOp::avg || op == ReduceOp::premul_sum;
  return !(bits && is_floating(dtype)) && !(scales && dtype == DType::boolean);
}

void check_reduction(DType dtype, ReduceOp op) {
  PEAL_CHECK(has_reduction(dtype, op), "reduce: ", name(op),
             is_floating(dtype) ? " is for integers and bool, got " : " has no meaning on ", dtype);
}

}  // namespace peal::comm
