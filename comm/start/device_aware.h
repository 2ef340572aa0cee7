// SPDX-License-Identifier: Apache-2.0
// A process group's collectives on devices over the transport of the CPU, where its library reaches
// the device's memory itself, as CUDA-aware MPI does. Thread safety: as the group's.
#pragma once

#include <peal/comm/group/process_group.h>

namespace peal::comm {

// Collectives of the group, and of its later sub-groups, on tensors of this device go so from now
// on. Collective; each rank names its own device. REQUIRES: that the library reaches it, and that
// the device has kernels of the wire (reduce/table.h).
void use_device_aware(const ProcessGroup& group, Device device);

}  // namespace peal::comm
