// SPDX-License-Identifier: Apache-2.0
// A process group's collectives over CUDA IPC: memory of devices that processes share. Thread
// safety: as the group's.
#pragma once

#include <peal/comm/group/process_group.h>

namespace peal::comm {

class CudaIpcTransport;
struct CudaIpcOptions;

// Collectives of the group, and of its later sub-groups, on tensors of this device go over CUDA IPC
// from now on. Collective; each rank names its own device. Error on all ranks, the group staying as
// it was, where the ranks are no processes of one node that reach each other's memory. The group
// keeps what is returned. The options are the environment's, or whoever's that looks into
// transport/cuda_ipc/cuda_ipc.h.
const CudaIpcTransport& use_cuda_ipc(const ProcessGroup& group, Device device);
const CudaIpcTransport& use_cuda_ipc(const ProcessGroup& group, Device device,
                                     const CudaIpcOptions& options);

}  // namespace peal::comm
