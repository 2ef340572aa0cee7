// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/launch/tools/schedule/view/compare_json.h>
#include <peal/launch/tools/schedule/world.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace peal::launch {

using nlohmann::json;

namespace {

// That a rank sends.
std::int64_t most_messages(const comm::Entry& entry, const World& world) {
  std::int64_t most = 0;
  for (int rank = 0; rank < world.ranks; ++rank) {
    std::int64_t sent = 0;
    for (const comm::Round& round : plan(entry, world.problem(rank)).rounds) {
      sent += std::ranges::count(round, comm::Kind::send, &comm::Step::kind);
    }
    most = std::max(most, sent);
  }
  return most;
}

json counted(const comm::Entry& entry, int ranks, std::int64_t bytes) {
  if (!entry.supports(ranks)) return nullptr;
  const World world = make_world(entry.what, ranks, std::max<std::int64_t>(1, bytes / f32), 1);
  const comm::Cost most = entry.costs(world.problem()).most;
  return {most.rounds, most_messages(entry, world), most.sent, most.reduced};
}

}  // namespace

json compare_json(comm::Collective what, const std::vector<int>& ranks,
                  const std::vector<std::int64_t>& bytes, const comm::Machine& machine) {
  json algorithms = json::array();
  for (const comm::Entry& entry : comm::all_algorithms()) {
    if (entry.what != what || entry.one_sided) continue;
    json by_ranks = json::array();
    for (const int p : ranks) {
      json by_bytes = json::array();
      for (const std::int64_t size : bytes) by_bytes.push_back(counted(entry, p, size));
      by_ranks.push_back(std::move(by_bytes));
    }
    algorithms.push_back({{"name", entry.name}, {"costs", std::move(by_ranks)}});
  }
  return {{"kind", "compare"},
          {"title", fmt::format("{}: who wins, by size and ranks", name(what))},
          {"element", f32},
          {"ranks", ranks},
          {"bytes", bytes},
          {"algorithms", std::move(algorithms)},
          {"machine",
           {{"latency", machine.between.latency},
            {"gap", machine.between.gap},
            {"per_byte", machine.between.rate.per_byte()},
            {"reduce", machine.reduce.per_byte()}}}};
}

}  // namespace peal::launch
