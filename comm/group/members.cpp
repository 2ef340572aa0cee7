// SPDX-License-Identifier: Apache-2.0
// What a process group does to know its members: exchanges of text, and groups within groups.
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace peal::comm {

std::uint64_t subgroup_id(std::uint64_t group, std::uint64_t number,
                          const std::vector<int>& ranks) {
  std::uint64_t id = group;
  mix(id, number);
  for (const int r : ranks) mix(id, static_cast<std::uint64_t>(r));
  return id;
}

namespace {

// The part that `group` has in one of these ranks.
ProcessGroup make_subgroup(GroupBody& group, const std::vector<int>& ranks, std::uint64_t number) {
  Transport* const attached = group.lane->device_transport();
  const std::uint64_t id = subgroup_id(group.lane->id(), number, ranks);
  auto transport = group.lane->transport().subset(ranks, id);
  if (!transport) {
    if (attached != nullptr) static_cast<void>(attached->subset(ranks, id));
    return {};
  }
  std::vector<int> members;
  Topology nodes;
  for (const int r : ranks) {
    members.push_back(group.members[static_cast<std::size_t>(r)]);
    nodes.node.push_back(group.nodes.node[static_cast<std::size_t>(r)]);
  }
  auto control = group.lane->control().subset(members);
  ProcessGroup part = make_group(std::move(transport), std::move(control), group.engine,
                                 group.options, std::move(nodes), members, id, group.found);
  if (attached != nullptr) part.attach(attached->subset(ranks, id));
  return part;
}

}  // namespace

std::vector<std::string> ProcessGroup::all_gather_object(const std::string& mine) const {
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

std::string ProcessGroup::broadcast_object(const std::string& mine, int root) const {
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

ProcessGroup ProcessGroup::new_group(const std::vector<int>& ranks) const {
  std::string list, wrong = ranks.empty() ? "a group of no ranks" : "";
  for (const int r : ranks) {
    if (r < 0 || r >= world() || std::count(ranks.begin(), ranks.end(), r) != 1) {
      wrong = concat("they must be different ones of 0 to ", world() - 1, ", got ", r);
    }
    list += concat(list.empty() ? "" : " ", r);
  }
  const std::uint64_t number = body().sequence();
  // Also: nothing earlier is pending on any member.
  agree_unless(*this, "new_group: the list of ranks", list, wrong, "all must give the same");
  return make_subgroup(body(), ranks, number);
}

ProcessGroup ProcessGroup::split(int colour, int key) const {
  const std::uint64_t number = body().sequence();
  const auto said = all_gather_object(concat(colour, " ", key));
  std::vector<std::pair<int, int>> members;  // (key, rank)
  for (int r = 0; r < world(); ++r) {
    const std::string& text = said[static_cast<std::size_t>(r)];
    if (std::stoi(text) == colour) members.emplace_back(std::stoi(text.substr(text.find(' '))), r);
  }
  if (colour < 0) return make_subgroup(body(), {}, number);
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [order, r] : members) ranks.push_back(r);
  return make_subgroup(body(), ranks, number);
}

}  // namespace peal::comm
