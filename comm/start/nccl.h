// SPDX-License-Identifier: Apache-2.0
// A process group's collectives over NCCL. Thread safety: as the group's.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/store/rendezvous.h>
#include <peal/comm/transport/nccl/options.h>

namespace peal::comm {

// Collectives of the group, and of its later sub-groups, on tensors of this device go over NCCL
// from now on. Collective; each rank names its own device. NCCL's unique id goes through the
// rendezvous, where there is one, and else through the group. Errors: a rendezvous of other ranks,
// versions of NCCL that differ, and what NCCL says.
void use_nccl(const ProcessGroup& group, Device device, const NcclOptions& options = {});
void use_nccl(const ProcessGroup& group, Device device, Rendezvous& ranks,
              const NcclOptions& options = {});

}  // namespace peal::comm
