// SPDX-License-Identifier: Apache-2.0
// What a process group does to know its members: exchanges of text, and groups within groups.
#include <peal/comm/group/agree.h>
#include <peal/comm/group/process_group.h>
#include <peal/comm/schedule/mix.h>
#include <peal/comm/transport/mpi/on_device.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace peal::comm {
namespace {

// Of some ranks of a group: equal among them, and different from all that could meet them.
std::uint64_t id_of(std::uint64_t group, std::uint64_t number, const std::vector<int>& ranks) {
  std::uint64_t id = group;
  mix(id, number);
  for (const int r : ranks) mix(id, static_cast<std::uint64_t>(r));
  return id;
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather_object(const std::string& mine) {
  // In storage that operations keep alive, should they fail while the transport still writes it.
  const Tensor sizes = Tensor::zeros({world()}, DType::i64, Device{});
  sizes.data<std::int64_t>()[rank()] = static_cast<std::int64_t>(mine.size());
  all_gather(sizes, sizes.view().part(rank(), 1)).wait();
  const auto counts = sizes.to_vector<std::int64_t>();
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(mine.data()),
                                            mine.size());
  const Tensor text = Tensor::from(bytes, {counts[static_cast<std::size_t>(rank())]}, Device{});
  const Tensor joined = Tensor::zeros(
      {std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, DType::u8, Device{});
  all_gather_v(joined, text, counts).wait();
  std::vector<std::string> parts;
  const char* at = reinterpret_cast<const char*>(joined.raw());
  for (const std::int64_t size : counts) {
    parts.emplace_back(at, static_cast<std::size_t>(size));
    at += size;
  }
  return parts;
}

std::string ProcessGroup::broadcast_object(const std::string& mine, int root) {
  const Tensor size = Tensor::scalar(static_cast<std::int64_t>(mine.size()), Device{});
  broadcast(size, root).wait();
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(mine.data()),
                                            mine.size());
  const Shape shape{size.item<std::int64_t>()};
  const Tensor text = rank() == root ? Tensor::from(bytes, shape, Device{})
                                     : Tensor::empty(shape, DType::u8, Device{});
  broadcast(text, root).wait();
  return {reinterpret_cast<const char*>(text.raw()), static_cast<std::size_t>(text.numel())};
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>& ranks) {
  std::string list;
  for (const int r : ranks) {
    PEAL_CHECK(r >= 0 && r < world() && std::count(ranks.begin(), ranks.end(), r) == 1,
               "new_group: ranks must be ", "different ones of 0 to ", world() - 1, ", got ", r);
    list += concat(list.empty() ? "" : " ", r);
  }
  PEAL_CHECK(!ranks.empty(), "new_group: a group of no ranks");
  const std::uint64_t number = sequence();
  // Also: nothing earlier is pending on any member.
  agree(*this, "new_group: the list of ranks", list, "all must give the same");
  return make_subgroup(ranks, number);
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int colour, int key) {
  const std::uint64_t number = sequence();
  const auto said = all_gather_object(concat(colour, " ", key));
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r = 0; r < world(); ++r) {
    const std::string& text = said[static_cast<std::size_t>(r)];
    if (std::stoi(text) == colour) members.emplace_back(std::stoi(text.substr(text.find(' '))), r);
  }
  if (colour < 0) return make_subgroup({}, number);
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [order, r] : members) ranks.push_back(r);
  return make_subgroup(ranks, number);
}

std::shared_ptr<ProcessGroup> ProcessGroup::make_subgroup(const std::vector<int>& ranks,
                                                          std::uint64_t number) {
  Transport* const attached = lane_->device_transport();
  const std::uint64_t id = id_of(lane_->id(), number, ranks);
  auto transport = lane_->transport().subset(ranks, id);
  if (!transport) {
    if (attached != nullptr) static_cast<void>(attached->subset(ranks, id));
    return nullptr;
  }
  std::vector<int> members;
  Topology nodes;
  for (const int r : ranks) {
    members.push_back(members_[static_cast<std::size_t>(r)]);
    nodes.node.push_back(nodes_.node[static_cast<std::size_t>(r)]);
  }
  auto control = lane_->control().subset(members);
  auto group = std::make_shared<ProcessGroup>(std::move(transport), std::move(control), engine_,
                                              options_, std::move(nodes), members, id);
  if (attached != nullptr) group->attach(attached->subset(ranks, id));
  return group;
}

void ProcessGroup::attach_direct(Device device) {
  const std::uint64_t number = sequence();
  barrier().wait();  // nothing earlier is pending on any rank, and the number is taken
  std::vector<int> everyone(static_cast<std::size_t>(world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  auto below = lane_->transport().subset(everyone, id_of(lane_->id(), number, everyone));
  attach(std::make_unique<DirectTransport>(std::move(below), device));
}

}  // namespace peal::comm
