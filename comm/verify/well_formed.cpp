// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/verify/well_formed.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

std::string text(const Span& span) {
  return std::string(name(span.buffer)) + "[" + std::to_string(span.at) + ", " +
         std::to_string(span.at + span.count) + ")" +
         (span.owner == self ? "" : " of rank " + std::to_string(span.owner));
}

class Checker {
 public:
  Checker(const Problem& problem, const Program& program, std::span<const Layout> layouts)
      : problem_(problem), program_(program), layouts_(layouts) {}

  void check() const {
    for (std::size_t round = 0; round < program_.rounds.size(); ++round) {
      for (std::size_t step = 0; step < program_.rounds[round].size(); ++step) {
        check_step({problem_.rank, round, step});
      }
      check_overlaps(round);
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Place& place, const Parts&... parts) const {
    reject(where(program_, place), ": expected ", parts...);
  }

  bool is_other_rank(int rank) const {
    return rank >= 0 && rank < problem_.world && rank != problem_.rank;
  }
  const Layout& layout_of(const Span& span) const {
    return layouts_[static_cast<std::size_t>(owner_of(span, problem_.rank))];
  }

  void check_node(const Place& place, int rank) const {
    if (share_memory(problem_.nodes, rank, problem_.rank)) return;
    refuse(place, "a rank of the same node, for others share no memory, got rank ", rank);
  }

  void check_span(const Place& place, const Step& step, const Span& span,
                  std::string_view which) const {
    if (span.owner != self) {
      if (is_message(step.kind)) {
        refuse(place, which, " in the rank's own memory, got one of rank ", span.owner);
      }
      if (!is_other_rank(span.owner)) {
        refuse(place, which, " of one of the other ranks below ", problem_.world,
               ", or none named, got one of rank ", span.owner);
      }
      check_node(place, span.owner);
    }
    if (static_cast<int>(span.buffer) >= buffer_kinds)
      refuse(place, which, " in a buffer that exists");
    const bool may_be_empty = is_message(step.kind) && problem_.what == Collective::barrier;
    const int least = may_be_empty ? 0 : 1;
    if (span.count < least) {
      refuse(place, which, " of at least ", least, " elements, got ", span.count);
    }
    const std::int64_t size = layout_of(span).size[static_cast<int>(span.buffer)];
    if (span.at < 0 || span.count > size || span.at > size - span.count) {
      refuse(place, which, " inside ", name(span.buffer), "[0, ", size, "), got ", text(span));
    }
  }

  void check_step(const Place& place) const {
    const Step& s = program_.rounds[place.round][place.step];
    if (s.kind > Kind::await) refuse(place, "a kind of step that exists");
    const bool has_peer = is_message(s.kind) || s.kind == Kind::signal || s.kind == Kind::await;
    if (has_peer && !is_other_rank(s.peer)) {
      refuse(place, "a peer among the other ranks below ", problem_.world, ", got ", s.peer);
    }
    if (has_peer && !is_message(s.kind)) check_node(place, s.peer);
    if (!has_peer && s.peer != nobody) {
      refuse(place, "no peer in a local step, got ", s.peer);
    }
    if (!reads_src(s.kind) && s.src != Span{}) {
      refuse(place, "the unused source to be empty, got ", text(s.src));
    }
    if (!writes_dst(s.kind) && s.dst != Span{}) {
      refuse(place, "the unused destination to be empty, got ", text(s.dst));
    }
    if (reads_src(s.kind)) check_span(place, s, s.src, "a source");
    if (!writes_dst(s.kind)) return;
    check_span(place, s, s.dst, "a destination");
    if (s.dst.buffer == Buffer::in && s.dst.count > 0) {
      refuse(place, "a destination in out, scratch or room, got in, which is read-only");
    }
    if (reads_src(s.kind) && s.dst.count != s.src.count) {
      refuse(place, s.dst.count, " elements, got a source of ", s.src.count);
    }
  }

  struct Access {
    int owner;
    std::int64_t begin, end;
    bool write;
    std::size_t step;
  };

  std::vector<Access> accesses(const Round& round) const {
    std::vector<Access> all;
    for (std::size_t i = 0; i < round.size(); ++i) {
      const Step& s = round[i];
      const bool onto_itself = s.kind == Kind::copy && s.dst.owner == s.src.owner &&
                               layout_of(s.dst).start(s.dst) == layout_of(s.src).start(s.src);
      if (onto_itself) continue;
      const auto touch = [&](const Span& span, bool write) {
        const std::int64_t begin = layout_of(span).start(span);
        if (span.count > 0) all.push_back({span.owner, begin, begin + span.count, write, i});
      };
      if (reads_src(s.kind)) touch(s.src, false);
      if (writes_dst(s.kind)) touch(s.dst, true);
    }
    return all;
  }

  // In order of their begin, a range overlaps an earlier one if it begins before the furthest end
  // so far.
  void check_overlaps(std::size_t round) const {
    std::vector<Access> all = accesses(program_.rounds[round]);
    std::ranges::sort(all, [](const Access& a, const Access& b) {
      return std::pair(a.owner, a.begin) < std::pair(b.owner, b.begin);
    });
    const Access *furthest = nullptr, *furthest_write = nullptr;
    for (const Access& a : all) {
      if (furthest && furthest->owner != a.owner) furthest = furthest_write = nullptr;
      const Access* earlier = a.write ? furthest : furthest_write;
      if (earlier && a.begin < earlier->end) {
        refuse({problem_.rank, round, a.step}, "elements of its own, got some that step ",
               earlier->step, earlier->write ? " writes" : " reads",
               " in the same round: ", where(program_, {problem_.rank, round, earlier->step}));
      }
      if (!furthest || a.end > furthest->end) furthest = &a;
      if (a.write && (!furthest_write || a.end > furthest_write->end)) furthest_write = &a;
    }
  }

  const Problem& problem_;
  const Program& program_;
  std::span<const Layout> layouts_;
};

}  // namespace

