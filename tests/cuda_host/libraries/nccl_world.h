// SPDX-License-Identifier: Apache-2.0
// NCCL on the host, from within. What a rank puts into its stream in one group is one work there (a
// Part), which runs once the streams of all whom it meets have come to theirs. The first that runs
// moves the bytes for all. A part whose partners want something else never runs, as in NCCL; abort
// ends it. Rooms: nccl_communicator.cpp (who there is), nccl_launch.cpp (what goes into a stream),
// nccl_meeting.cpp (ranks meet), nccl_reduce.cpp (arithmetic). Everything under the simulator's
// lock().
#pragma once

#include "queue.h"

#include <nccl.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cuda_host::nccl {

enum class What { all_reduce, reduce, broadcast, all_gather, reduce_scatter, message };
constexpr const char* names[] = {"ncclAllReduce", "ncclReduce",        "ncclBroadcast",
                                 "ncclAllGather", "ncclReduceScatter", "a message"};

// What one rank brings to a meeting.
struct Share {
  What what = What::message;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  std::optional<double> factor{};  // of premul_sum
  int peer = 0;                    // of a message
  bool sends = false;
};

// What a graph has of NCCL keeps the communicator.
struct Part {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Share> shares{};
  std::optional<std::size_t> captured{};  // the communicator's so manieth in graphs
  std::shared_ptr<int> kept{};
  // Once it is in the stream.
  cuda_host::WorkRef work{};
  std::vector<std::shared_ptr<struct Meeting>> meetings{};
};

// A collective of all ranks, or a message of two.
struct Meeting {
  std::vector<std::shared_ptr<Part>> parts{};  // by rank, or sender and receiver; null: not come
  std::vector<Share> shares{};
  bool over = false, hopeless = false;
};

struct World {
  std::vector<ncclComm*> members{};  // null: not come
  std::vector<std::shared_ptr<Meeting>> collectives{};
  std::map<std::pair<int, int>, std::vector<std::shared_ptr<Meeting>>> messages{};  // from, to
  // Splits, by number: each rank's colour, key and communicator to be.
  std::vector<std::vector<std::optional<std::tuple<int, int, ncclComm*>>>> splits{};
};

}  // namespace cuda_host::nccl

struct ncclComm {
  std::shared_ptr<cuda_host::nccl::World> world{};  // null until it is known, for parts of a split
  int rank = 0, device = 0;
  bool aborted = false, finalized = false, destroyed = false;
  bool finalizes = false;  // within the call
  bool connects[2] = {};   // it has come to its first collective of each algorithm
  ncclResult_t error = ncclSuccess;
  std::string text{};
  std::vector<std::shared_ptr<cuda_host::nccl::Part>> parts{};  // in streams
  std::size_t collectives = 0, splits = 0, captured = 0;
  std::shared_ptr<int> in_graphs = std::make_shared<int>(0);  // shared with what graphs have of it
  std::map<std::pair<int, int>, std::size_t> messages{};
  std::vector<std::optional<double>> factors{};     // premul_sum's; empty: destroyed
  std::map<const char*, std::size_t> registered{};  // buffers, with their bytes
  int windows = 0;                                  // among them
  int window_calls = 0;
};

namespace cuda_host::nccl {

// Of all communicators together.
struct Counts {
  std::string hang{};  // what made a part wait for ever
  int registered = 0, collectives = 0, groups = 0;
  int on_registered = 0;                   // collectives whose buffers are all known
  std::map<const void*, int> allocated{};  // by ncclMemAlloc: how many communicators know it
  // What tests ask for: devices, as bits, and versions by device.
  unsigned held = 0, unsplit = 0, refused = 0, with_windows = 0;
  std::map<int, int> versions{};
  std::pair<int, int> config{};
  int windows = 0;
};
extern Counts counts;

// nccl_communicator.cpp
bool usable(const ncclComm* comm);
ncclResult_t wrong(ncclComm* comm, ncclResult_t result, std::string text);
// A buffer of the communicator's device, or nothing that is ever touched.
bool reachable(const ncclComm* comm, const void* data, std::size_t bytes);

// Whether the communicator knows all of it.
bool is_registered(const ncclComm* comm, const void* data, std::size_t bytes);

// nccl_launch.cpp: puts it into its stream.
ncclResult_t launch(const std::shared_ptr<Part>& part);

// nccl_meeting.cpp: the part brings its shares to their meetings; whether all streams have come to
// it, and what happens then.
void join(const std::shared_ptr<Part>& part);
bool all_come(Meeting& meeting);
void run(Part& part);

// nccl_reduce.cpp
std::size_t size_of(ncclDataType_t type);
std::vector<char> reduced(const Meeting& meeting, std::size_t count);

}  // namespace cuda_host::nccl
