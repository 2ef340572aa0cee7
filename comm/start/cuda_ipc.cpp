// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/start/group_rendezvous.h>

#include <utility>

namespace peal::comm {

const CudaIpcTransport& use_cuda_ipc(ProcessGroup& group, Device device,
                                     const CudaIpcOptions& options) {
  register_wire_kernels(DeviceType::cuda, &cuda_wire_kernels());
  GroupRendezvous ranks(group);
  auto made = CudaIpcTransport::create(ranks, device, options, group.deadline(),
                                       [&group] { group.check(); });
  const CudaIpcTransport& transport = *made;
  group.attach(std::move(made));
  return transport;
}

}  // namespace peal::comm
