// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/record/flight_record.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace peal::comm {
namespace {

using Flown = FlightRecord::Operation;

// "0-2,5"
std::string ranks_list(const std::vector<int>& ranks) {
  std::string list;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    list += concat(list.empty() ? "" : ",", ranks[i]);
    if (end - i > 1) list += concat(end - i == 2 ? "," : "-", ranks[end - 1]);
    i = end;
  }
  return list;
}

std::string ranks_in_words(const std::vector<int>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", ranks_list(ranks));
}

// What ranks have of one number of their group.
struct CallOfRanks {
  std::map<int, const Flown*> of;  // by rank
  std::vector<int> without;        // ranks that have no such row, and would have kept it

  // Ranks whose rows are alike in what `key` takes of them, in the order of their first.
  template <class Key>
  std::vector<std::pair<const Flown*, std::vector<int>>> alike(Key key) const {
    std::vector<std::pair<const Flown*, std::vector<int>>> parts;
    for (const auto& [rank, operation] : of) {
      const Flown* const mine = operation;
      auto found = std::ranges::find_if(
          parts, [&](const auto& part) { return key(*part.first) == key(*mine); });
      if (found == parts.end()) {
        parts.emplace_back(mine, std::vector<int>());
        found = std::prev(parts.end());
      }
      found->second.push_back(rank);
    }
    return parts;
  }
  auto by_signature() const {
    return alike([](const Flown& one) { return one.signature; });
  }
  auto by_state() const {
    return alike([](const Flown& one) { return std::pair(one.signature, one.state); });
  }
};

using Records = std::map<int, const FlightRecord*>;  // by rank

// Whether a rank was asked after a moment of another's, or can do nothing any more. Of ranks on
// several nodes the clocks may differ by so much.
bool is_after(const FlightRecord& record, const FlightRecord& other, std::int64_t moment) {
  constexpr std::int64_t most_apart = 1'000'000'000;
  if (record.over) return true;
  if (record.host == other.host) return record.now >= moment;
  return record.written >= other.written - (other.now - moment) + most_apart;
}

// When it began or ended; where that is not known, by when it had.
std::int64_t begun_by(const Flown& one, const FlightRecord& record) {
  return one.begin == 0 ? record.now : one.begin;
}
std::int64_t ended_by(const Flown& one, const FlightRecord& record) {
  return one.end == 0 ? record.now : one.end;
}

struct GroupOfRanks {
  std::set<int> ranks;
  std::map<std::uint64_t, CallOfRanks> calls;  // by sequence
  Records records;
};

// The world has all ranks; another group those of which something is kept.
std::map<std::uint64_t, GroupOfRanks> groups_of(const std::vector<FlightRecord>& records) {
  std::map<std::uint64_t, GroupOfRanks> groups;
  for (const FlightRecord& record : records) {
    for (const Flown& one : record.operations) {
      if (one.message) continue;
      GroupOfRanks& group = groups[one.group];
      group.ranks.insert(record.rank);
      group.records[record.rank] = &record;
      group.calls[one.sequence].of[record.rank] = &one;
    }
  }
  if (const auto world = groups.find(0); world != groups.end()) {
    for (const FlightRecord& record : records) world->second.ranks.insert(record.rank);
  }
  for (auto& [id, group] : groups) {
    for (const FlightRecord& record : records) {
      if (!group.ranks.contains(record.rank)) continue;
      // What it began before its first row that is kept, it may have forgotten.
      std::optional<std::uint64_t> first;
      for (const Flown& one : record.operations) {
        if (!one.message && one.group == id)
          first = std::min(first.value_or(one.sequence), one.sequence);
      }
      const bool forgot = record.begun > record.operations.size();
      for (auto& [sequence, call] : group.calls) {
        if (call.of.contains(record.rank)) continue;
        const bool late = std::ranges::any_of(call.of, [&](const auto& had) {
          const FlightRecord& other = *group.records.at(had.first);
          return is_after(record, other, begun_by(*had.second, other));
        });
        if (late && (!forgot || (first && sequence > *first))) call.without.push_back(record.rank);
      }
    }
  }
  return groups;
}

