// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/bench/perf/operation.h>

namespace peal::bench {
namespace {

using comm::Collective;
using Parts = std::vector<Expected>;

// Every rank gives and gets all of it.
Layout whole(std::int64_t count, std::int64_t, int) { return {count, count, count, 0, 0}; }

// A rank's share: parts begin at multiples of 16 bytes.
std::int64_t share(std::int64_t count, std::int64_t element_size, int ranks) {
  return count / ranks & ~(16 / element_size - 1);
}
Layout gathered(std::int64_t count, std::int64_t element_size, int ranks) {
  const std::int64_t part = share(count, element_size, ranks);
  return {part, part * ranks, part, part, 0};
}
Layout scattered(std::int64_t count, std::int64_t element_size, int ranks) {
  const std::int64_t part = share(count, element_size, ranks);
  return {part * ranks, part, part, 0, part};
}
Layout exchanged(std::int64_t count, std::int64_t element_size, int ranks) {
  const std::int64_t part = share(count, element_size, ranks);
  return {part * ranks, part * ranks, part, 0, 0};
}

Parts from_all(const Layout& layout, int ranks, std::int64_t first) {
  Parts parts;
  for (int r = 0; r < ranks; ++r) parts.push_back({r * layout.count, layout.count, r, first});
  return parts;
}

double one(int) { return 1; }
double twice_but_own(int n) { return 2.0 * (n - 1) / n; }
double all_but_own(int n) { return double(n - 1) / n; }

constexpr Operation operations[] = {
    {"all_reduce", "all_reduce_perf", "Allreduce", Collective::all_reduce, true, false, true, whole,
     [](const Layout& l, int, int, int) {
       return Parts{{0, l.recv, Expected::reduction, 0}};
     },
     twice_but_own, [](int n) { return 2.0 * n; }},
    {"all_gather", "all_gather_perf", "Allgather", Collective::all_gather, false, false, true,
     gathered, [](const Layout& l, int, int ranks, int) { return from_all(l, ranks, 0); },
     all_but_own, [](int n) { return 1.0 + n; }},
    {"reduce_scatter", "reduce_scatter_perf", "Reduce_scatter", Collective::reduce_scatter, true,
     false, true, scattered,
     [](const Layout& l, int rank, int, int) {
       return Parts{{0, l.recv, Expected::reduction, rank * l.recv}};
     },
     all_but_own, [](int n) { return 1.0 + n; }},
    {"broadcast", "broadcast_perf", "Bcast", Collective::broadcast, false, true, true, whole,
     [](const Layout& l, int, int, int root) {
       return Parts{{0, l.recv, root, 0}};
     },
     one, [](int n) { return double(n); }},
    {"reduce", "reduce_perf", "Reduce", Collective::reduce, true, true, true, whole,
     [](const Layout& l, int rank, int, int root) {
       return rank == root ? Parts{{0, l.recv, Expected::reduction, 0}} : Parts{};
     },
     one, [](int n) { return 1.0 + n; }},
    {"alltoall", "alltoall_perf", "Alltoall", Collective::all_to_all, false, false, false,
     exchanged,
     [](const Layout& l, int rank, int ranks, int) { return from_all(l, ranks, rank * l.count); },
     all_but_own, [](int n) { return 2.0 * n; }},
    {"gather", "gather_perf", "Gather", Collective::gather, false, true, true, gathered,
     [](const Layout& l, int rank, int ranks, int root) {
       return rank == root ? from_all(l, ranks, 0) : Parts{};
     },
     all_but_own, [](int n) { return 2.0 * (n - 1) / n; }},
    {"scatter", "scatter_perf", "Scatter", Collective::scatter, false, true, true, scattered,
     [](const Layout& l, int rank, int, int root) {
       return Parts{{0, l.recv, root, rank * l.recv}};
     },
     all_but_own, [](int n) { return 2.0 * (n - 1) / n; }},
    {"sendrecv", "sendrecv_perf", "", std::nullopt, false, false, false, whole,
     [](const Layout& l, int rank, int ranks, int) {
       return Parts{{0, l.recv, comm::wrap(rank - 1, ranks), 0}};
     },
     one, [](int n) { return 2.0 * n; }},
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
