// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators on the host: made, split, asked, ended. They are blocking.
#include "device.h"
#include "memory.h"
#include "nccl_for_tests.h"
#include "nccl_world.h"

#include <nccl.h>
#include <peal/autograd/core/half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <thread>

namespace cuda_host::nccl {

Counts counts;

bool usable(const ncclComm* comm) {
  return comm != nullptr && !comm->aborted && !comm->destroyed && comm->world != nullptr &&
         comm->error == ncclSuccess;
}

bool is_registered(const ncclComm* comm, const void* data, std::size_t bytes) {
  const char* const begin = static_cast<const char*>(data);
  auto next = comm->registered.upper_bound(begin);
  if (next == comm->registered.begin()) return false;
  --next;
  return begin + bytes <= next->first + next->second;
}

ncclResult_t wrong(ncclComm* comm, ncclResult_t result, std::string text) {
  if (comm != nullptr) comm->text = std::move(text);
  return result;
}

bool reachable(const ncclComm* comm, const void* data, std::size_t bytes) {
  return bytes == 0 ||
         (cuda_host::device_of(data) == comm->device && cuda_host::room_at(data) >= bytes);
}

}  // namespace cuda_host::nccl

namespace {

using namespace cuda_host::nccl;
using cuda_host::lock;

bool refuse = false;

std::map<std::string, std::shared_ptr<World>>& worlds() {
  static auto& all = *new std::map<std::string, std::shared_ptr<World>>;
  return all;
}

// Never freed: a handle that is used too late is an error, not a crash.
std::vector<std::unique_ptr<ncclComm>>& communicators() {
  static auto& all = *new std::vector<std::unique_ptr<ncclComm>>;
  return all;
}

ncclComm* make(int device, const ncclConfig_t* config) {
  communicators().push_back(std::make_unique<ncclComm>());
  ncclComm* comm = communicators().back().get();
  comm->device = device;
  counts.config = {config->maxCTAs, config->CTAPolicy};
  return comm;
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
  if (comm->finalized) {
    for (const auto& part : comm->parts) {
      if (!cuda_host::nudge(part->work)) return ncclInProgress;
    }
  }
  std::erase_if(comm->parts, [](const auto& part) { return part->work->done; });
  return comm->error;
}

bool held(int device) {
  const auto guard = lock();
  return (counts.held >> device & 1u) != 0;
}

void forget(const void* data) {
  --counts.registered;
  if (const auto found = counts.allocated.find(data); found != counts.allocated.end())
    --found->second;
}

// Its end is the end of what it knows.
void forget_all(ncclComm* comm) {
  for (const auto& [data, bytes] : std::exchange(comm->registered, {})) forget(data);
  counts.windows -= std::exchange(comm->windows, 0);
}

ncclResult_t settled(ncclComm* comm) {
  while (true) {
    {
      const auto guard = lock();
      if (comm->aborted) return ncclInternalError;
      const ncclResult_t now = state(comm);
      if (now != ncclInProgress) return now;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// As many as this rank, within their calls. False after an abort.
bool all_make_windows(ncclComm* comm) {
  while (true) {
    {
      const auto guard = lock();
      if (!usable(comm)) return false;
      const auto& members = comm->world->members;
      const auto comes = [&](const ncclComm* each) {
        return each->window_calls >= comm->window_calls;
      };
      if (std::all_of(members.begin(), members.end(), comes)) return true;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

namespace cuda_host {

std::string nccl_hang() {
  const auto guard = lock();
  return counts.hang;
}
void nccl_refuse_shared_devices(bool value) {
  const auto guard = lock();
  refuse = value;
}
void nccl_hold_init(unsigned devices) {
  const auto guard = lock();
  counts.held = devices;
}
void nccl_refuse_split(unsigned devices) {
  const auto guard = lock();
  counts.unsplit = devices;
}
void nccl_refuse_registration(unsigned devices) {
  const auto guard = lock();
  counts.refused = devices;
}
void nccl_windows(unsigned devices) {
  const auto guard = lock();
  counts.with_windows = devices;
}
void nccl_version(int device, int version) {
  const auto guard = lock();
  counts.versions[device] = version;
}
std::pair<int, int> nccl_config() {
  const auto guard = lock();
  return counts.config;
}
int nccl_window_count() {
  const auto guard = lock();
  return counts.windows;
}
int nccl_registered() {
  const auto guard = lock();
  return counts.registered;
}
int nccl_on_registered() {
  const auto guard = lock();
  return counts.on_registered;
}
int nccl_collectives() {
  const auto guard = lock();
  return counts.collectives;
}
int nccl_groups() {
  const auto guard = lock();
  return counts.groups;
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
  const auto guard = lock();
  const int said = counts.versions[cuda_host::current_device()];
  *version = said == 0 ? NCCL_VERSION_CODE : said;
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
  if (config == nullptr || config->magic != 0xcafebeef || config->blocking != 1)
    return ncclInvalidArgument;
  while (held(cuda_host::current_device())) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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
  return settled(*comm);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int colour, int key, ncclComm_t* part,
                           ncclConfig_t* config) {
  {
    const auto guard = lock();
    if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is gone");
    if ((counts.unsplit >> comm->device & 1u) != 0)
      return wrong(comm, ncclSystemError, "it has no room for a part");
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
  return settled(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  {
    const auto guard = lock();
    if (!usable(comm)) return wrong(comm, ncclInvalidUsage, "the communicator is gone");
    if (comm->in_graphs.use_count() > 1) {
      counts.hang = "ncclCommFinalize, while graphs have the communicator's operations";
      return wrong(comm, ncclInvalidUsage, counts.hang + ": NCCL would wait for ever");
    }
    comm->finalized = comm->finalizes = true;
  }
  while (held(comm->device)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const ncclResult_t result = settled(comm);
  const auto guard = lock();
  comm->finalizes = false;
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  comm->destroyed = true;
  forget_all(comm);
  return ncclSuccess;
}

// As NCCL's, it takes its time, ends the kernels, and comes back when no graph has any of them.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  {
    const auto guard = lock();
    if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
    if (comm->finalizes) counts.hang = "ncclCommAbort frees what ncclCommFinalize is still at";
    comm->aborted = true;
    forget_all(comm);
  }
  while (true) {
    {
      const auto guard = lock();
      if (comm->in_graphs.use_count() <= 1) return ncclSuccess;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  *error = state(comm);
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  if (cudaMalloc(data, bytes) != cudaSuccess) return ncclUnhandledCudaError;
  const auto guard = lock();
  counts.allocated[*data] = 0;
  return ncclSuccess;
}
// What a communicator still knows, it may still use.
ncclResult_t ncclMemFree(void* data) {
  {
    const auto guard = lock();
    const auto found = counts.allocated.find(data);
    if (found == counts.allocated.end()) return ncclInvalidArgument;
    if (found->second != 0) {
      cuda_host::set_failure(cudaErrorInvalidValue, "ncclMemFree of memory that is registered");
      return ncclInvalidUsage;
    }
    counts.allocated.erase(found);
  }
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  const auto guard = lock();
  if (usable(comm) && (counts.refused >> comm->device & 1u) != 0) return ncclSystemError;
  if (!usable(comm) || !reachable(comm, data, bytes)) return ncclInvalidArgument;
  if (!comm->registered.emplace(static_cast<const char*>(data), bytes).second)
    return ncclInvalidUsage;
  if (const auto found = counts.allocated.find(data); found != counts.allocated.end())
    ++found->second;
  *handle = data;
  ++counts.registered;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const auto guard = lock();
  if (comm == nullptr || comm->aborted || comm->destroyed) return ncclInvalidArgument;
  if (comm->registered.erase(static_cast<const char*>(handle)) == 0) return ncclInvalidArgument;
  forget(handle);
  return ncclSuccess;
}

// Ranks make windows together. What is refused is no window, and no error.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags) {
  *window = nullptr;
  {
    const auto guard = lock();
    if (!usable(comm) || flags != NCCL_WIN_COLL_SYMMETRIC) return ncclInvalidArgument;
    ++comm->window_calls;
  }
  if (!all_make_windows(comm)) return ncclInternalError;
  const auto guard = lock();
  if ((counts.with_windows >> comm->device & 1u) == 0) return ncclSuccess;
  void* handle = nullptr;
  const ncclResult_t result = ncclCommRegister(comm, data, bytes, &handle);
  if (result != ncclSuccess) return result;
  ++counts.windows;
  ++comm->windows;
  *window = static_cast<ncclWindow_t>(handle);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const auto guard = lock();
  const ncclResult_t result = ncclCommDeregister(comm, window);
  if (result == ncclSuccess) {
    --counts.windows;
    --comm->windows;
  }
  return result;
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
