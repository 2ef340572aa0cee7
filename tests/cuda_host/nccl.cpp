// SPDX-License-Identifier: Apache-2.0
// NCCL on the host. What a rank puts into its stream in one group is one work there (a Part), which
// runs once the streams of all whom it meets have come to theirs. The first that runs moves the
// bytes for all. A part whose partners want something else never runs, as in NCCL; abort ends it.
#include "nccl.h"

#include "device.h"
#include "memory.h"
#include "queue.h"
#include "random.h"

#include <nccl.h>
#include <peal/autograd/core/half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <vector>

namespace {

using cuda_host::lock;

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
};

struct Part {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  cuda_host::WorkRef work{};  // null until it is in the stream
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

std::string hang;
bool refuse = false;
int registered = 0, collectives = 0, groups = 0;

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static auto& all = *new std::map<std::string, std::shared_ptr<World>>;
  return all;
}

}  // namespace

struct ncclComm {
  std::shared_ptr<World> world{};  // null until it is known, for parts of a split
  int rank = 0, device = 0;
  bool blocking = true, aborted = false, finalized = false, destroyed = false;
  int busy = 0;  // polls until what was asked is done
  ncclResult_t error = ncclSuccess;
  std::string text{};
  std::vector<std::shared_ptr<Part>> waiting{};  // to be put into their streams
  std::vector<std::shared_ptr<Part>> parts{};    // in streams
  std::size_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, std::size_t> messages{};
  std::vector<std::optional<double>> factors{};  // premul_sum's; empty: destroyed
};