Layout lay_out(const Problem& problem, const Program& program, bool in_place) {
  for (const auto& [what, size] : {std::pair("scratch", program.scratch), {"room", program.room}}) {
    if (size < 0) {
      reject("rank ", problem.rank, ": expected ", what, " of at least 0, got ", size);
    }
  }
  Layout layout;
  layout.size[0] = in_count(problem);
  layout.size[1] = out_count(problem);
  layout.size[2] = program.scratch;
  if (in_place) {
    const std::int64_t offset = in_place_offset(problem);  // in == out + offset
    layout.base[0] = std::max<std::int64_t>(offset, 0);
    layout.base[1] = std::max<std::int64_t>(-offset, 0);
  } else {
    layout.base[1] = layout.size[0];
  }
  layout.base[2] = std::max(layout.base[0] + layout.size[0], layout.base[1] + layout.size[1]);
  layout.base[3] = layout.base[2] + layout.size[2];
  layout.size[3] = program.room;
  layout.total = layout.base[3] + layout.size[3];
  return layout;
}

std::string where(const Program& program, const Place& place) {
  const Step& s = program.rounds[place.round][place.step];
  std::string words = "rank " + std::to_string(place.rank) + ", round " +
                      std::to_string(place.round) + ", step " + std::to_string(place.step) + " (" +
                      std::string(name(s.kind));
  if (s.peer != nobody) {
    words += (s.kind == Kind::send || s.kind == Kind::signal ? " to " : " from ") +
             std::to_string(s.peer);
  }
  if (reads_src(s.kind)) words += " of " + text(s.src);
  if (writes_dst(s.kind)) words += " into " + text(s.dst);
  return words + ")";
}

void check_well_formed(const Problem& problem, const Program& program,
                       std::span<const Layout> layouts) {
  Checker(problem, program, layouts).check();
}

}  // namespace peal::comm
