// SPDX-License-Identifier: Apache-2.0
// What NCCL puts into a stream: collectives and messages, alone or in groups.
#include "nccl_world.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace cuda_host::nccl {

namespace {

// Each replay of a graph is a part of its own.
Work work_of(const std::shared_ptr<Part>& part) {
  return {.run = [part] { run(*part); },
          .ready =
              [part] {
                return part->comm->aborted ||
                       std::all_of(part->meetings.begin(), part->meetings.end(),
                                   [](const auto& m) { return all_come(*m); });
              },
          .begin =
              [part](const WorkRef& work) {
                part->work = work;
                join(part);
                part->comm->parts.push_back(part);
              },
          .anew =
              [part] {
                return work_of(std::make_shared<Part>(Part{.comm = part->comm,
                                                           .stream = part->stream,
                                                           .shares = part->shares,
                                                           .captured = part->captured}));
              }};
}

}  // namespace

ncclResult_t launch(const std::shared_ptr<Part>& part) {
  ncclComm* const comm = part->comm;
  CUstream_st* stream = cuda_host::stream_of(part->stream);
  if (stream == nullptr || stream->device != comm->device) {
    return wrong(comm, ncclInvalidArgument, "the stream is of another device, or of none");
  }
  if (stream->capture != nullptr) {
    part->captured = comm->captured++;
    part->kept = comm->in_graphs;
  }
  return cuda_host::enqueue(stream, work_of(part)) == cudaSuccess ? ncclSuccess
                                                                  : ncclUnhandledCudaError;
}

}  // namespace cuda_host::nccl

namespace {

using namespace cuda_host::nccl;
using cuda_host::lock;

// Ranks are connected by the first collective of all, and once more by the first for which NCCL
// chooses another algorithm, by size. Each waits for that within its call. False after an abort.
bool connected(ncclComm* comm, std::size_t count) {
  const std::size_t algorithm = count < 1500 ? 0 : 1;
  while (true) {
    {
      const auto guard = lock();
      if (comm == nullptr || comm->world == nullptr) return true;  // what it is, others say
      if (comm->aborted) return false;
      comm->connects[algorithm] = true;
      const auto& members = comm->world->members;
      const auto comes = [&](const ncclComm* each) {
        return each != nullptr && each->connects[algorithm];
      };
      if (std::all_of(members.begin(), members.end(), comes)) return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// The group that the thread is in: depth, and what each communicator's stream will get.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::shared_ptr<Part>> parts;
};
thread_local Group group;

Part& part_of(ncclComm* comm, cudaStream_t stream) {
  for (const auto& part : group.parts) {
    if (part->comm == comm && part->stream == stream) return *part;
  }
  group.parts.push_back(std::make_shared<Part>(Part{.comm = comm, .stream = stream}));
  return *group.parts.back();
}

ncclResult_t collective(ncclComm* comm, cudaStream_t stream, Share share, std::size_t in_count,
                        std::size_t out_count) {
  if (!connected(comm, share.count)) return ncclInternalError;
  const auto guard = lock();
  if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is gone");
  const std::size_t size = size_of(share.type);
  if (share.type >= ncclNumTypes || !reachable(comm, share.in, in_count * size) ||
      !reachable(comm, share.out, out_count * size)) {
    return wrong(comm, ncclInvalidArgument, "a buffer is not, or not whole, on its device");
  }
  if (share.op >= ncclNumOps) {
    const auto k = static_cast<std::size_t>(share.op - ncclNumOps);
    if (k >= comm->factors.size() || !comm->factors[k]) {
      return wrong(comm, ncclInvalidArgument, "a reduction that is not, or no more");
    }
    share.factor = comm->factors[k];
    share.op = ncclSum;
  }
  ++group.depth;
  if (is_registered(comm, share.in, in_count * size) &&
      is_registered(comm, share.out, out_count * size)) {
    ++counts.on_registered;
  }
  part_of(comm, stream).shares.push_back(share);
  return ncclGroupEnd();
}

ncclResult_t message(ncclComm* comm, cudaStream_t stream, Share share, int peer, bool sends) {
  const auto guard = lock();
  if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is gone");
  const auto ranks = static_cast<int>(comm->world->members.size());
  const void* data = sends ? share.in : share.out;
  if (peer < 0 || peer >= ranks || !reachable(comm, data, share.count * size_of(share.type))) {
    return wrong(comm, ncclInvalidArgument, "no such peer, or a buffer that is not on its device");
  }
  ++group.depth;
  share.peer = peer;
  share.sends = sends;
  part_of(comm, stream).shares.push_back(share);
  return ncclGroupEnd();
}

}  // namespace

ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  const bool here = comm != nullptr && comm->rank == root;
  return collective(comm, stream, {What::reduce, in, out, count, type, op, root}, count,
                    here ? count : 0);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const bool here = comm != nullptr && comm->rank == root;
  return collective(comm, stream, {What::broadcast, in, out, count, type, ncclSum, root},
                    here ? count : 0, count);
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, stream, {What::all_reduce, in, out, count, type, op}, count, count);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t ranks = comm == nullptr || !comm->world ? 0 : comm->world->members.size();
  return collective(comm, stream, {What::reduce_scatter, in, out, count, type, op}, count * ranks,
                    count);
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t ranks = comm == nullptr || !comm->world ? 0 : comm->world->members.size();
  return collective(comm, stream, {What::all_gather, in, out, count, type}, count, count * ranks);
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return message(comm, stream, {What::message, data, nullptr, count, type}, peer, true);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return message(comm, stream, {What::message, nullptr, data, count, type}, peer, false);
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const auto guard = lock();
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  std::vector<std::shared_ptr<Part>> parts = std::move(group.parts);
  group.parts.clear();
  ncclResult_t result = ncclSuccess;
  for (const auto& part : parts) {
    const ncclResult_t one = launch(part);
    if (result == ncclSuccess) result = one;
  }
  return result;
}