namespace {

// Never freed: a handle that is used too late is an error, not a crash.
std::vector<std::unique_ptr<ncclComm>>& communicators() {
  static auto& all = *new std::vector<std::unique_ptr<ncclComm>>;
  return all;
}

ncclComm* make(int device, const ncclConfig_t* config) {
  communicators().push_back(std::make_unique<ncclComm>());
  ncclComm* comm = communicators().back().get();
  comm->device = device;
  comm->blocking = config == nullptr || config->blocking != 0;
  return comm;
}

bool usable(const ncclComm* comm) {
  return comm != nullptr && !comm->aborted && !comm->destroyed && comm->world != nullptr &&
         comm->busy == 0 && comm->error == ncclSuccess;
}

ncclResult_t wrong(ncclComm* comm, ncclResult_t result, std::string text) {
  if (comm != nullptr) comm->text = std::move(text);
  return result;
}

// A work has come to its turn, or is done.
bool reached(const Part& part) {
  if (part.work == nullptr) return false;
  if (part.work->done) return true;
  const auto& queue = part.work->stream->queue;
  if (queue.empty() || queue.front() != part.work) return false;
  return std::all_of(part.work->after.begin(), part.work->after.end(),
                     [](const auto& before) { return before->done; });
}

std::string mismatch(const Meeting& meeting) {
  const Share& first = meeting.shares[0];
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

bool all_come(Meeting& meeting) {
  if (meeting.over) return true;
  if (meeting.hopeless) return false;
  for (const auto& part : meeting.parts) {
    if (part == nullptr || part->comm->aborted || !reached(*part)) return false;
  }
  const std::string problem = mismatch(meeting);
  if (problem.empty()) return true;
  meeting.hopeless = true;
  hang = problem;
  return false;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

// Floating types as double, integers as 64 bits that wrap.
template <class T, class Wide>
void reduce(const Meeting& meeting, std::vector<char>& result) {
  const std::size_t count = result.size() / sizeof(T);
  const Share& first = meeting.shares[0];
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum{};
    for (std::size_t r = 0; r < meeting.shares.size(); ++r) {
      const Share& share = meeting.shares[r];
      T element;
      std::memcpy(&element, static_cast<const char*>(share.in) + i * sizeof(T), sizeof(T));
      Wide value;
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<Wide>(static_cast<std::int64_t>(element));
      } else {
        value = static_cast<Wide>(element);
        if (share.factor) value *= *share.factor;
      }
      if (r == 0) {
        sum = value;
        continue;
      }
      const auto less = [](Wide a, Wide b) {
        if constexpr (std::is_integral_v<Wide>) {
          return static_cast<std::int64_t>(a) < static_cast<std::int64_t>(b);
        } else {
          return a < b;
        }
      };
      switch (first.op) {
        case ncclProd:
          sum = sum * value;
          break;
        case ncclMin:
          sum = less(value, sum) ? value : sum;
          break;
        case ncclMax:
          sum = less(sum, value) ? value : sum;
          break;
        default:
          sum = sum + value;
      }
    }
    if constexpr (!std::is_integral_v<T>) {
      if (first.op == ncclAvg) sum /= static_cast<double>(meeting.shares.size());
    }
    T element;
    if constexpr (std::is_same_v<T, peal::Half> || std::is_same_v<T, peal::BFloat16>) {
      element = T(static_cast<float>(sum));
    } else {
      element = static_cast<T>(sum);
    }
    std::memcpy(result.data() + i * sizeof(T), &element, sizeof(T));
  }
}

std::vector<char> reduced(const Meeting& meeting, std::size_t count) {
  const ncclDataType_t type = meeting.shares[0].type;
  std::vector<char> result(count * size_of(type));
  switch (type) {
    case ncclInt8:
      reduce<std::int8_t, std::uint64_t>(meeting, result);
      break;
    case ncclUint8:
      reduce<std::uint8_t, std::uint64_t>(meeting, result);
      break;
    case ncclInt32:
      reduce<std::int32_t, std::uint64_t>(meeting, result);
      break;
    case ncclInt64:
      reduce<std::int64_t, std::uint64_t>(meeting, result);
      break;
    case ncclFloat16:
      reduce<peal::Half, double>(meeting, result);
      break;
    case ncclBfloat16:
      reduce<peal::BFloat16, double>(meeting, result);
      break;
    case ncclFloat32:
      reduce<float, double>(meeting, result);
      break;
    default:
      reduce<double, double>(meeting, result);
  }
  return result;
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

ncclResult_t launch(ncclComm* comm) {
  for (const auto& part : comm->waiting) {
    CUstream_st* stream = cuda_host::stream_of(part->stream);
    if (stream == nullptr || stream->device != comm->device) {
      return wrong(comm, ncclInvalidArgument, "the stream is of another device, or of none");
    }
    const auto ready = [part] {
      return part->comm->aborted || std::all_of(part->meetings.begin(), part->meetings.end(),
                                                [](const auto& m) { return all_come(*m); });
    };
    if (cuda_host::enqueue(stream, {.run = [part] { run(*part); }, .ready = ready}) !=
        cudaSuccess) {
      return ncclUnhandledCudaError;
    }
    part->work = stream->last;
    comm->parts.push_back(part);
  }
  comm->waiting.clear();
  return ncclSuccess;
}

// The end of a call: at once, or some polls later.
ncclResult_t done(ncclComm* comm) {
  if (comm->blocking) return launch(comm);
  if (cuda_host::below(2) == 0) {
    comm->busy = static_cast<int>(1 + cuda_host::below(3));
    return ncclInProgress;
  }
  return launch(comm);
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

std::shared_ptr<Part> shared(const Part& part) {
  return *std::find_if(group.parts.begin(), group.parts.end(),
                       [&](const auto& one) { return one.get() == &part; });
}

void join(const std::shared_ptr<Meeting>& meeting, std::size_t place, std::size_t places,
          Part& part, const Share& share) {
  meeting->parts.resize(places);
  meeting->shares.resize(places);
  meeting->parts[place] = shared(part);
  meeting->shares[place] = share;
  part.meetings.push_back(meeting);
}

std::shared_ptr<Meeting>& nth(std::vector<std::shared_ptr<Meeting>>& list, std::size_t n) {
  if (list.size() <= n) list.resize(n + 1);
  if (list[n] == nullptr) list[n] = std::make_shared<Meeting>();
  return list[n];
}

// A buffer of the communicator's device, or nothing that is ever touched.
bool reachable(const ncclComm* comm, const void* data, std::size_t bytes) {
  return bytes == 0 ||
         (cuda_host::device_of(data) == comm->device && cuda_host::room_at(data) >= bytes);
}

ncclResult_t collective(ncclComm* comm, cudaStream_t stream, Share share, std::size_t in_count,
                        std::size_t out_count) {
  const auto guard = lock();
  if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is busy, or gone");
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
  ++collectives;
  join(nth(comm->world->collectives, comm->collectives++), static_cast<std::size_t>(comm->rank),
       comm->world->members.size(), part_of(comm, stream), share);
  return ncclGroupEnd();
}

ncclResult_t message(ncclComm* comm, cudaStream_t stream, const Share& share, int peer,
                     bool sends) {
  const auto guard = lock();
  if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is busy, or gone");
  const auto ranks = static_cast<int>(comm->world->members.size());
  const void* data = sends ? share.in : share.out;
  if (peer < 0 || peer >= ranks || !reachable(comm, data, share.count * size_of(share.type))) {
    return wrong(comm, ncclInvalidArgument, "no such peer, or a buffer that is not on its device");
  }
  ++group.depth;
  const std::pair<int, int> link =
      sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank);
  // Own messages count apart as sent and as received.
  auto& number = comm->messages[sends ? link : std::pair(-1 - link.first, link.second)];
  join(nth(comm->world->messages[link], number++), sends ? 0 : 1, 2, part_of(comm, stream), share);
  return ncclGroupEnd();
}

std::string duplicate(const World& world) {
  for (std::size_t a = 0; refuse && a < world.members.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (world.members[a]->device != world.members[b]->device) continue;
      return "Duplicate GPU detected : rank " + std::to_string(b) + " and rank " +
             std::to_string(a) + " both on CUDA device " + std::to_string(world.members[a]->device);
    }
  }
  return "";
}

bool complete(const World& world) {
  return std::find(world.members.begin(), world.members.end(), nullptr) == world.members.end();
}

// A split is over once all have said their colour: then those of one colour are a world.
void try_split(World& world, std::size_t number) {
  const auto& said = world.splits[number];
  if (std::find(said.begin(), said.end(), std::nullopt) != said.end()) return;
  std::map<int, std::vector<std::tuple<int, int, ncclComm*>>> by_colour;
  for (std::size_t r = 0; r < said.size(); ++r) {
    const auto& [colour, key, comm] = *said[r];
    if (comm != nullptr) by_colour[colour].emplace_back(key, static_cast<int>(r), comm);
  }
  for (auto& [colour, members] : by_colour) {
    std::sort(members.begin(), members.end());
    const auto part = std::make_shared<World>();
    for (const auto& [key, rank, comm] : members) {
      comm->world = part;
      comm->rank = static_cast<int>(part->members.size());
      part->members.push_back(comm);
    }
  }
}

ncclResult_t state(ncclComm* comm) {
  if (comm->error != ncclSuccess) return comm->error;
  if (comm->world == nullptr || !complete(*comm->world)) return ncclInProgress;
  if (comm->splits > 0) {
    const auto& said = comm->world->splits[comm->splits - 1];
    if (std::find(said.begin(), said.end(), std::nullopt) != said.end()) return ncclInProgress;
  }
  const std::string problem = duplicate(*comm->world);
  if (!problem.empty()) return comm->error = wrong(comm, ncclInvalidUsage, problem);
  if (comm->busy > 0 && --comm->busy > 0) return ncclInProgress;
  if (!comm->waiting.empty()) comm->error = launch(comm);
  if (comm->finalized) {
    for (const auto& part : comm->parts) {
      if (!cuda_host::nudge(part->work)) return ncclInProgress;
    }
  }
  std::erase_if(comm->parts, [](const auto& part) { return part->work->done; });
  return comm->error;
}

ncclResult_t settled(ncclComm* comm) {
  while (true) {
    {
      const auto guard = lock();
      const ncclResult_t now = state(comm);
      if (now != ncclInProgress) return now;
    }
    std::this_thread::yield();
  }
}

}  // namespace

