// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/operation.h>

namespace peal::bench {
namespace {

using comm::Collective;
using Parts = std::vector<Expected>;

// Every rank gives and gets all of it.
Layout whole(std::int64_t each, int) { return {each, each, each, 0, 0}; }
Layout gathered(std::int64_t each, int ranks) { return {each, each * ranks, each, each, 0}; }
Layout scattered(std::int64_t each, int ranks) { return {each * ranks, each, each, 0, each}; }
Layout exchanged(std::int64_t each, int ranks) { return {each * ranks, each * ranks, each, 0, 0}; }

Parts from_all(const Layout& layout, int ranks, std::int64_t first) {
  Parts parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r * layout.count, layout.count, r, first});
  return parts;
}

double one(int) { return 1; }
double twice_but_own(int n) { return 2.0 * (n - 1) / n; }
double all_but_own(int n) { return double(n - 1) / n; }

Parts reduction(const Layout& layout, int, int, int) {
  return {{0, layout.recv, Expected::reduction, 0}};
}

constexpr Operation operations[] = {
    {.name = "all_reduce",
     .osu = "Allreduce",
     .what = Collective::all_reduce,
     .reduces = true,
     .layout = whole,
     .expected = reduction,
     .bus_factor = twice_but_own,
     .traffic = [](int n) { return 2.0 * n; }},
    {.name = "all_gather",
     .osu = "Allgather",
     .what = Collective::all_gather,
     .shares = true,
     .layout = gathered,
     .expected = [](const Layout& l, int, int ranks, int) { return from_all(l, ranks, 0); },
     .bus_factor = all_but_own,
     .traffic = [](int n) { return 1.0 + n; }},
    {.name = "reduce_scatter",
     .osu = "Reduce_scatter",
     .what = Collective::reduce_scatter,
     .reduces = true,
     .shares = true,
     .layout = scattered,
     .expected = [](const Layout& l, int rank, int, int) -> Parts {
       return {{0, l.recv, Expected::reduction, rank * l.recv}};
     },
     .bus_factor = all_but_own,
     .traffic = [](int n) { return 1.0 + n; }},
    {.name = "broadcast",
     .osu = "Broadcast",
     .what = Collective::broadcast,
     .rooted = true,
     .layout = whole,
     .expected = [](const Layout& l, int, int, int root) -> Parts {
       return {{0, l.recv, root, 0}};
     },
     .bus_factor = one,
     .traffic = [](int n) { return double(n); }},
    {.name = "reduce",
     .osu = "Reduce",
     .what = Collective::reduce,
     .reduces = true,
     .rooted = true,
     .layout = whole,
     .expected = [](const Layout& l, int rank, int ranks, int root) -> Parts {
       return rank == root ? reduction(l, rank, ranks, root) : Parts{};
     },
     .bus_factor = one,
     .traffic = [](int n) { return 1.0 + n; }},
    {.name = "alltoall",
     .osu = "All-to-All Personalized Exchange",
     .what = Collective::all_to_all,
     .has_in_place = false,
     .shares = true,
     .layout = exchanged,
     .expected = [](const Layout& l, int rank, int ranks,
                    int) { return from_all(l, ranks, rank * l.count); },
     .bus_factor = all_but_own,
     .traffic = [](int n) { return 2.0 * n; }},
    {.name = "gather",
     .osu = "Gather",
     .what = Collective::gather,
     .rooted = true,
     .shares = true,
     .layout = gathered,
     .expected = [](const Layout& l, int rank, int ranks, int root) -> Parts {
       return rank == root ? from_all(l, ranks, 0) : Parts{};
     },
     .bus_factor = all_but_own,
     .traffic = twice_but_own},
    {.name = "scatter",
     .osu = "Scatter",
     .what = Collective::scatter,
     .rooted = true,
     .shares = true,
     .layout = scattered,
     .expected = [](const Layout& l, int rank, int, int root) -> Parts {
       return {{0, l.recv, root, rank * l.recv}};
     },
     .bus_factor = all_but_own,
     .traffic = twice_but_own},
    {.name = "sendrecv",
     .osu = "",
     .has_in_place = false,
     .layout = whole,
     .expected = [](const Layout& l, int rank, int ranks, int) -> Parts {
       return {{0, l.recv, comm::wrap(rank - 1, ranks), 0}};
     },
     .bus_factor = one,
     .traffic = [](int n) { return 2.0 * n; }},
};

void copy(const View& to, const View& from) {
  if (from.count == 0) return;
  memory_space(to.device())
      .copy(to.data(), to.device(), from.data(), from.device(), from.bytes(), false);
}

// Each rank to the next one.
comm::Work pass_on(const comm::ProcessGroup& group, const Place& place) {
  const int rank = group.rank(), world = group.world();
  if (world == 1) {
    copy(place.recv, place.send);
    return {};
  }
  return group.batch_isend_irecv(
      {{comm::Direction::recv, place.recv, comm::wrap(rank - 1, world)},
       {comm::Direction::send, place.send, comm::wrap(rank + 1, world)}});
}

}  // namespace

const Operation& operation_named(std::string_view name) {
  for (const Operation& operation : operations) {
    if (operation.name == name) return operation;
  }
  fail(concat("there is no operation '", name, "'"));
}

Layout layout_of(const Operation& operation, std::int64_t count, std::int64_t element_size,
                 int ranks) {
  const std::int64_t share = count / ranks & ~(16 / element_size - 1);
  return operation.layout(operation.shares ? share : count, ranks);
}

comm::Work start(const comm::ProcessGroup& group, const Operation& operation, const Place& place,
                 bool in_place, comm::ReduceOp op, int root) {
  if (!operation.what) return pass_on(group, place);
  const bool here = group.rank() == root;
  switch (*operation.what) {
    case Collective::all_reduce:
      return in_place ? group.all_reduce(place.recv, op)
                      : group.all_reduce(place.recv, place.send, op);
    case Collective::all_gather:
      return group.all_gather(place.recv, place.send);
    case Collective::reduce_scatter:
      return group.reduce_scatter(place.recv, place.send, op);
    case Collective::broadcast:
      if (!in_place && here) copy(place.recv, place.send);
      return group.broadcast(place.recv, root);
    case Collective::reduce:
      if (!in_place && here) copy(place.recv, place.send);
      return group.reduce(in_place || here ? place.recv : place.send, root, op);
    case Collective::all_to_all:
      return group.all_to_all(place.recv, place.send);
    case Collective::gather:
      return group.gather(place.recv, place.send, root);
    case Collective::scatter:
      return group.scatter(place.recv, place.send, root);
    case Collective::barrier:
      break;
  }
  fail("a barrier moves nothing");
}

}  // namespace peal::bench
