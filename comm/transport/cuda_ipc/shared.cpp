// SPDX-License-Identifier: Apache-2.0
// What ranks share after the start: segments of tensors, and the windows of sub-groups.
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/offers.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace peal::comm {

// Everybody's, by rank; nothing is in the queue then.
std::vector<CudaIpcTransport::Offer> CudaIpcTransport::exchange(const Offer& mine) {
  const StreamGuard guard(stream_);
  tail_->enter(stream_);
  const auto ranks = static_cast<std::size_t>(world());
  const StorageRef in = Storage::allocate(sizeof(Offer), device_);
  const StorageRef out = Storage::allocate(ranks * sizeof(Offer), device_);
  const std::vector<std::int64_t> counts(ranks, sizeof(Offer));
  words_->offers[0] = mine;
  PEAL_CUDA_CHECK(cudaMemcpyAsync(in->data(), words_->offers, sizeof(Offer), cudaMemcpyDefault,
                                  cuda::stream_on(device_)));
  NativeCall call{Collective::all_gather, DType::u8, ReduceOp::sum, 0, counts, nullptr, nullptr};
  call.in = in->data();
  call.out = out->data();
  start(call);
  PEAL_CUDA_CHECK(cudaMemcpyAsync(words_->offers, out->data(), ranks * sizeof(Offer),
                                  cudaMemcpyDefault, cuda::stream_on(device_)));
  be_quiet();
  return {words_->offers, words_->offers + ranks};
}

// Closes what this rank has released, and frees what all have closed. What a rank has closed it
// says once: all see it, and remember.
void CudaIpcTransport::give_back() {
  be_quiet();
  Offer mine = {};
  {
    const std::lock_guard guard(released_->mutex);
    auto& numbers = released_->numbers;
    const auto told = static_cast<std::ptrdiff_t>(std::min(numbers.size(), Offer::most_closed));
    std::copy_n(numbers.begin(), told, mine.closed);
    numbers.erase(numbers.begin(), numbers.begin() + told);
  }
  for (const std::uint64_t number : mine.closed) {
    if (number != 0) segments_[number - 1].segment->close();
  }
  const auto all = exchange(mine);
  for (std::size_t r = 0; r < all.size(); ++r) {
    for (const std::uint64_t number : all[r].closed) {
      if (number == 0) continue;
      Kept& kept = segments_[number - 1];
      kept.open &= ~(1u << r);
      if (kept.open != 0 || kept.segment == nullptr) continue;
      kept.segment->free_own();
      kept.segment = nullptr;
    }
  }
}

// Memory of so many bytes that `ranks` reach; the others, who have no ranks to name, come as well,
// so that numbers are equal on all.
CudaIpcTransport::Made CudaIpcTransport::make(const std::vector<int>& ranks, std::size_t bytes) {
  Made made;
  Offer mine = {};
  try {
    if (bytes > 0) {
      made.segment = std::make_shared<ipc::Segment>(device_, bytes);
      mine.handle = made.segment->handle();
      mine.bytes = made.segment->bytes();
    }
  } catch (const Error& error) {
    made.problem = error.what();
  }
  const auto all = exchange(mine);
  std::vector<cudaIpcMemHandle_t> handles;
  unsigned members = 0;
  int own = 0;
  for (const int r : ranks) {
    const Offer& offer = all[static_cast<std::size_t>(r)];
    if (made.problem.empty() && (offer.bytes == 0 || offer.bytes != mine.bytes)) {
      made.problem =
          concat("rank ", r, " has ", offer.bytes, " bytes for it, rank ", rank(), " ", mine.bytes);
    }
    if (r == rank()) own = static_cast<int>(handles.size());
    handles.push_back(offer.handle);
    members |= 1u << r;
  }
  Offer answer = {};
  if (made.segment != nullptr && !made.problem.empty()) {
    made.segment->free_own();  // all know that nobody opens it
    made.segment = nullptr;
  } else if (made.segment != nullptr) {
    try {
      made.segment->open(handles, own);
      answer.bytes = 1;
    } catch (const Error& error) {
      made.problem = error.what();
    }
  }
  const auto answers = exchange(answer);
  for (const int r : ranks) {
    if (made.problem.empty() && answers[static_cast<std::size_t>(r)].bytes == 0) {
      made.problem = concat("rank ", r, " cannot reach the others");
    }
  }
  segments_.push_back({made.segment, members});
  made.number = segments_.size();
  if (made.segment != nullptr && !made.problem.empty()) released_->add(made.number);
  return made;
}

// The ranks agree by their own exchange, as they have to tell each other more.
StorageRef CudaIpcTransport::allocate(std::size_t bytes, const EveryRank&) {
  if (bytes == 0 || world() == 1) return nullptr;
  give_back();
  std::vector<int> everyone(static_cast<std::size_t>(world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const Made made = make(everyone, bytes);
  if (!made.problem.empty()) {
    log_warning("[cuda_ipc] ", made.problem, "; collectives will copy");
    return nullptr;
  }
  return Storage::wrap(made.segment->own(), bytes, device_,
                       [released = released_, number = made.number] { released->add(number); });
}

std::unique_ptr<Transport> CudaIpcTransport::make_subset(const std::vector<int>& ranks) {
  give_back();
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) {
    static_cast<void>(make({}, 0));
    return nullptr;
  }
  std::unique_ptr<CudaIpcTransport> part;
  std::string problem;
  CudaIpcOptions options = options_;
  options.blocks = group_.blocks;
  if (ranks.size() == 1) {  // it copies, and has no mail
    options.half = std::min(options.half, std::int64_t{16} << 10);
    options.parcel = 16;
  }
  try {
    part.reset(new CudaIpcTransport(device_, stream_, tail_, options,
                                    static_cast<int>(found - ranks.begin()),
                                    static_cast<int>(ranks.size()), deadline_, hopeless_));
  } catch (const Error& error) {
    problem = error.what();
  }
  const Made made = make(ranks, part ? part->group_.bytes() : 0);
  if (problem.empty()) problem = made.problem;
  PEAL_CHECK(problem.empty(), "[cuda_ipc] rank ", rank(), ", a sub-group: ", problem);
  part->move_in(made.segment);
  part->leave_ = [released = released_, number = made.number] { released->add(number); };
  return part;
}

std::unique_ptr<Transport> CudaIpcTransport::subset(const std::vector<int>& ranks, std::uint64_t) {
  return make_subset(ranks);
}

// Where a buffer lies, and the parts of that segment by rank; 0 where it is out of the others'
// reach.
ipc::Location CudaIpcTransport::locate(const std::byte* data, std::int64_t bytes,
                                       std::byte** parts) const {
  const std::less<> before;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const ipc::Segment* segment = segments_[i].segment.get();
    if (segment == nullptr || segment->parts().empty()) continue;
    const std::byte* const end = segment->own() + segment->bytes();
    if (before(data, segment->own()) || before(end, data + bytes)) continue;
    const auto place = static_cast<ipc::Location>(data - segment->own());
    if (place % 16 != 0) return 0;
    std::copy(segment->parts().begin(), segment->parts().end(), parts);
    return (i + 1) << ipc::place_bits | place;
  }
  return 0;
}

}  // namespace peal::comm
