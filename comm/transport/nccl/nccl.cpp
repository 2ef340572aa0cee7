// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/transport/nccl/native.h>
#include <peal/comm/transport/nccl/nccl.h>
#include <peal/comm/transport/nccl/peers.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

namespace peal::comm {

NcclTransport::NcclTransport(std::shared_ptr<Communicator> communicator, int rank, int world,
                             Device device)
    : communicator_(std::move(communicator)),
      rank_(rank),
      world_(world),
      device_(device),
      stream_(Stream::create(device, true)) {}

std::unique_ptr<NcclTransport> NcclTransport::create(Rendezvous& ranks, Device device,
                                                     const NcclOptions& options,
                                                     std::chrono::milliseconds deadline,
                                                     const Hopeless& hopeless) {
  ncclUniqueId id = {};
  nccl::Peer mine = nccl::this_peer(device);
  mine.options = nccl::describe(options);
  if (mine.problem.empty()) mine.problem = nccl::too_old(mine.version, options);
  if (ranks.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess)
      mine.problem = concat("ncclGetUniqueId: ", ncclGetErrorString(result));
    mine.id.assign(id.internal, sizeof id.internal);
  }
  std::vector<nccl::Peer> peers;
  for (const std::string& said : ranks.exchange(nccl::pack(mine)))
    peers.push_back(nccl::unpack(said));
  const std::string obstacle = nccl::obstacle(peers);
  PEAL_CHECK(obstacle.empty(), "[nccl] ", obstacle);
  const auto links = ranks.exchange(nccl::links(peers, ranks.rank(), device));
  if (ranks.rank() == 0) {
    for (const std::string& line : nccl::topology(peers, links)) log_line(LogLevel::debug, line);
  }
  std::memcpy(id.internal, peers.front().id.data(), sizeof id.internal);
  auto communicator =
      Communicator::create(id, ranks.rank(), ranks.world(), device, options, deadline, hopeless);
  return std::make_unique<NcclTransport>(std::move(communicator), ranks.rank(), ranks.world(),
                                         device);
}

