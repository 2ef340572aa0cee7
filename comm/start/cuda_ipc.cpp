// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>

#include <utility>

namespace peal::comm {

const CudaIpcTransport& use_cuda_ipc(const ProcessGroup& group, Device device) {
  return use_cuda_ipc(group, device, CudaIpcOptions::from_environment());
}

const CudaIpcTransport& use_cuda_ipc(const ProcessGroup& group, Device device,
                                     const CudaIpcOptions& options) {
  register_wire_kernels(DeviceType::cuda, &cuda_wire_kernels());
  GroupRendezvous ranks(group);
  auto made =
      CudaIpcTransport::create(ranks, device, options, body_of(group).options.deadline,
                               [control = &body_of(group).lane->control()] { control->check(); });
  const CudaIpcTransport& transport = *made;
  group.attach(std::move(made));
  return transport;
}

}  // namespace peal::comm
