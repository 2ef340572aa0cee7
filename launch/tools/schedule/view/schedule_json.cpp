// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/draw/rows.h>
#include <peal/comm/verify/well_formed.h>
#include <peal/launch/tools/schedule/story.h>
#include <peal/launch/tools/schedule/view/cells.h>
#include <peal/launch/tools/schedule/view/circle.h>
#include <peal/launch/tools/schedule/view/schedule_json.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <unordered_map>

namespace peal::launch {
namespace {

using comm::Buffer;
using comm::Program;
using comm::Span;
using comm::Step;
using nlohmann::json;

using Sizes = std::array<std::int64_t, comm::buffer_kinds>;  // elements, by Buffer

constexpr Buffer buffers[] = {Buffer::in, Buffer::out, Buffer::scratch, Buffer::room};

// Of the problem, or as far as any step reaches.
std::vector<Sizes> sizes_of(const ViewedSchedule& viewed) {
  std::vector<Sizes> all(viewed.programs.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (viewed.world != nullptr) {
      const comm::Problem problem = viewed.world->problem(rank);
      all[r][0] = in_count(problem);
      all[r][1] = out_count(problem);
    }
    all[r][2] = viewed.programs[r].scratch;
    all[r][3] = viewed.programs[r].room;
    for (const comm::Round& round : viewed.programs[r].rounds) {
      for (const Step& step : round) {
        for (const Span* span : {&step.src, &step.dst}) {
          auto& size = all[static_cast<std::size_t>(owner_of(*span, rank))]
                          [static_cast<std::size_t>(span->buffer)];
          size = std::max(size, span->at + span->count);
        }
      }
    }
  }
  return all;
}

// Which element the first of each rank's `in` is, as the verifier numbers them.
std::vector<std::int64_t> first_elements(comm::Collective what, const std::vector<Sizes>& sizes) {
  const bool through = what == comm::Collective::all_gather || what == comm::Collective::gather;
  std::vector<std::int64_t> first;
  std::int64_t at = 0;
  for (const Sizes& size : sizes) {
    first.push_back(at);
    if (through) at += size[0];
  }
  return first;
}

std::string bits(const std::vector<int>& ranks) {
  std::uint64_t all = 0;
  for (const int r : ranks) all |= std::uint64_t{1} << r;
  return fmt::format("{:x}", all);
}

// Neighbours of one cell: the same contributors, and elements that follow each other.
bool go_together(const comm::Held& a, const comm::Held& b) {
  return a.contributors == b.contributors && (a.contributors.empty() || a.element + 1 == b.element);
}

class ScheduleWriter {
 public:
  explicit ScheduleWriter(const ViewedSchedule& viewed)
      : viewed_(viewed),
        barrier_(viewed.what == comm::Collective::barrier),
        sizes_(sizes_of(viewed)),
        rows_(rows(viewed.programs, comm::Stuck::show)) {
    for (std::size_t r = 0; r < viewed.programs.size(); ++r) {
      const auto& rounds = viewed.programs[r].rounds;
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        for (const Step& step : rounds[i]) round_of_[&step] = i;
      }
    }
  }

  json written() {
    json all{{"kind", "schedule"},
             {"title", viewed_.title},
             {"collective", name(viewed_.what)},
             {"algorithm", viewed_.algorithm},
             {"ranks", viewed_.programs.size()},
             {"rows", rows_.count},
             {"damage", viewed_.damage}};
    if (viewed_.world != nullptr) {
      all["nodes"] = viewed_.world->nodes.node;
      all["counts"] = viewed_.world->counts;
      all["verdict"] = prove();
    }
    cut();
    all["buffers"] = json::array();
    for (const Buffer buffer : buffers) {
      all["buffers"].push_back({{"name", name(buffer)}, {"edges", edges(buffer)}});
    }
    all["sizes"] =
        barrier_ ? json(std::vector<Sizes>(sizes_.size(), Sizes{0, 1, 0, 0})) : json(sizes_);
    all["first"] = first_elements(viewed_.what, sizes_);
    if (!contents_.empty()) all["final"] = final_contents();
    all["events"] = events();
    all["waiting"] = waiting();
    all["circle"] = circle_of(rows_.waiting);
    all["prose"] = prose();
    all["costs"] = costs();
    all["timelines"] = timelines();
    return all;
  }

 private:
  json prove() {
    const comm::Problem problem = viewed_.world->problem();
    verdict_ = verify(problem, viewed_.programs, comm::Aliasing::out_of_place, contents_);
    json all{{"ok", verdict_.ok}, {"why", verdict_.why}, {"one_tree", verdict_.one_tree}};
    if (!verdict_.ok) {
      contents_ = viewed_.wanted != nullptr ? *viewed_.wanted : comm::Contents{};
    }
    if (has_in_place(viewed_.what)) {
      const auto in_place = verify(problem, viewed_.programs, comm::Aliasing::in_place);
      all["in_place"] = in_place.ok;
    }
    return all;
  }

  void cut() {
    for (const Sizes& size : sizes_) {
      for (const Buffer buffer : buffers) {
        if (size[static_cast<std::size_t>(buffer)] == 0) continue;
        cells_.cut(buffer, 0);
        cells_.cut(buffer, size[static_cast<std::size_t>(buffer)]);
      }
    }
    for (const auto& held : contents_) {
      for (std::size_t i = 1; i < held.size(); ++i) {
        if (!go_together(held[i - 1], held[i])) {
          cells_.cut(Buffer::out, static_cast<std::int64_t>(i));
        }
      }
    }
    cells_.cut(rows_);
  }

