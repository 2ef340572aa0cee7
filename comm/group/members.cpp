// SPDX-License-Identifier: Apache-2.0
// What a process group does to know its members: groups within groups.
#include <peal/comm/group/agree.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/schedule/mix.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
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

// Of the device's transport; null where there is none, or on a rank that is not listed.
std::unique_ptr<Transport> device_subset(GroupBody& group, const std::vector<int>& ranks,
                                         std::uint64_t id) {
  Transport* const attached = group.lane->device_transport();
  if (attached == nullptr) return nullptr;
  try {
    return attached->subset(ranks, id);
  } catch (const Error& error) {
    group.tell_end_of(*attached, error);
    throw;
  }
}

// The part that `group` has in one of these ranks.
ProcessGroup make_subgroup(GroupBody& group, const std::vector<int>& ranks, std::uint64_t number,
                           std::optional<std::chrono::milliseconds> deadline = {}) {
  const std::uint64_t id = subgroup_id(group.lane->id(), number, ranks);
  auto transport = group.lane->transport().subset(ranks, id);
  if (!transport) {
    static_cast<void>(device_subset(group, ranks, id));
    return {};
  }
  std::vector<int> members;
  Topology nodes;
  for (const int r : ranks) {
    members.push_back(group.members[static_cast<std::size_t>(r)]);
    nodes.node.push_back(group.nodes.node[static_cast<std::size_t>(r)]);
  }
  auto control = group.lane->control().subset(members);
  ProcessGroup::Options options = group.options;
  options.deadline = deadline.value_or(options.deadline);
  ProcessGroup part = make_group(std::move(transport), std::move(control), group.engine, options,
                                 std::move(nodes), members, id, group.found);
  if (auto on_device = device_subset(group, ranks, id)) part.attach(std::move(on_device));
  return part;
}

}  // namespace

ProcessGroup ProcessGroup::new_group(const std::vector<int>& ranks,
                                     std::optional<std::chrono::milliseconds> deadline) const {
  std::string list, wrong = ranks.empty() ? "a group of no ranks" : "";
  for (const int r : ranks) {
    if (r < 0 || r >= world() || std::count(ranks.begin(), ranks.end(), r) != 1) {
      wrong = concat("they must be different ones of 0 to ", world() - 1, ", got ", r);
    }
    list += concat(list.empty() ? "" : " ", r);
  }
  const auto most = std::chrono::milliseconds(std::chrono::seconds(1'000'000'000));
  if (deadline && (deadline->count() < 1 || *deadline > most)) {
    wrong = concat("expected a deadline of 1 ms at least, and at most ", most.count(), " ms, got ",
                   deadline->count(), " ms");
  }
  const std::uint64_t number = body().sequence();
  // Also: nothing earlier is pending on any member.
  agree_unless(*this, "new_group: the list of ranks", list, wrong, "all must give the same");
  return make_subgroup(body(), ranks, number, deadline);
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
