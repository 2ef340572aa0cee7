// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/transport/nccl/native.h>
#include <peal/comm/transport/nccl/nccl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
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
                                                     std::chrono::milliseconds deadline,
                                                     const Hopeless& hopeless) {
  ncclUniqueId id = {};
  std::string mine;
  if (ranks.rank() == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    mine = result == ncclSuccess ? std::string(id.internal, sizeof id.internal)
                                 : concat("ncclGetUniqueId: ", ncclGetErrorString(result));
  }
  const std::string said = ranks.exchange(mine).front();
  PEAL_CHECK(said.size() == sizeof id.internal, "[nccl] rank 0, ", said);
  std::memcpy(id.internal, said.data(), sizeof id.internal);
  auto communicator =
      Communicator::create(id, ranks.rank(), ranks.world(), device, deadline, hopeless);
  return std::make_unique<NcclTransport>(std::move(communicator), ranks.rank(), ranks.world(),
                                         device);
}

// Nothing of it is in the queue, as a split wants it.
void NcclTransport::be_quiet() const {
  const auto start = std::chrono::steady_clock::now();
  while (communicator_->busy() || !tail_.last().query()) {
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

Ticket NcclTransport::post(Channel, std::span<const Message> round) {
  if (Graph::capturing() != nullptr) communicator_->note_captured();
  const auto guard = communicator_->lock();
  PEAL_CHECK(!communicator_->busy(),
             "[nccl] a round is posted before the last one is in the queue");
  cuda::use(device_);
  ncclComm_t const handle = communicator_->handle();
  cudaStream_t const queue = cuda::stream_on(device_);
  communicator_->expect(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t first = ncclSuccess;
  for (const Message& message : round) {
    const ncclResult_t result =
        message.direction == Direction::send
            ? ncclSend(message.data, message.bytes, ncclInt8, message.peer, handle, queue)
            : ncclRecv(message.data, message.bytes, ncclInt8, message.peer, handle, queue);
    if (result != ncclSuccess && result != ncclInProgress && first == ncclSuccess) first = result;
  }
  const ncclResult_t end = ncclGroupEnd();  // also after an error: the thread is in the group
  communicator_->expect(first, "ncclSend or ncclRecv");
  communicator_->expect(end, "ncclGroupEnd");
  posted_.assign(round.begin(), round.end());
  return next_++;
}

// Only then may anything else be put into the queue behind it.
bool NcclTransport::test(Ticket) {
  const auto guard = communicator_->lock();
  if (communicator_->busy()) return false;
  posted_.clear();
  if (made_ != ncclNumOps) {
    communicator_->expect(
        ncclRedOpDestroy(std::exchange(made_, ncclNumOps), communicator_->handle()),
        "ncclRedOpDestroy");
  }
  return true;
}

void NcclTransport::check() { communicator_->check(); }

bool NcclTransport::has(const NativeCall& call) const { return nccl_has_native(call); }

bool NcclTransport::scales(const NativeCall& call) const {
  return nccl_has_native(call) && is_floating(call.dtype);
}

ncclRedOp_t NcclTransport::reduction(const NativeCall& call) {
  if (call.op != ReduceOp::premul_sum || !scales(call)) return nccl_reduction(call);
  ncclRedOp_t op = ncclSum;
  visit(call.dtype, [&]<class T>() {
    T factor{};
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      factor = T(static_cast<float>(call.factor));
    } else {
      factor = static_cast<T>(call.factor);
    }
    communicator_->expect(
        ncclRedOpCreatePreMulSum(&op, &factor, nccl_type(call.dtype), ncclScalarHostImmediate,
                                 communicator_->handle()),
        "ncclRedOpCreatePreMulSum");
  });
  return made_ = op;
}

Ticket NcclTransport::start(const NativeCall& call) {
  if (Graph::capturing() != nullptr) communicator_->note_captured();
  const auto guard = communicator_->lock();
  PEAL_CHECK(!communicator_->busy(),
             "[nccl] a collective is posted before the last one is in the queue");
  cuda::use(device_);
  const ncclDataType_t type = nccl_type(call.dtype);
  ncclComm_t const handle = communicator_->handle();
  cudaStream_t const queue = cuda::stream_on(device_);
  const auto count = static_cast<std::size_t>(call.counts.front());
  switch (call.what) {
    case Collective::all_reduce:
      communicator_->expect(
          ncclAllReduce(call.in, call.out, count, type, reduction(call), handle, queue),
          "ncclAllReduce");
      break;
    case Collective::reduce:
      communicator_->expect(
          ncclReduce(call.in, call.out, count, type, reduction(call), call.root, handle, queue),
          "ncclReduce");
      break;
    case Collective::broadcast:
      communicator_->expect(ncclBroadcast(call.in, call.out, count, type, call.root, handle, queue),
                            "ncclBroadcast");
      break;
    case Collective::all_gather:
      communicator_->expect(ncclAllGather(call.in, call.out, count, type, handle, queue),
                            "ncclAllGather");
      break;
    case Collective::reduce_scatter:
      communicator_->expect(
          ncclReduceScatter(call.in, call.out, count, type, reduction(call), handle, queue),
          "ncclReduceScatter");
      break;
    default:
      fail(concat("the nccl transport has no native ", comm::name(call.what)));
  }
  return next_++;
}

}  // namespace peal::comm
