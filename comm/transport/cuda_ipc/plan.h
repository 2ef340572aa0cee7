// SPDX-License-Identifier: Apache-2.0
// Data layout of a collective: which parts it exchanges (exchange.h), from what all ranks know
// alike. Thread safety: pure functions.
#pragma once

#include <peal/comm/transport/cuda_ipc/exchange.h>
#include <peal/comm/transport/transport.h>

namespace peal::comm::ipc {

// Fills in what is laid out and taken by group.rank; the buffers are the call's. `two_shot`: of an
// all-reduce.
Exchange plan_exchange(const Group& group, const NativeCall& call, bool two_shot);
// 16 bits that differ, most likely, between operations that differ.
unsigned signature(const NativeCall& call);

}  // namespace peal::comm::ipc
