// SPDX-License-Identifier: Apache-2.0
// What tests may ask of NCCL on the host. Thread safety: any thread.
#pragma once

#include <string>
#include <utility>

namespace cuda_host {

// Why the newest operation that can never end cannot: what NCCL would hang over, and say nothing.
// Empty where there was none.
std::string nccl_hang();
// From now on two ranks of a communicator on one device are refused, as NCCL does where hosts are
// equal (NCCL_HOSTID).
void nccl_refuse_shared_devices(bool refuse);
// Devices, as bits, whose ranks: come to ncclCommInitRankConfig, or ncclCommFinalize, and no
// further; fail in ncclCommSplit by themselves; have no memory to register; have windows (the
// others get none, and a success, as where NVLink does not join them).
void nccl_hold_init(unsigned devices);
void nccl_refuse_split(unsigned devices);
void nccl_refuse_registration(unsigned devices);
void nccl_windows(unsigned devices);
// What the library of the device's ranks says that it is; 0: the header's.
void nccl_version(int device, int version);
// The last that was made: its maxCTAs and CTAPolicy.
std::pair<int, int> nccl_config();
// How many windows there are now.
int nccl_window_count();
// How many buffers are registered with communicators now, windows among them.
int nccl_registered();
// How many collectives had all their buffers in such, so that NCCL moves them without copies.
int nccl_on_registered();
// How many collectives, and groups of messages, were put into streams.
int nccl_collectives();
int nccl_groups();

}  // namespace cuda_host
