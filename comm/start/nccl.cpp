// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/start/group_store.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/transport/nccl/nccl.h>

namespace peal::comm {

void use_nccl(ProcessGroup& group, Device device) {
  GroupStore store(group);
  use_nccl(group, device, store);
}

void use_nccl(ProcessGroup& group, Device device, Store& store) {
  PEAL_CHECK(store.rank() == group.rank() && store.world() == group.world(), "use_nccl: rank ",
             store.rank(), " of a store for ", store.world(), ", expected rank ", group.rank(),
             " of ", group.world());
  register_wire_kernels(DeviceType::cuda, &cuda_wire_kernels());
  try {
    group.attach(
        NcclTransport::create(store, device, group.deadline(), [&group] { group.check(); }));
  } catch (const Error& error) {
    group.poison(error.what());
    throw;
  }
}

}  // namespace peal::comm
