// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the verifier can say of one rank's program without running it: that each step has the fields
// of its kind and no others, stays inside buffers that exist, and that the steps of a round leave
// each other's elements alone.

#include <peal/comm/schedule/schedule.h>

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace peal::comm {

// Thrown inside the verifier only; verify() makes a Verdict of it.
struct Rejected {
  std::string why;
};

template <class... Parts>
[[noreturn]] void reject(const Parts&... parts) {
  std::string why;
  const auto put = [&why](const auto& part) {
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      why += std::to_string(part);
    } else {
      why += part;
    }
  };
  (put(parts), ...);
  throw Rejected{std::move(why)};
}

constexpr bool is_message(Kind kind) {
  return kind == Kind::send || kind == Kind::recv || kind == Kind::recv_reduce;
}
constexpr bool reads_src(Kind kind) {
  return kind == Kind::send || kind == Kind::copy || kind == Kind::reduce;
}
constexpr bool writes_dst(Kind kind) {
  return kind == Kind::recv || kind == Kind::recv_reduce || kind == Kind::copy ||
         kind == Kind::reduce;
}

// A rank's buffers as parts of one array; in place, `in` and `out` overlap.
struct Layout {
  std::int64_t base[buffer_kinds] = {}, size[buffer_kinds] = {};  // by Buffer
  std::int64_t total = 0;

  std::int64_t start(const Span& span) const {
    return base[static_cast<int>(span.buffer)] + span.at;
  }
};
Layout lay_out(const Problem& problem, const Program& program, bool in_place);

struct Place {
  int rank = 0;
  std::size_t round = 0, step = 0;
};

// "rank 2, round 0, step 1 (send to 3 of out[0, 4))"
std::string where(const Program& program, const Place& place);

// One can have one-sided steps in the memory of the other.
inline bool share_memory(const Topology& nodes, int a, int b) {
  return nodes.node[static_cast<std::size_t>(a)] == nodes.node[static_cast<std::size_t>(b)];
}

// Whose memory a rank means.
constexpr int owner_of(const Span& span, int rank) {
  return span.owner == self ? rank : span.owner;
}

// Checks the program of problem.rank; a layout a rank. Throws Rejected.
void check_well_formed(const Problem& problem, const Program& program,
                       std::span<const Layout> layouts);

}  // namespace peal::comm
