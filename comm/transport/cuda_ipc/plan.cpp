// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/schedule/mix.h>
#include <peal/comm/transport/cuda_ipc/plan.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace peal::comm::ipc {

unsigned signature(const NativeCall& call) {
  std::uint64_t hash = 1;
  for (const auto word :
       {static_cast<std::uint64_t>(call.what), static_cast<std::uint64_t>(call.dtype),
        static_cast<std::uint64_t>(call.op), static_cast<std::uint64_t>(call.root)}) {
    mix(hash, word);
  }
  for (const std::int64_t count : call.counts) mix(hash, static_cast<std::uint64_t>(count));
  return static_cast<unsigned>(hash >> 48);
}

Exchange plan_exchange(const Group& group, const NativeCall& call, bool two_shot) {
  Exchange x = {};
  x.group = group;
  x.in = call.in;
  x.out = call.out;
  x.slots = 1;
  const auto size = static_cast<std::int64_t>(size_of(call.dtype));
  const auto me = static_cast<std::size_t>(group.rank), root = static_cast<std::size_t>(call.root);
  const auto world = static_cast<std::size_t>(group.world);
  const auto bytes = [&](std::size_t i) { return call.counts[i] * size; };
  const auto before = [&](std::size_t i) {
    return std::accumulate(call.counts.begin(),
                           call.counts.begin() + static_cast<std::ptrdiff_t>(i), std::int64_t{0}) *
           size;
  };
  for (std::size_t i = 0; i < call.counts.size(); ++i) x.longest = std::max(x.longest, bytes(i));
  switch (call.what) {
    case Collective::all_reduce:
      if (two_shot) {
        x.slots = group.world;
        x.longest = ((bytes(0) + group.world - 1) / group.world + 15) / 16 * 16;
        for (std::size_t r = 0; r < world; ++r) {
          const std::int64_t at = std::min(static_cast<std::int64_t>(r) * x.longest, bytes(0));
          x.laid[r] = {at, std::min(x.longest, bytes(0) - at)};
        }
        x.taken[0] = x.laid[me];
        break;
      }
      x.laid[0] = x.taken[0] = {0, bytes(0)};
      break;
    case Collective::reduce:
      x.laid[0] = x.taken[0] = {0, bytes(0)};
      break;
    case Collective::broadcast:
      if (me == root) x.laid[0] = {0, bytes(0)};
      x.taken[root] = {0, bytes(0)};
      break;
    case Collective::all_gather:
    case Collective::gather:
      x.laid[0] = {0, bytes(me)};
      if (call.what == Collective::gather && me != root) break;
      for (std::size_t r = 0; r < world; ++r) x.taken[r] = {before(r), bytes(r)};
      break;
    case Collective::reduce_scatter:
      x.slots = group.world;
      for (std::size_t r = 0; r < world; ++r) x.laid[r] = {before(r), bytes(r)};
      x.taken[0] = {0, bytes(me)};
      break;
    case Collective::scatter:
      x.slots = group.world;
      for (std::size_t r = 0; r < world && me == root; ++r) x.laid[r] = {before(r), bytes(r)};
      x.taken[root] = {0, bytes(me)};
      break;
    case Collective::all_to_all: {
      x.slots = group.world;
      std::int64_t in = 0, out = 0;
      for (std::size_t r = 0; r < world; ++r) {
        x.laid[r] = {in, bytes(me * world + r)};
        x.taken[r] = {out, bytes(r * world + me)};
        in += x.laid[r].bytes;
        out += x.taken[r].bytes;
      }
      break;
    }
    case Collective::barrier:
      break;
  }
  return x;
}

}  // namespace peal::comm::ipc