  std::vector<std::int64_t> edges(Buffer buffer) const {
    if (barrier_ && buffer == Buffer::out) return {0, 1};
    return cells_.edges(buffer);
  }

  std::int64_t round_of(const Step* step) const {
    return static_cast<std::int64_t>(round_of_.at(step));
  }

  json final_contents() const {
    json all = json::array();
    const auto everyone = [&] {
      std::vector<int> ranks;
      for (std::size_t r = 0; r < sizes_.size(); ++r) ranks.push_back(static_cast<int>(r));
      return ranks;
    };
    const auto cut = cells_.edges(Buffer::out);
    for (const auto& held : contents_) {
      json mine = json::array();
      if (barrier_) mine.push_back({0, bits(everyone())});
      for (std::size_t c = 0; c + 1 < cut.size(); ++c) {
        if (cut[c] >= static_cast<std::int64_t>(held.size())) break;
        const comm::Held& one = held[static_cast<std::size_t>(cut[c])];
        mine.push_back({one.element, bits(one.contributors)});
      }
      all.push_back(std::move(mine));
    }
    return all;
  }

  json events() const {
    json all = json::array();
    for (const comm::RowEvent& e : rows_.events) {
      const Span &src = e.sends->src, &dst = e.receives->dst;
      auto [src_cell, src_cells] = cells_.of(src);
      auto [dst_cell, dst_cells] = cells_.of(dst);
      int from = static_cast<int>(src.buffer), to = static_cast<int>(dst.buffer);
      if (barrier_) {  // news
        src_cell = dst_cell = 0;
        src_cells = dst_cells = 1;
        from = to = static_cast<int>(Buffer::out);
      }
      all.push_back({e.time, static_cast<int>(e.receives->kind), e.from, e.to, e.by, from, src_cell,
                     src_cells, to, dst_cell, dst_cells, round_of(e.sends), round_of(e.receives)});
    }
    return all;
  }

  json waiting() const {
    json all = json::array();
    for (const comm::RowWaiting& w : rows_.waiting) {
      const auto [cell, count] = cells_.of(w.span());
      all.push_back({w.time, w.rank, w.step->peer, static_cast<int>(w.step->kind),
                     static_cast<int>(w.span().buffer), cell, count, round_of(w.step)});
    }
    return all;
  }

  // As explain tells it; of what is not right, what is done, and not what is there then.
  json prose() const {
    std::unique_ptr<Story> story;
    if (verdict_.ok) story = std::make_unique<Story>(*viewed_.world, viewed_.programs);
    const bool briefly = viewed_.programs.size() > 16;
    json all = json::array();
    for (std::size_t r = 0; r < viewed_.programs.size(); ++r) {
      json mine = json::array();
      const auto& rounds = viewed_.programs[r].rounds;
      for (std::size_t i = 0; i < rounds.size(); ++i) {
        std::string said = words(rounds[i]) + ".";
        if (story && !briefly) {
          if (const std::string& held = story->after(static_cast<int>(r), i); !held.empty()) {
            said += " Then it has " + held + ".";
          }
        }
        mine.push_back(std::move(said));
      }
      all.push_back(std::move(mine));
    }
    return all;
  }

  json costs() const {
    comm::Cost most;
    for (const Program& program : viewed_.programs) {
      const comm::Cost c = cost(program);
      most = {std::max(most.rounds, c.rounds), std::max(most.sent, c.sent),
              std::max(most.received, c.received), std::max(most.reduced, c.reduced)};
    }
    return {{"rounds", most.rounds}, {"sent", most.sent}, {"reduced", most.reduced}};
  }

  json timelines() const {
    json all = json::array();
    const auto nanoseconds = [](double seconds) { return std::llround(seconds * 1e9); };
    for (const comm::NamedTimeline& named : viewed_.timelines) {
      json bars = json::array();
      double end = 0;
      for (const comm::Activity& a : named.timeline->activities) {
        const std::int64_t begin = nanoseconds(a.begin), moves = nanoseconds(a.moves);
        bars.push_back({a.rank, static_cast<int>(a.kind), a.round, begin, moves - begin,
                        nanoseconds(a.end) - moves});
        end = std::max(end, a.end);
      }
      all.push_back({{"name", named.name}, {"end", nanoseconds(end)}, {"bars", std::move(bars)}});
    }
    return all;
  }

  const ViewedSchedule& viewed_;
  bool barrier_;
  std::vector<Sizes> sizes_;  // by rank
  comm::Rows rows_;
  std::unordered_map<const Step*, std::size_t> round_of_;
  Cells cells_;
  comm::Verdict verdict_;
  comm::Contents contents_;
};

}  // namespace

json schedule_json(const ViewedSchedule& viewed) {
  PEAL_CHECK(viewed.programs.size() <= std::size_t{Story::most_ranks}, "view: expected at most ",
             Story::most_ranks, " ranks, got ", viewed.programs.size());
  return ScheduleWriter(viewed).written();
}

}  // namespace peal::launch
