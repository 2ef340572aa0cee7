// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/group/group_body.h>
#include <peal/comm/start/device_aware.h>
#include <peal/comm/transport/mpi/device_aware.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace peal::comm {

void use_device_aware(const ProcessGroup& group, Device device) {
  const GroupBody& body = body_of(group);
  const Lane& lane = *body.lane;
  const std::uint64_t number = body.sequence();
  group.barrier().wait();  // nothing earlier is pending on any rank, and the number is taken
  std::vector<int> everyone(static_cast<std::size_t>(group.world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto below = lane.transport().subset(everyone, subgroup_id(lane.id(), number, everyone));
  group.attach(std::make_unique<DeviceAwareTransport>(std::move(below), device));
}

}  // namespace peal::comm
