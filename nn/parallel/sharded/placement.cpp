// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/nn/parallel/sharded/placement.h>

#include <algorithm>
#include <map>
#include <utility>

namespace peal::nn {

std::vector<std::int64_t> Placement::loads() const {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(world), 0);
  for (std::size_t p = 0; p < owners.size(); ++p) {
    loads[static_cast<std::size_t>(owners[p])] += counts[p];
  }
  return loads;
}

Placement place_greedily(std::span<const std::int64_t> counts, int world, const Placement& before) {
  PEAL_CHECK(world > 0, "placement: expected 1 rank or more, got ", world);
  PEAL_CHECK(before.owners.empty() || before.world == world, "placement: it was made for ",
             before.world, " ranks, and there are ", world);
  PEAL_CHECK(counts.size() >= before.owners.size(), "placement: there were ", before.owners.size(),
             " parameters, and ", counts.size(), " came");
  Placement placement = before;
  placement.world = world;
  std::vector<std::int64_t> loads = placement.loads();
  for (std::size_t p = before.owners.size(); p < counts.size(); ++p) {
    PEAL_CHECK(counts[p] >= 0, "placement: parameter ", p, " counts ", counts[p],
               ", which is below 0");
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += counts[p];
    placement.owners.push_back(static_cast<int>(least - loads.begin()));
    placement.counts.push_back(counts[p]);
  }
  return placement;
}

std::string describe(const Placement& placement, std::span<const std::string> names) {
  PEAL_CHECK(names.size() == placement.owners.size(), "placement: ", names.size(),
             " names came for ", placement.owners.size(), " parameters");
  std::size_t width = 9;
  for (const std::string& name : names) width = std::max(width, name.size());
  std::string text = fmt::format("{:<{}} {:>12} {:>6}\n", "parameter", width, "elements", "owner");
  std::vector<std::size_t> owned(static_cast<std::size_t>(placement.world), 0);
  for (std::size_t p = 0; p < names.size(); ++p) {
    text += fmt::format("{:<{}} {:>12} {:>6}\n", names[p], width, placement.counts[p],
                        placement.owners[p]);
    ++owned[static_cast<std::size_t>(placement.owners[p])];
  }
  const std::vector<std::int64_t> loads = placement.loads();
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    text += fmt::format("rank {}: {} parameters, {} elements\n", rank, owned[rank], loads[rank]);
  }
  return text;
}

std::vector<Message> plan_messages(const Placement& placement, std::span<const std::int64_t> bytes,
                                   std::span<const int> kinds, std::int64_t together) {
  PEAL_CHECK(bytes.size() == placement.owners.size() && kinds.size() == bytes.size(),
             "placement: ", bytes.size(), " sizes and ", kinds.size(), " kinds came for ",
             placement.owners.size(), " parameters");
  struct Open {
    Message message;
    std::int64_t bytes = 0;
  };
  std::vector<Message> full;
  std::map<std::pair<int, int>, Open> open;  // by owner and kind
  for (std::size_t p = 0; p < bytes.size(); ++p) {
    const int owner = placement.owners[p];
    if (bytes[p] == 0) continue;
    if (bytes[p] >= together) {
      full.push_back({owner, {p}});
      continue;
    }
    const std::pair key(owner, kinds[p]);
    const auto there = open.find(key);
    if (there != open.end() && there->second.bytes + bytes[p] > together) {
      full.push_back(std::move(there->second.message));
      open.erase(there);
    }
    Open& now = open[key];
    now.message.owner = owner;
    now.message.parameters.push_back(p);
    now.bytes += bytes[p];
  }
  for (auto& [key, rest] : open) full.push_back(std::move(rest.message));
  return full;
}

}  // namespace peal::nn
