// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/group/group_rendezvous.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/transport/nccl/nccl.h>

namespace peal::comm {

void use_nccl(const ProcessGroup& group, Device device, const NcclOptions& options) {
  GroupRendezvous ranks(group);
  use_nccl(group, device, ranks, options);
}

void use_nccl(const ProcessGroup& group, Device device, Rendezvous& ranks,
              const NcclOptions& options) {
  PEAL_CHECK(ranks.rank() == group.rank() && ranks.world() == group.world(), "use_nccl: rank ",
             ranks.rank(), " of a rendezvous of ", ranks.world(), ", expected rank ", group.rank(),
             " of ", group.world());
  register_wire_kernels(DeviceType::cuda, &cuda_wire_kernels());
  try {
    group.attach(
        NcclTransport::create(ranks, device, options, body_of(group).options.deadline,
                              [control = &body_of(group).lane->control()] { control->check(); }));
  } catch (const Error& error) {
    group.poison(error.what());
    throw;
  }
}

}  // namespace peal::comm
