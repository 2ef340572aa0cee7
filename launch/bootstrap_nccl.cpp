// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/start/cuda_ipc.h>
#include <peal/comm/start/device_aware.h>
#include <peal/comm/start/nccl.h>
#include <peal/comm/store/open_store.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/comm/transport/nccl/peers.h>
#include <peal/launch/bootstrap.h>

#include <cstdlib>

namespace peal::launch {

std::string pci_bus_id(Device device) { return comm::nccl::pci_of(device); }

void attach_nccl(const comm::ProcessGroup& group, Device device) {
  const char* const chosen = std::getenv("PEAL_STORE");
  const std::string address = chosen == nullptr ? "" : chosen;
  comm::agree(group, "[launch] PEAL_STORE", address, "start all ranks with one");
  if (address.empty()) return comm::use_nccl(group, device);
  const char* const secret =
      std::getenv("PEAL_STORE_SECRET");  // the store compares, and tells none
  const auto store = comm::open_store(
      address, group.rank(), group.world(),
      {.deadline = comm::body_of(group).options.deadline, .hopeless = [&group] { group.check(); }},
      secret == nullptr ? "" : secret);
  comm::StoreRendezvous ranks(*store, group.rank(), group.world(), "nccl");
  comm::use_nccl(group, device, ranks);
}

std::string attach_cuda_ipc(const comm::ProcessGroup& group, Device device) {
  const auto options = comm::CudaIpcOptions::from_environment();
  try {
    comm::use_cuda_ipc(group, device, options);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void attach_device_aware(const comm::ProcessGroup& group, Device device) {
  comm::register_wire_kernels(DeviceType::cuda, &comm::cuda_wire_kernels());
  comm::use_device_aware(group, device);
}

}  // namespace peal::launch
