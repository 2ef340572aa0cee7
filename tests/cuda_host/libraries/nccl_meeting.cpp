// SPDX-License-Identifier: Apache-2.0
// Ranks meet: a collective or a message happens once the streams of all have come to it.
#include "memory.h"
#include "nccl_world.h"

#include <algorithm>
#include <cstring>

namespace cuda_host::nccl {
namespace {

// A work has come to its turn, or is done.
bool reached(const Part& part) {
  if (part.work == nullptr) return false;
  if (part.work->done) return true;
  const auto& queue = part.work->stream->queue;
  if (queue.empty() || queue.front() != part.work) return false;
  return std::all_of(part.work->after.begin(), part.work->after.end(),
                     [](const auto& before) { return before->done; });
}

std::shared_ptr<Meeting>& nth(std::vector<std::shared_ptr<Meeting>>& list, std::size_t n) {
  if (list.size() <= n) list.resize(n + 1);
  if (list[n] == nullptr) list[n] = std::make_shared<Meeting>();
  return list[n];
}

// What is captured meets its like alone: ranks replay the same graphs in the same order.
std::string mismatch(const Meeting& meeting) {
  const Share& first = meeting.shares[0];
  for (const auto& part : meeting.parts) {
    if (part->captured == meeting.parts[0]->captured) continue;
    return std::string(names[static_cast<int>(first.what)]) +
           " of a graph meets what is not the same one: NCCL would hang, or worse";
  }
  for (std::size_t r = 1; r < meeting.shares.size(); ++r) {
    const Share& share = meeting.shares[r];
    const bool message = first.what == What::message;
    if (share.what == first.what && share.count == first.count && share.type == first.type &&
        (message || (share.op == first.op && share.root == first.root &&
                     share.factor.has_value() == first.factor.has_value()))) {
      continue;
    }
    return std::string(names[static_cast<int>(first.what)]) + " of " + std::to_string(first.count) +
           " elements meets " + names[static_cast<int>(share.what)] + " of " +
           std::to_string(share.count) + ": NCCL would hang, or worse";
  }
  return "";
}

void hold(Meeting& meeting) {
  const auto& shares = meeting.shares;
  const Share& first = shares[0];
  const std::size_t bytes = first.count * size_of(first.type), ranks = shares.size();
  const auto put = [](void* to, const char* from, std::size_t n) {
    if (n != 0) std::memmove(to, from, n);
  };
  switch (first.what) {
    case What::message:
      put(shares[1].out, static_cast<const char*>(shares[0].in), bytes);
      break;
    case What::all_reduce: {
      const auto result = reduced(meeting, first.count);
      for (const Share& share : shares) put(share.out, result.data(), bytes);
      break;
    }
    case What::reduce: {
      const auto result = reduced(meeting, first.count);
      put(shares[static_cast<std::size_t>(first.root)].out, result.data(), bytes);
      break;
    }
    case What::broadcast: {
      const auto* from = static_cast<const char*>(shares[static_cast<std::size_t>(first.root)].in);
      const std::vector<char> data(from, from + bytes);
      for (const Share& share : shares) put(share.out, data.data(), bytes);
      break;
    }
    case What::all_gather: {
      std::vector<char> all;
      for (const Share& share : shares) {
        const auto* from = static_cast<const char*>(share.in);
        all.insert(all.end(), from, from + bytes);
      }
      for (const Share& share : shares) put(share.out, all.data(), all.size());
      break;
    }
    case What::reduce_scatter: {
      const auto result = reduced(meeting, first.count * ranks);
      for (std::size_t r = 0; r < ranks; ++r) put(shares[r].out, result.data() + r * bytes, bytes);
    }
  }
  meeting.over = true;
}

}  // namespace

void join(const std::shared_ptr<Part>& part) {
  ncclComm* const comm = part->comm;
  World& world = *comm->world;
  ++counts.groups;
  for (const Share& share : part->shares) {
    std::size_t place = static_cast<std::size_t>(comm->rank), places = world.members.size();
    std::shared_ptr<Meeting> meeting;
    if (share.what == What::message) {
      const std::pair<int, int> link =
          share.sends ? std::pair(comm->rank, share.peer) : std::pair(share.peer, comm->rank);
      // Own messages count apart as sent and as received.
      auto& number = comm->messages[share.sends ? link : std::pair(-1 - link.first, link.second)];
      meeting = nth(world.messages[link], number++);
      place = share.sends ? 0 : 1;
      places = 2;
    } else {
      ++counts.collectives;
      meeting = nth(world.collectives, comm->collectives++);
    }
    meeting->parts.resize(places);
    meeting->shares.resize(places);
    meeting->parts[place] = part;
    meeting->shares[place] = share;
    part->meetings.push_back(meeting);
  }
}

bool all_come(Meeting& meeting) {
  if (meeting.over) return true;
  if (meeting.hopeless) return false;
  for (const auto& part : meeting.parts) {
    if (part == nullptr || part->comm->aborted || !reached(*part)) return false;
  }
  const std::string problem = mismatch(meeting);
  if (problem.empty()) return true;
  meeting.hopeless = true;
  counts.hang = problem;
  return false;
}

void run(Part& part) {
  if (part.comm->aborted) return;
  unsigned devices = 0;
  for (const auto& meeting : part.meetings) {
    for (const auto& other : meeting->parts) devices |= 1u << other->comm->device;
  }
  const cuda_host::Access access(devices);
  for (const auto& meeting : part.meetings) {
    if (!meeting->over) hold(*meeting);
  }
}

}  // namespace cuda_host::nccl
