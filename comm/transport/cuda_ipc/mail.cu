// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/launch.h>
#include <peal/comm/transport/cuda_ipc/bytes.h>
#include <peal/comm/transport/cuda_ipc/mail.h>
#include <peal/comm/transport/cuda_ipc/signals.h>

#include <algorithm>

namespace peal::comm::ipc {
namespace {

__device__ std::byte* place_of(const Group& group, int owner, int from, Count parcel) {
  const auto number = static_cast<std::int64_t>(from) * 2 + static_cast<std::int64_t>(parcel % 2);
  return group.windows[owner] + group.mail_at() + number * group.parcel;
}

// By all threads, when one has seen it. False: ended.
template <class There>
__device__ bool until(const Group& group, There there) {
  int ended = 0;
  if (threadIdx.x == 0) ended = await(group, there) ? 0 : 1;
  return __syncthreads_or(ended) == 0;
}

__device__ bool send(const Group& group, const Letter& letter, Count& sent) {
  Window& theirs = window_of(group, letter.peer);
  Count* taken = &window_of(group, group.rank).taken[letter.peer];
  for (std::int64_t at = 0; at < letter.bytes; at += group.parcel, ++sent) {
    const auto has_place = [&] { return acquire(taken) + 1 >= sent; };
    if (sent >= 2 && !until(group, has_place)) return false;
    move_bytes(place_of(group, letter.peer, group.rank, sent), letter.data + at,
               std::min(group.parcel, letter.bytes - at));
    __syncthreads();
    if (threadIdx.x == 0) {
      release(&theirs.delivered[group.rank][sent % 2], (sent + 1) << 16 | group.signature);
    }
  }
  return true;
}

__device__ bool receive(const Group& group, const Letter& letter, Count& got) {
  Window& theirs = window_of(group, letter.peer);
  Count* delivered = window_of(group, group.rank).delivered[letter.peer];
  for (std::int64_t at = 0; at < letter.bytes; at += group.parcel, ++got) {
    // Its place is not filled anew before it is taken. A parcel of another call is none.
    const Count mine = (got + 1) << 16 | group.signature;
    if (!until(group, [&] { return acquire(delivered + got % 2) == mine; })) return false;
    move_bytes(letter.data + at, place_of(group, group.rank, letter.peer, got),
               std::min(group.parcel, letter.bytes - at));
    __syncthreads();
    if (threadIdx.x == 0) release(&theirs.taken[group.rank], got + 1);
  }
  return true;
}

// Block 2p sends to rank p, block 2p + 1 receives from it.
__global__ void pass_letters(Round round) {
  const Group& group = round.group;
  Window& own = window_of(group, group.rank);
  const int peer = static_cast<int>(blockIdx.x / 2);
  const bool sends = blockIdx.x % 2 == 0;
  Count& kept = sends ? own.mailed[peer] : own.got[peer];
  Count count = kept;
  for (int i = 0; i < round.count; ++i) {
    const Letter& letter = round.letters[i];
    if (letter.peer != peer || letter.sent != sends) continue;
    if (!(sends ? send(group, letter, count) : receive(group, letter, count))) return;
  }
  __syncthreads();  // everybody has read the old count
  if (threadIdx.x == 0) kept = count;
}

}  // namespace

void pass_mail(Device device, const Round& round) {
  cuda::launch(device, 2 * round.group.world, cuda::block, pass_letters, round);
}

}  // namespace peal::comm::ipc
