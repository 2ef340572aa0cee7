// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/bootstrap.h>

namespace peal::launch {

std::string pci_bus_id(Device) { return ""; }
void attach_nccl(const comm::ProcessGroup&, Device) {}
std::string attach_cuda_ipc(const comm::ProcessGroup&, Device) { return "this build has no CUDA"; }
void attach_device_aware(const comm::ProcessGroup&, Device) {}

}  // namespace peal::launch
