// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/transport/nccl/nccl.h>
#include <peal/launch/bootstrap.h>

namespace peal::launch {

void attach_nccl(comm::ProcessGroup& group, Device device) { comm::use_nccl(group, device); }

}  // namespace peal::launch
