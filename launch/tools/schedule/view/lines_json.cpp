// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/draw/rows.h>
#include <peal/comm/start/threads.h>
#include <peal/launch/tools/schedule/view/lines_json.h>
#include <peal/launch/tools/schedule/world.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace peal::launch {

using nlohmann::json;

namespace {

constexpr int most_ranks = 8;
constexpr std::int64_t most_count = 4096, in_a_line = 16;  // of f32

World world_of(const LinesViewOptions& options) {
  World world = make_world(comm::Collective::all_reduce, options.ranks, options.count);
  world.align = in_a_line;  // as the group cuts in shared memory
  return world;
}

// In whose caches lines are.
class Caches {
 public:
  struct Touch {
    int memory = 0;
    std::int64_t line = 0;
    int by = 0;
    bool writes = false, got = false;  // from another cache
    int lost = 0;                      // by others
    std::uint32_t holders = 0;
  };

  // At first a rank has all of its own memory, which it has just written.
  Touch touch(int rank, int owner, comm::Buffer buffer, std::int64_t line, bool writes) {
    const int memory = owner * comm::buffer_kinds + static_cast<int>(buffer);
    const auto mine = std::uint32_t{1} << rank;
    auto& holders =
        held_.try_emplace(std::pair(memory, line), std::uint32_t{1} << owner).first->second;
    Touch one{.memory = memory, .line = line, .by = rank, .writes = writes};
    one.got = (holders & mine) == 0;
    if (writes) one.lost = std::popcount(holders & ~mine);
    holders = writes ? mine : holders | mine;
    one.holders = holders;
    return one;
  }

 private:
  std::map<std::pair<int, std::int64_t>, std::uint32_t> held_;
};

struct Traffic {
  std::int64_t got = 0, lost = 0, signals = 0;
  int rows = 0;
  json touches = json::array(), told = json::array();  // of signals: [row, from, to]
};

Traffic traffic(const std::vector<comm::Program>& programs) {
  Traffic all;
  Caches caches;
  const comm::Rows rows = comm::rows(programs, comm::Stuck::show);
  all.rows = rows.count;
  const auto note = [&](int row, int rank, int owner, const comm::Span& span, bool writes) {
    if (span.count == 0) return;
    for (std::int64_t line = span.at / in_a_line; line * in_a_line < span.at + span.count; ++line) {
      const Caches::Touch one = caches.touch(rank, owner, span.buffer, line, writes);
      all.got += one.got;
      all.lost += one.lost;
      all.touches.push_back({row, one.memory, one.line, one.by, one.writes ? 1 : 0, one.got ? 1 : 0,
                             one.lost, one.holders});
    }
  };
  for (const comm::RowEvent& event : rows.events) {
    if (event.sends->kind == comm::Kind::signal) {
      ++all.signals;
      all.told.push_back({event.time, event.from, event.to});
      continue;
    }
    note(event.time, event.by, event.from, event.sends->src, false);
    note(event.time, event.by, event.to, event.receives->dst, true);
  }
  return all;
}

// Of a call where calls follow each other, in the fastest of a few series of them. Ranks that take
// turns on a core would show the turns, and are not measured.
json microseconds(const comm::Entry& entry, const LinesViewOptions& options) {
  constexpr int series = 5, calls = 40;
  if (options.ranks > static_cast<int>(std::thread::hardware_concurrency())) return nullptr;
  double least = 0;
  comm::run_ranks(options.ranks, [&](const comm::ProcessGroup& group) {
    const Tensor in = Tensor::zeros({options.count}), out = Tensor::zeros({options.count});
    for (int s = 0; s < series; ++s) {
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < calls; ++call) {
        group.run(comm::Collective::all_reduce, entry.name, out, in, {options.count}).wait();
      }
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      if (group.rank() == 0) least = s == 0 ? took.count() : std::min(least, took.count());
    }
  });
  return least / calls;
}

json algorithms_of(const LinesViewOptions& options) {
  json all = json::array();
  for (const comm::Entry& entry : comm::one_sided_algorithms()) {
    if (entry.what != comm::Collective::all_reduce || !entry.supports(options.ranks)) continue;
    const Traffic one = traffic(world_of(options).programs(entry));
    all.push_back({{"name", entry.name},
                   {"got", one.got},
                   {"lost", one.lost},
                   {"signals", one.signals},
                   {"us", microseconds(entry, options)}});
  }
  return all;
}

}  // namespace

json lines_json(const LinesViewOptions& options) {
  PEAL_CHECK(options.ranks >= 2 && options.ranks <= most_ranks,
             "view lines: --ranks: expected 2 to ", most_ranks, ", got ", options.ranks);
  PEAL_CHECK(options.count >= 1 && options.count <= most_count,
             "view lines: --count: expected 1 to ", most_count, ", got ", options.count);
  const comm::Entry entry = entry_named(comm::Collective::all_reduce, options.algorithm);
  PEAL_CHECK(entry.one_sided, "view lines: ", options.algorithm,
             " sends messages; expected an algorithm in memory that ranks share, as direct_slices");
  check_supports(entry, options.ranks);
  const auto programs = world_of(options).programs(entry);
  Traffic all = traffic(programs);
  std::int64_t room = 0, scratch = 0;
  for (const comm::Program& program : programs) {
    room = std::max(room, program.room);
    scratch = std::max(scratch, program.scratch);
  }
  const auto lines = [](std::int64_t elements) { return (elements + in_a_line - 1) / in_a_line; };
  return {
      {"kind", "lines"},
      {"title", fmt::format("Cache lines: all_reduce of {} f32 by {}, {} ranks", options.count,
                            options.algorithm, options.ranks)},
      {"intro",
       "Each square is a cache line, 64 bytes, of a rank's buffer; its colours are the ranks in "
       "whose caches it is. Who writes a line has it alone; who reads one that another has must "
       "wait for it to come. Left and right step, space plays."},
      {"algorithm", options.algorithm},
      {"ranks", options.ranks},
      {"rows", all.rows},
      {"lines", {lines(options.count), lines(options.count), lines(scratch), lines(room)}},
      {"touches", std::move(all.touches)},
      {"signals", std::move(all.told)},
      {"cores", std::thread::hardware_concurrency()},
      {"algorithms", algorithms_of(options)}};
}

}  // namespace peal::launch
