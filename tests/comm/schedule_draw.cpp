// SPDX-License-Identifier: Apache-2.0
#include "schedule_worlds.h"

#include <doctest/doctest.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/draw/draw.h>
#include <peal/comm/simulate/simulate.h>

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <string>

namespace peal::comm {
namespace {

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("a ring of five, as a student sees it") {
  const World world{Collective::all_reduce, 5, 0, {10}};
  CHECK(draw(world.programs(*find(Collective::all_reduce, "ring"))) ==
        R"(time   rank 0     rank 1     rank 2     rank 3     rank 4
0      0-4=in     0-4=in     0-4=in     0-4=in     0-4=in
1      0>1 4+<4   1>2 0+<0   2>3 1+<1   3>4 2+<2   4>0 3+<3
2      4>1 3+<4   0>2 4+<0   1>3 0+<1   2>4 1+<2   3>0 2+<3
3      3>1 2+<4   4>2 3+<0   0>3 4+<1   1>4 0+<2   2>0 1+<3
4      2>1 1+<4   3>2 2+<0   4>3 3+<1   0>4 4+<2   1>0 0+<3
5      1>1 0<4    2>2 1<0    3>3 2<1    4>4 3<2    0>0 4<3
6      0>1 4<4    1>2 0<0    2>3 1<1    3>4 2<2    4>0 3<3
7      4>1 3<4    0>2 4<0    1>3 0<1    2>4 1<2    3>0 2<3
8      3>1 2<4    4>2 3<0    0>3 4<1    1>4 0<2    2>0 1<3
)");
}

TEST_CASE("rows are time, not the rank's own rounds") {
  const World tree{Collective::broadcast, 4, 0, {1}};
  CHECK(draw(tree.programs(*find(Collective::broadcast, "binomial"))) ==
        R"(time   rank 0   rank 1   rank 2   rank 3
0      in>2              out<0
1      in>1     out<0    out>3    out<2
2      out=in
)");
  for (int p = 1; p <= 33; ++p) {
    const World world{Collective::broadcast, p, 0, {1}};
    const std::string text = draw(world.programs(*find(Collective::broadcast, "binomial")));
    // A heading, ceil(log2 p) rows of messages, and the root's own copy.
    CHECK(std::ranges::count(text, '\n') == 2 + std::bit_width(static_cast<unsigned>(p - 1)));
  }
}

TEST_CASE("scratch, local reductions, empty messages") {
  const World pair{Collective::all_reduce, 2, 0, {3}};
  CHECK(draw(pair.programs(*find(Collective::all_reduce, "recursive_doubling"))) ==
        R"(time   rank 0            rank 1
0      out=in            out=in
1      out>1 scratch<1   out>0 scratch<0
2      out+=scratch      out+=scratch
)");
  const World barrier{Collective::barrier, 2, 0, {}};
  CHECK(draw(barrier.programs(*find(Collective::barrier, "dissemination"))) ==
        "time   rank 0   rank 1\n0      >1 <1    >0 <0\n");
}

TEST_CASE("memory of others") {
  const World pair{Collective::all_reduce, 2, 0, {2}};
  const auto programs = pair.programs(one_sided_algorithms().front());
  CHECK(draw(programs) ==
        R"(time   rank 0                  rank 1
0      >1 <1                   >0 <0
1      scratch=in0             scratch=in1@0
2      scratch+=in0@1          scratch+=in1
3      0=scratch 0@1=scratch   1@0=scratch 1=scratch
4      >1 <1                   >0 <0
)");
  const std::string picture = svg(programs, "");
  CHECK(occurrences(picture, "class='arrow'") == 4 + 2 + 2);  // signals, reads, stores
}

TEST_CASE("a picture has an arrow a message") {
  const World world{Collective::all_reduce, 5, 0, {10}};
  const std::string picture =
      svg(world.programs(*find(Collective::all_reduce, "ring")), "a < b & c");
  CHECK(picture.starts_with("<svg "));
  CHECK(picture.ends_with("</svg>\n"));
  CHECK(occurrences(picture, "class='arrow'") == 5 * 8);
  CHECK(occurrences(picture, "stroke-dasharray") == 5 * 4);
  CHECK(occurrences(picture, "a &lt; b &amp; c") == 1);
  CHECK(occurrences(picture, ">rank 4</text>") == 1);
}

TEST_CASE("a picture has a frame a node") {
  const World world{Collective::all_reduce, 4, 0, {8}};
  const auto programs = world.programs(*find(Collective::all_reduce, "ring"));
  const Topology nodes{{0, 0, 1, 1}};
  const std::string picture = svg(programs, "", {.nodes = &nodes});
  CHECK(occurrences(picture, "class='node'") == 2);
  CHECK(occurrences(picture, ">node 1</text>") == 1);
  CHECK(occurrences(svg(programs, ""), "class='node'") == 0);
}

TEST_CASE("what does not match cannot be drawn") {
  const Program lonely{0, {{send(1, in({0, 1}))}}};
  CHECK_THROWS_WITH_AS(draw(std::vector<Program>{lonely, {}}),
                       "draw: rank 0 never ends its round 0; verify the programs first",
                       std::invalid_argument);
  const Program lost{0, {{send(7, in({0, 1}))}}};
  CHECK_THROWS_AS(svg(std::vector<Program>{lost}, ""), std::invalid_argument);
}

TEST_CASE("but it can be drawn as what it is: who is stuck, and on what") {
  const World pair{Collective::all_reduce, 2, 0, {3}};
  auto programs = pair.programs(*find(Collective::all_reduce, "recursive_doubling"));
  programs[1].rounds[1].pop_back();  // its receive
  CHECK(draw(programs, Stuck::show) == R"(time   rank 0             rank 1
0      out=in             out=in
1      scratch<1 out>1?   out>0
2                         out+=scratch
)");
  const std::string picture =
      svg(programs, "broken", {.stuck = Stuck::show, .note = "what the verifier says"});
  CHECK(occurrences(picture, "class='stuck'") == 1);
  CHECK(occurrences(picture, "waits: out to rank 1?") == 1);
  CHECK(occurrences(picture, "what the verifier says") == 1);
}

TEST_CASE("a timeline as a picture and as a trace") {
  const World world{Collective::all_reduce, 3, 0, {6}};
  const Entry& ring = *find(Collective::all_reduce, "ring");
  const Machine machine{.nodes = single_node(3),
                        .inside = {1e-6, 1e-9},
                        .between = {},
                        .reduce = 1e-9,
                        .stragglers = {{1, 5e-6, 1}}};
  const Timeline timeline = simulate(
                                3, [&](int rank) { return plan(ring, world.problem(rank)); }, 4,
                                machine, Record::timeline)
                                .timeline;
  const std::string picture = svg(timeline, "a < b");
  CHECK(picture.starts_with("<svg "));
  CHECK(picture.ends_with("</svg>\n"));
  CHECK(occurrences(picture, "a &lt; b") == 1);
  CHECK(occurrences(picture, "<title>send to ") >= 3 * 4);
  CHECK(occurrences(picture, "opacity='0.25'") > 0);  // rank 2 waits for rank 1
  const std::string trace = chrome_trace(timeline);
  CHECK(occurrences(trace, "\"ph\":\"X\"") == timeline.activities.size());
  CHECK(occurrences(trace, "\"process_name\"") == 3);
  CHECK(occurrences(trace, "\"ph\":\"s\"") == 3 * 4);
  CHECK(occurrences(trace, "\"ph\":\"f\"") == 3 * 4);
  CHECK(occurrences(trace, "\"id\":\"11\"") == 2);
  CHECK(occurrences(trace, "{") == occurrences(trace, "}"));
  CHECK(svg(Timeline{1, {}}, "").ends_with("</svg>\n"));
}

}  // namespace
}  // namespace peal::comm
