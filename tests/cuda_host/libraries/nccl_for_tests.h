// SPDX-License-Identifier: Apache-2.0
// What tests may ask of NCCL on the host. Thread safety: any thread.
#pragma once

#include <string>

namespace cuda_host {

// Why the newest operation that can never end cannot: what NCCL would hang over, and say nothing.
// Empty where there was none.
std::string nccl_hang();
// From now on two ranks of a communicator on one device are refused, as NCCL does where hosts are
// equal (NCCL_HOSTID).
void nccl_refuse_shared_devices(bool refuse);
// How many buffers are registered with communicators now.
int nccl_registered();
// How many collectives had all their buffers in such, so that NCCL moves them without copies.
int nccl_on_registered();
// How many collectives, and groups of messages, were put into streams.
int nccl_collectives();
int nccl_groups();

}  // namespace cuda_host