namespace cuda_host {

std::string nccl_hang() {
  const auto guard = lock();
  return hang;
}
void nccl_refuse_shared_devices(bool value) {
  const auto guard = lock();
  refuse = value;
}
int nccl_registered() {
  const auto guard = lock();
  return registered;
}
int nccl_collectives() {
  const auto guard = lock();
  return collectives;
}
int nccl_groups() {
  const auto guard = lock();
  return groups;
}

}  // namespace cuda_host

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return result < ncclNumResults ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm == nullptr ? "" : comm->text.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const auto guard = lock();
  static std::uint64_t next = 1;
  *id = {};
  std::memcpy(id->internal, &next, sizeof next);
  ++next;
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (comm == nullptr || ranks < 1 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  if (config != nullptr && config->magic != 0xcafebeef) return ncclInvalidArgument;
  {
    const auto guard = lock();
    auto& world = worlds()[std::string(id.internal, sizeof id.internal)];
    if (world == nullptr) {
      world = std::make_shared<World>();
      world->members.resize(static_cast<std::size_t>(ranks));
    }
    if (world->members.size() != static_cast<std::size_t>(ranks) ||
        world->members[static_cast<std::size_t>(rank)] != nullptr) {
      return ncclInvalidUsage;
    }
    *comm = make(cuda_host::current_device(), config);
    (*comm)->world = world;
    (*comm)->rank = rank;
    world->members[static_cast<std::size_t>(rank)] = *comm;
  }
  return (*comm)->blocking ? settled(*comm) : ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  {
    const auto guard = lock();
    if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is busy, or gone");
    for (const auto& one : comm->parts) {
      if (!one->work->done) return wrong(comm, ncclInvalidUsage, "operations are outstanding");
    }
    World& world = *comm->world;
    *part = colour == NCCL_SPLIT_NOCOLOR ? nullptr : make(comm->device, config);
    const std::size_t number = comm->splits++;
    if (world.splits.size() <= number) world.splits.resize(number + 1);
    world.splits[number].resize(world.members.size());
    world.splits[number][static_cast<std::size_t>(comm->rank)] = std::tuple(colour, key, *part);
    try_split(world, number);
  }
  return comm->blocking ? settled(comm) : ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  {
    const auto guard = lock();
    if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is busy, or gone");
    comm->finalized = true;
    comm->busy = static_cast<int>(cuda_host::below(3));
  }
  return comm->blocking ? settled(comm) : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  comm->destroyed = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  comm->aborted = true;
  comm->waiting.clear();
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  *error = state(comm);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* data) {
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  const auto guard = lock();
  if (!usable(comm) || !reachable(comm, data, bytes)) return ncclInvalidArgument;
  *handle = data;
  ++registered;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  --registered;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const auto guard = lock();
  if (!usable(comm) || residence != ncclScalarHostImmediate) return ncclInvalidArgument;
  double factor = 0;
  switch (type) {
    case ncclFloat16:
      factor = *static_cast<peal::Half*>(scalar);
      break;
    case ncclBfloat16:
      factor = *static_cast<peal::BFloat16*>(scalar);
      break;
    case ncclFloat32:
      factor = *static_cast<float*>(scalar);
      break;
    case ncclFloat64:
      factor = *static_cast<double*>(scalar);
      break;
    default:
      return wrong(comm, ncclInvalidArgument, "the stand-in has premul_sum for floating types");
  }
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->factors.size()));
  comm->factors.push_back(factor);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const auto guard = lock();
  const auto k = static_cast<std::size_t>(op - ncclNumOps);
  if (!usable(comm) || op < ncclNumOps || k >= comm->factors.size() || !comm->factors[k]) {
    return wrong(comm, ncclInvalidArgument, "no such reduction, or it is in use");
  }
  comm->factors[k].reset();
  return ncclSuccess;
}

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
    ++groups;
    part->comm->waiting.push_back(part);
    const ncclResult_t one = done(part->comm);
    if (result == ncclSuccess || one != ncclInProgress) result = one;
  }
  return result;
}