std::string calls_in_words(const CallOfRanks& call) {
  std::string said;
  for (const auto& [operation, ranks] : call.by_signature()) {
    said += concat(said.empty() ? "" : ", but ", ranks_in_words(ranks),
                   operation->done()   ? " did "
                   : ranks.size() == 1 ? " is in "
                                       : " are in ",
                   operation->text);
  }
  return said;
}

// The gravest first: other calls, then calls that ranks have not come to, then such as have not
// come to their end.
std::optional<FlightDifference> difference(std::uint64_t id, const GroupOfRanks& group) {
  for (const auto& [sequence, call] : group.calls) {
    const auto parts = call.by_signature();
    if (parts.size() < 2) continue;
    const bool alike = std::ranges::all_of(
        parts, [&](const auto& part) { return part.first->text == parts[0].first->text; });
    return FlightDifference{
        id, sequence, concat(calls_in_words(call), alike ? ": calls before it differed" : "")};
  }
  for (const auto& [sequence, call] : group.calls) {
    if (call.without.empty()) continue;
    return FlightDifference{id, sequence,
                            concat(calls_in_words(call), ", but ", ranks_in_words(call.without),
                                   call.without.size() == 1 ? " has" : " have", " not come to it")};
  }
  for (const auto& [sequence, call] : group.calls) {
    std::vector<int> over, under_way;
    const Flown* one = nullptr;
    // A rank that was asked before another had it done may have done it as well.
    const auto was_late = [&](int rank) {
      return std::ranges::all_of(call.of, [&](const auto& had) {
        const FlightRecord& other = *group.records.at(had.first);
        return !had.second->done() ||
               is_after(*group.records.at(rank), other, ended_by(*had.second, other));
      });
    };
    for (const auto& [rank, operation] : call.of) {
      if (operation->done()) over.push_back(rank);
      if (operation->done() || !was_late(rank)) continue;
      under_way.push_back(rank);
      one = operation;
    }
    if (one == nullptr) continue;
    return FlightDifference{
        id, sequence,
        concat(one->text, " has not come to its end on ", ranks_in_words(under_way),
               over.empty() ? "" : concat(", but has on ", ranks_in_words(over)))};
  }
  return std::nullopt;
}

std::string rows_around(const GroupOfRanks& group, const std::optional<FlightDifference>& marked,
                        int around) {
  auto first = group.calls.end(), last = group.calls.end();
  if (marked) first = last = group.calls.find(marked->sequence);
  for (int i = 0; i < around && first != group.calls.begin(); ++i) --first;
  for (int i = 0; i <= around && last != group.calls.end(); ++i) ++last;
  std::string table;
  for (auto at = first; at != last; ++at) {
    const auto& [sequence, call] = *at;
    std::string_view mark = marked && marked->sequence == sequence ? "> " : "  ";
    for (const auto& [operation, ranks] : call.by_state()) {
      table += fmt::format("{}{:<9} on {:<8} {}\n", mark, operation->state, ranks_list(ranks),
                           operation->text);
      mark = "  ";
    }
    if (!call.without.empty()) {
      table += fmt::format("  {:<9} on {:<8} #{}\n", "missing", ranks_list(call.without), sequence);
    }
  }
  return table;
}

}  // namespace

MergedFlight merged(const std::vector<FlightRecord>& records, int around) {
  MergedFlight all;
  for (const auto& [id, group] : groups_of(records)) {
    const auto found = difference(id, group);
    const std::string who =
        concat(id == 0 ? std::string("the world") : fmt::format("group {:x}", id), " (",
               ranks_in_words({group.ranks.begin(), group.ranks.end()}), ")");
    all.table += concat(who, ":\n", rows_around(group, found, around));
    all.table += found ? concat("first difference: ", found->text, "\n") : "no difference\n";
    if (found) all.differences.push_back(*found);
  }
  for (const FlightRecord& record : records) {
    for (const Flown& one : record.operations) {
      if (!one.message || one.done()) continue;
      all.table += concat("rank ", record.rank, ": ", one.text, " is ", one.state, "\n");
    }
  }
  return all;
}

}  // namespace peal::comm