// Nothing of it is in the queue, as a split wants it.
void NcclTransport::be_quiet() {
  const auto start = std::chrono::steady_clock::now();
  while (!test(next_ - 1) || !tail_.last().query()) {
    hopeless_();
    PEAL_CHECK(std::chrono::steady_clock::now() - start < communicator_->deadline(), "[nccl] rank ",
               rank_, " of ", world_, " on ", device_, ", making a sub-group: what ", device_,
               " has in its queue has not ended for ",
               std::chrono::duration<double>(communicator_->deadline()).count(),
               " s (PEAL_TIMEOUT)");
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

std::unique_ptr<Transport> NcclTransport::subset(const std::vector<int>& ranks, std::uint64_t) {
  be_quiet();
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) {
    static_cast<void>(communicator_->split(NCCL_SPLIT_NOCOLOR, 0, hopeless_));
    return nullptr;
  }
  // Subsets that are made together have no rank in common, so their least ranks tell them apart.
  const int colour = *std::min_element(ranks.begin(), ranks.end());
  const auto place = found - ranks.begin();
  auto part = communicator_->split(colour, static_cast<int>(place), hopeless_);
  return std::make_unique<NcclTransport>(std::move(part), static_cast<int>(place),
                                         static_cast<int>(ranks.size()), device_);
}

// NCCL connects ranks by algorithm, which it chooses by size, at bounds of its own; and buffers
// that it knows one by one. Messages it connects by peer.
NcclTransport::Kind NcclTransport::kind_of(const NativeCall& call) const {
  Kind kind{.what = static_cast<int>(call.what),
            .type = static_cast<int>(call.dtype),
            .op = static_cast<int>(call.op),
            .size = static_cast<std::uint64_t>(call.counts.front())};
  if (const auto in = communicator_->place(call.in)) std::tie(kind.in, kind.in_at) = *in;
  if (const auto out = communicator_->place(call.out)) std::tie(kind.out, kind.out_at) = *out;
  return kind;
}

NcclTransport::Kind NcclTransport::kind_of(const Message& message) const {
  Kind kind{.what = message.direction == Direction::send ? -1 : -2,
            .peer = message.peer,
            .size = static_cast<std::uint64_t>(std::bit_width(message.bytes))};
  if (const auto in = communicator_->place(message.data)) std::tie(kind.in, kind.in_at) = *in;
  return kind;
}

// What may wait for ranks that have not come to theirs does so aside: who holds the engine's lock
// has operations of the CPU to go on with, for which those ranks may be waiting. A capture knows
// its own thread alone: a call that was not made before, uncaptured, waits in it, and the watchdog
// looks after that.
Ticket NcclTransport::put(const std::vector<Kind>& kinds, std::string_view what,
                          const Communicator::Call& call) {
  PEAL_CHECK(!first_, "[nccl] ", what, " is posted before what came before it is in the queue");
  const bool captures = Graph::capturing() != nullptr;
  if (captures) communicator_->note_captured();
  bool known = world_ == 1 || captures;
  if (!known) {
    known = true;
    for (const Kind& kind : kinds) known &= !seen_.insert(kind).second;
  }
  if (known) {
    cuda::use(device_);
    communicator_->call(what, call);
  } else {
    first_.emplace(device_,
                   [communicator = communicator_, what, call] { communicator->call(what, call); });
  }
  return next_++;
}

Ticket NcclTransport::post(Channel, std::span<const Message> round) {
  std::vector<Kind> kinds;
  for (const Message& message : round) kinds.push_back(kind_of(message));
  posted_.assign(round.begin(), round.end());
  return put(
      kinds, "a round of ncclSend and ncclRecv",
      [round = posted_, queue = cuda::stream_on(device_)](ncclComm_t handle) {
        ncclResult_t first = ncclGroupStart();
        if (first != ncclSuccess) return first;
        for (const Message& message : round) {
          const ncclResult_t result =
              message.direction == Direction::send
                  ? ncclSend(message.data, message.bytes, ncclInt8, message.peer, handle, queue)
                  : ncclRecv(message.data, message.bytes, ncclInt8, message.peer, handle, queue);
          if (first == ncclSuccess) first = result;
        }
        const ncclResult_t end = ncclGroupEnd();  // also after an error: the thread is in it
        return first == ncclSuccess ? end : first;
      });
}

// Only then may anything else be put into the queue behind it.
bool NcclTransport::test(Ticket) {
  if (first_) {
    if (!first_->over()) return false;
    first_.reset();
  }
  communicator_->check();
  posted_.clear();
  return true;
}

void NcclTransport::check() { communicator_->check(); }

bool NcclTransport::has(const NativeCall& call) const { return nccl_has_native(call); }

bool NcclTransport::scales(const NativeCall& call) const {
  return nccl_has_native(call) && is_floating(call.dtype);
}

namespace {

// A sum of what each rank's factor has multiplied.
ncclResult_t make_premul_sum(const NativeCall& call, ncclComm_t handle, ncclRedOp_t& op) {
  ncclResult_t result = ncclSuccess;
  visit(call.dtype, [&]<class T>() {
    T factor{};
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      factor = T(static_cast<float>(call.factor));
    } else {
      factor = static_cast<T>(call.factor);
    }
    result = ncclRedOpCreatePreMulSum(&op, &factor, nccl_type(call.dtype), ncclScalarHostImmediate,
                                      handle);
  });
  return result;
}

ncclResult_t reduce_by(ncclRedOp_t op, const NativeCall& call, std::size_t count, ncclComm_t handle,
                       cudaStream_t queue) {
  const ncclDataType_t type = nccl_type(call.dtype);
  switch (call.what) {
    case Collective::all_reduce:
      return ncclAllReduce(call.in, call.out, count, type, op, handle, queue);
    case Collective::reduce:
      return ncclReduce(call.in, call.out, count, type, op, call.root, handle, queue);
    default:
      return ncclReduceScatter(call.in, call.out, count, type, op, handle, queue);
  }
}

ncclResult_t run_native(const NativeCall& call, std::size_t count, bool premultiplies,
                        ncclComm_t handle, cudaStream_t queue) {
  const ncclDataType_t type = nccl_type(call.dtype);
  if (call.what == Collective::broadcast)
    return ncclBroadcast(call.in, call.out, count, type, call.root, handle, queue);
  if (call.what == Collective::all_gather)
    return ncclAllGather(call.in, call.out, count, type, handle, queue);
  if (!premultiplies) return reduce_by(nccl_reduction(call), call, count, handle, queue);
  ncclRedOp_t op = ncclSum;
  const ncclResult_t made = make_premul_sum(call, handle, op);
  if (made != ncclSuccess) return made;
  const ncclResult_t result = reduce_by(op, call, count, handle, queue);
  const ncclResult_t gone = ncclRedOpDestroy(op, handle);  // what is in the queue has its own
  return result == ncclSuccess ? gone : result;
}

}  // namespace

Ticket NcclTransport::start(const NativeCall& call) {
  PEAL_CHECK(has(call), "the nccl transport has no native ", comm::name(call.what));
  const bool premultiplies = call.op == ReduceOp::premul_sum && scales(call);
  const auto count = static_cast<std::size_t>(call.counts.front());
  NativeCall kept = call;
  kept.counts = {};  // the caller's
  return put({kind_of(call)}, comm::name(call.what),
             [kept, count, premultiplies, queue = cuda::stream_on(device_)](ncclComm_t handle) {
               return run_native(kept, count, premultiplies, handle, queue);
             });
}

}  // namespace peal::comm
