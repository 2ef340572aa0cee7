// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/core/half.h>
#include <peal/comm/reduce/combine.h>
#include <peal/comm/transport/cuda_ipc/bytes.h>
#include <peal/comm/transport/cuda_ipc/exchange.h>
#include <peal/comm/transport/cuda_ipc/meet.h>

#include <algorithm>
#include <concepts>
#include <type_traits>

namespace peal::comm::ipc {
namespace {

// What a block does of a part in one turn: from `at` in the part, so many bytes.
struct Share {
  std::int64_t at, bytes;
};

__device__ std::int64_t up_to_16(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

// This block's share of a part is the same on all ranks: its length decides it alone.
__device__ Share share_of(std::int64_t part, std::int64_t turn, std::int64_t room) {
  const std::int64_t blocks = gridDim.x, whole = up_to_16((part + blocks - 1) / blocks);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * whole + turn * room;
  const std::int64_t end =
      std::min(std::min((static_cast<std::int64_t>(blockIdx.x) + 1) * whole, part), begin + room);
  return {begin, end > begin ? end - begin : 0};
}

__device__ std::int64_t slot_room(const Exchange& x) { return x.group.half / x.slots / 16 * 16; }

// Also without data a block goes to the meeting once.
__device__ std::int64_t turns_of(const Exchange& x, std::int64_t room) {
  const std::int64_t blocks = gridDim.x, whole = up_to_16((x.longest + blocks - 1) / blocks);
  return std::max<std::int64_t>(1, (whole + room - 1) / room);
}

// The block's counts, kept in its room between kernels.
struct Counts {
  Count meetings, turn;
};
__device__ Counts read_counts(const Group& group) {
  const Room& own = room_of(group, group.rank);
  return {own.meetings[blockIdx.x], own.turns[blockIdx.x]};
}
__device__ void keep_counts(const Group& group, const Counts& counts) {
  __syncthreads();  // everybody has read the old ones
  if (threadIdx.x != 0) return;
  Room& own = room_of(group, group.rank);
  own.meetings[blockIdx.x] = counts.meetings;
  own.turns[blockIdx.x] = counts.turn;
}

__device__ void lay_out(const Exchange& x, std::int64_t room, std::int64_t turn, Count half) {
  for (int s = 0; s < x.slots; ++s) {
    const Share share = share_of(x.laid[s].bytes, turn, room);
    move_bytes(half_of(x.group, x.group.rank, half) + s * room, x.in + x.laid[s].at + share.at,
               share.bytes);
  }
}

__global__ void exchange_copied(Exchange x) {
  const Group& group = x.group;
  Counts counts = read_counts(group);
  const std::int64_t room = slot_room(x), turns = turns_of(x, room);
  const int mine = x.slots == 1 ? 0 : group.rank;
  for (std::int64_t turn = 0; turn < turns; ++turn, ++counts.turn) {
    lay_out(x, room, turn, counts.turn);
    if (!meet(group, counts.meetings)) return;
    for (int i = 0; i < group.world; ++i) {
      const int source = (group.rank + i) % group.world;  // not all of them at one
      const bool there = x.in + x.laid[mine].at == x.out + x.taken[source].at;
      if (source == group.rank && there) continue;  // in place
      const Share share = share_of(x.taken[source].bytes, turn, room);
      move_bytes(x.out + x.taken[source].at + share.at,
                 half_of(group, source, counts.turn) + mine * room, share.bytes);
    }
  }
  keep_counts(group, counts);
}

template <class T>
struct alignas(16) Pack {
  static constexpr int width = 16 / sizeof(T);
  T at[width];
};

template <class T>
constexpr bool narrow = std::same_as<T, Half> || std::same_as<T, BFloat16>;
template <class T>
using Computed = std::conditional_t<narrow<T>, float, T>;

// Elements of all ranks, made one: from[0] (+) from[1] (+) ..., written to each of `to`.
template <class T>
struct Combination {
  using C = Computed<T>;
  using F = std::conditional_t<std::same_as<C, float>, float, double>;

  ReduceOp op;
  F before;  // what elements are multiplied by; exact where it is 1
  int sources, targets;
  std::int64_t count;
  const T* from[most_ranks];
  T* to[most_ranks];

  __device__ C first(T value) const {
    const C wide = static_cast<C>(value);
    if constexpr (std::is_floating_point_v<C>) {
      return wide * before;
    } else if constexpr (std::same_as<T, bool>) {
      return wide;
    } else {
      return op == ReduceOp::premul_sum ? static_cast<C>(static_cast<F>(wide) * before) : wide;
    }
  }

  __device__ T last(C value) const {
    if constexpr (std::is_floating_point_v<C>) {
      return static_cast<T>(op == ReduceOp::avg ? value / static_cast<C>(sources) : value);
    } else if constexpr (std::same_as<T, bool>) {
      return value;
    } else {
      return op == ReduceOp::avg ? static_cast<T>(static_cast<std::int64_t>(value) / sources)
                                 : value;
    }
  }

  __device__ bool aligned() const {
    std::uintptr_t bits = 0;
    for (int i = 0; i < sources; ++i) bits |= reinterpret_cast<std::uintptr_t>(from[i]);
    for (int i = 0; i < targets; ++i) bits |= reinterpret_cast<std::uintptr_t>(to[i]);
    return bits % 16 == 0;
  }

  template <class Combine>
  __device__ void operator()(Combine combine) const {
    using P = Pack<T>;
    // Packs on their way for a thread: many in what gradients are reduced with.
    constexpr int at_once = std::is_floating_point_v<C> && std::same_as<Combine, Added> ? 4 : 1;
    const std::int64_t whole = aligned() ? count / P::width : 0, step = blockDim.x;
    for (std::int64_t i = threadIdx.x; i < whole; i += at_once * step) {
      C sum[at_once][P::width] = {};
      for (int s = 0; s < sources; ++s) {
        P packs[at_once];
        for (int k = 0; k < at_once; ++k) {
          if (i + k * step < whole) packs[k] = reinterpret_cast<const P*>(from[s])[i + k * step];
        }
        for (int k = 0; k < at_once; ++k) {
          if (i + k * step >= whole) continue;
          for (int e = 0; e < P::width; ++e) {
            const C value = first(packs[k].at[e]);
            sum[k][e] = s == 0 ? value : combine(sum[k][e], value);
          }
        }
      }
      for (int k = 0; k < at_once; ++k) {
        if (i + k * step >= whole) continue;
        P result;
        for (int e = 0; e < P::width; ++e) result.at[e] = last(sum[k][e]);
        for (int t = 0; t < targets; ++t) reinterpret_cast<P*>(to[t])[i + k * step] = result;
      }
    }
    for (std::int64_t i = whole * P::width + threadIdx.x; i < count; i += step) {
      C sum = first(from[0][i]);
      for (int s = 1; s < sources; ++s) sum = combine(sum, first(from[s][i]));
      for (int t = 0; t < targets; ++t) to[t][i] = last(sum);
    }
  }
};

// True where everybody's tensors lie in one segment, so that all reach them.
__device__ bool reach_all(const Group& group, Count segment) {
  for (int r = 0; r < group.world; ++r) {
    if (room_of(group, group.rank).places[blockIdx.x][r].segment != segment) return false;
  }
  return segment != 0;
}

template <class T>
__global__ void exchange_reduced(Exchange x, Reduction reduction) {
  const Group& group = x.group;
  Counts counts = read_counts(group);
  const int mine = x.slots == 1 ? 0 : group.rank;
  Combination<T> all;
  using F = typename Combination<T>::F;
  all.op = reduction.op;
  all.before = static_cast<F>(reduction.op == ReduceOp::premul_sum ? reduction.factor : 1.0);
  all.sources = group.world;
  bool in_place = false;
  if (reduction.pushes) {
    if (static_cast<int>(threadIdx.x) < group.world) {
      room_of(group, static_cast<int>(threadIdx.x)).places[blockIdx.x][group.rank] =
          reduction.place;
    }
    if (!meet(group, counts.meetings)) return;
    in_place = reach_all(group, reduction.place.segment);
    if (in_place && blockIdx.x == 0 && threadIdx.x == 0) ++room_of(group, group.rank).in_place;
  }
  const std::int64_t room = in_place ? x.longest + 16 : slot_room(x);
  const std::int64_t turns = turns_of(x, room);
  const Part& part = x.taken[0];
  for (std::int64_t turn = 0; turn < turns; ++turn, ++counts.turn) {
    if (!in_place) {
      lay_out(x, room, turn, counts.turn);
      if (!meet(group, counts.meetings)) return;
    }
    const Share share = share_of(part.bytes, turn, room);
    all.count = share.bytes / static_cast<std::int64_t>(sizeof(T));
    all.targets = reduction.pushes ? group.world : 1;
    for (int r = 0; r < group.world; ++r) {
      const Place& place = room_of(group, group.rank).places[blockIdx.x][r];
      std::byte* half = half_of(group, r, counts.turn) + mine * room;
      std::byte* segment = in_place ? reduction.segments[r] + part.at + share.at : nullptr;
      all.from[r] = reinterpret_cast<const T*>(in_place ? segment + place.in : half);
      if (reduction.pushes) {
        all.to[r] = reinterpret_cast<T*>(in_place ? segment + place.out : half);
      }
    }
    if (!reduction.pushes) all.to[0] = reinterpret_cast<T*>(x.out + part.at + share.at);
    if (reduction.takes) with_combination<Computed<T>>(reduction.op, all);
    if (!reduction.pushes) continue;
    if (!meet(group, counts.meetings)) return;
    if (in_place) continue;
    for (int s = 0; s < x.slots; ++s) {
      const Share back = share_of(x.laid[s].bytes, turn, room);
      move_bytes(x.out + x.laid[s].at + back.at, half_of(group, group.rank, counts.turn) + s * room,
                 back.bytes);
    }
  }
  keep_counts(group, counts);
}

}  // namespace

int blocks_for(std::int64_t longest, int most) {
  constexpr std::int64_t enough = std::int64_t{cuda::block} * 64;  // bytes: four loads a thread
  return static_cast<int>(std::clamp<std::int64_t>((longest + enough - 1) / enough, 1, most));
}

void copy_exchange(Device device, const Exchange& exchange) {
  cuda::launch(device, blocks_for(exchange.longest, exchange.group.blocks), cuda::block,
               exchange_copied, exchange);
}

void reduce_exchange(Device device, const Exchange& exchange, const Reduction& reduction) {
  visit(reduction.dtype, [&]<class T>() {
    cuda::launch(device, blocks_for(exchange.longest, exchange.group.blocks), cuda::block,
                 exchange_reduced<T>, exchange, reduction);
  });
}

}  // namespace peal::comm::ipc
