// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/control.h>
#include <peal/comm/group_store.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/mail.h>
#include <peal/comm/transport/cuda_ipc/members.h>
#include <peal/comm/transport/cuda_ipc/plan.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

namespace peal::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t one_shot_for(int world) { return std::int64_t{world <= 4 ? 512 : 256} << 10; }

}  // namespace

CudaIpcOptions CudaIpcOptions::from_environment() {
  CudaIpcOptions options;
  if (const char* text = std::getenv("PEAL_IPC_ONE_SHOT")) {
    char* end = nullptr;
    options.one_shot = std::strtoll(text, &end, 10);
    PEAL_CHECK(end != text && *end == 0 && options.one_shot >= 0,
               "PEAL_IPC_ONE_SHOT: expected a number of bytes, got '", text, "'");
  }
  return options;
}

// What a rank tells the others when a segment is made, and what it has closed since the last time.
struct CudaIpcTransport::Offer {
  static constexpr int most_closed = 8;
  cudaIpcMemHandle_t handle;
  std::uint64_t bytes;  // 0: it has none to give
  std::uint64_t closed[most_closed];
};

// Page-locked memory of the host, that kernels and copies reach. Not given back after a failure.
struct CudaIpcTransport::Words {
  unsigned ended = 0;
  Offer offers[ipc::most_ranks];
};

// Numbers of segments of which the last tensor is gone.
struct CudaIpcTransport::Released {
  std::mutex mutex;
  std::vector<std::uint64_t> numbers;
};

CudaIpcTransport::CudaIpcTransport(Device device, Stream stream, const CudaIpcOptions& options,
                                   int rank, int world, std::chrono::milliseconds deadline,
                                   Hopeless hopeless)
    : options_(options),
      device_(device),
      stream_(std::move(stream)),
      deadline_(deadline),
      hopeless_(std::move(hopeless)),
      released_(std::make_shared<Released>()) {
  if (options_.one_shot < 0) options_.one_shot = one_shot_for(world);
  const std::shared_ptr<void> memory = allocate_pinned(sizeof(Words));
  words_ = std::shared_ptr<Words>(memory, new (memory.get()) Words());
  group_.rank = rank;
  group_.world = world;
  group_.half = options.half;
  group_.parcel = options.parcel;
  group_.blocks = options.blocks;
  group_.ended = &words_->ended;
}

void CudaIpcTransport::move_in(std::unique_ptr<ipc::Segment> room) {
  room_ = std::move(room);
  std::copy(room_->parts().begin(), room_->parts().end(), group_.rooms);
}

std::unique_ptr<CudaIpcTransport> CudaIpcTransport::create(Store& store, Device device,
                                                           const CudaIpcOptions& options,
                                                           std::chrono::milliseconds deadline,
                                                           const Hopeless& hopeless) {
  const int rank = store.rank(), world = store.world();
  ipc::Member mine = ipc::this_process(device);
  mine.options = concat("rooms of ", options.half, " and ", options.parcel, " bytes, ",
                        options.blocks, " blocks, PEAL_IPC_ONE_SHOT ", options.one_shot);
  const auto members = [&] {
    std::vector<ipc::Member> all;
    for (const std::string& text : store.exchange(ipc::pack(mine))) {
      all.push_back(ipc::unpack(text));
    }
    const std::string problem = ipc::obstacle(all);
    PEAL_CHECK(problem.empty(), "[cuda_ipc] ", problem);
    return all;
  };
  const int beside = ipc::blocks_beside(members());
  std::unique_ptr<CudaIpcTransport> made;
  std::unique_ptr<ipc::Segment> room;
  try {
    PEAL_CHECK(world <= ipc::most_ranks, "at most ", ipc::most_ranks, " ranks, got ", world);
    PEAL_CHECK(options.half % 16 == 0 && options.half >= 16 * world && options.parcel % 16 == 0 &&
                   options.parcel > 0 && options.blocks >= 1 && options.blocks <= ipc::most_blocks,
               "rooms of ", world, " ranks cannot be so small, or odd, or many: ", mine.options);
    made.reset(new CudaIpcTransport(device, Stream::create(device, true), options, rank, world,
                                    deadline, hopeless));
    made->group_.blocks = std::min(options.blocks, beside);
    room = std::make_unique<ipc::Segment>(device, made->group_.bytes());
    mine.handle = room->handle();
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  std::vector<cudaIpcMemHandle_t> handles;
  for (const ipc::Member& member : members()) handles.push_back(member.handle);
  mine.problem.clear();
  try {
    room->open(handles, rank);
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  members();
  made->move_in(std::move(room));
  return made;
}

// Its own kernels are over: the engine has waited for them, or they were ended.
CudaIpcTransport::~CudaIpcTransport() {
  if (words_->ended == 0) return;
  if (room_) room_->leave_open();
  for (auto& segment : segments_) {
    if (segment) segment->leave_open();
  }
}

void CudaIpcTransport::end_kernels() const {
  if (std::atomic_ref<unsigned>(words_->ended).exchange(1) != 0) return;
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<Words>>;  // kernels may look at them still
  const std::lock_guard guard(mutex);
  kept.push_back(words_);
}

void CudaIpcTransport::be_quiet() const {
  const auto start = Clock::now();
  try {
    while (!stream_.query()) {
      hopeless_();
      PEAL_CHECK(Clock::now() - start < deadline_, "[cuda_ipc] rank ", rank(),
                 ": the queue has not ended for ", std::chrono::duration<double>(deadline_).count(),
                 " s (PEAL_TIMEOUT): not every rank takes part");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const Error&) {
    end_kernels();
    throw;
  }
}

// Everybody's, by rank; nothing is in the queue then.
std::vector<CudaIpcTransport::Offer> CudaIpcTransport::exchange(const Offer& mine) {
  const StreamGuard guard(stream_);
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
  start_native(call);
  PEAL_CUDA_CHECK(cudaMemcpyAsync(words_->offers, out->data(), ranks * sizeof(Offer),
                                  cudaMemcpyDefault, cuda::stream_on(device_)));
  be_quiet();
  return {words_->offers, words_->offers + ranks};
}

void CudaIpcTransport::close_released(Offer& mine) {
  const std::lock_guard guard(released_->mutex);
  std::size_t told = 0;
  for (const std::uint64_t number : released_->numbers) {
    if (told == Offer::most_closed) break;
    segments_[number - 1]->close();
    mine.closed[told++] = number;
  }
}

// What all have closed.
void CudaIpcTransport::free_released(const std::vector<Offer>& all) {
  const auto closed = [](const Offer& offer, std::uint64_t number) {
    return std::find(std::begin(offer.closed), std::end(offer.closed), number) !=
           std::end(offer.closed);
  };
  const std::lock_guard guard(released_->mutex);
  std::erase_if(released_->numbers, [&](std::uint64_t number) {
    if (!std::all_of(all.begin(), all.end(), [&](const Offer& o) { return closed(o, number); })) {
      return false;
    }
    segments_[number - 1]->free_own();
    segments_[number - 1] = nullptr;
    return true;
  });
}

StorageRef CudaIpcTransport::allocate(std::size_t bytes) {
  if (bytes == 0 || world() == 1) return nullptr;
  be_quiet();
  std::unique_ptr<ipc::Segment> segment;
  Offer mine = {};
  close_released(mine);
  try {
    segment = std::make_unique<ipc::Segment>(device_, bytes);
    mine.handle = segment->handle();
    mine.bytes = segment->bytes();
  } catch (const Error& error) {
    log_warning("[cuda_ipc] ", error.what(), "; collectives will copy");
  }
  const auto all = exchange(mine);
  free_released(all);
  Offer answer = {};
  const bool offered = std::all_of(all.begin(), all.end(),
                                   [&](const Offer& offer) { return offer.bytes == mine.bytes; });
  if (offered && segment) {
    std::vector<cudaIpcMemHandle_t> handles;
    for (const Offer& offer : all) handles.push_back(offer.handle);
    try {
      segment->open(handles, rank());
      answer.bytes = 1;
    } catch (const Error& error) {
      log_warning("[cuda_ipc] ", error.what(), "; collectives will copy");
    }
  }
  const auto answers = exchange(answer);
  if (std::any_of(answers.begin(), answers.end(), [](const Offer& o) { return o.bytes == 0; })) {
    // The ranks' lists stay equal: a number without memory behind it.
    segments_.push_back(nullptr);
    return nullptr;
  }
  std::byte* const data = segment->own();
  segments_.push_back(std::move(segment));
  return Storage::wrap(data, bytes, device_, [released = released_, number = segments_.size()] {
    const std::lock_guard guard(released->mutex);
    released->numbers.push_back(number);
  });
}

std::unique_ptr<Transport> CudaIpcTransport::make_subset(const std::vector<int>& ranks) {
  be_quiet();
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  std::unique_ptr<CudaIpcTransport> part;
  std::unique_ptr<ipc::Segment> room;
  std::string problem;
  Offer mine = {};
  if (found != ranks.end()) {
    CudaIpcOptions options = options_;
    options.blocks = group_.blocks;
    try {
      part.reset(new CudaIpcTransport(device_, stream_, options,
                                      static_cast<int>(found - ranks.begin()),
                                      static_cast<int>(ranks.size()), deadline_, hopeless_));
      room = std::make_unique<ipc::Segment>(device_, part->group_.bytes());
      mine.handle = room->handle();
      mine.bytes = room->bytes();
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  close_released(mine);
  const auto all = exchange(mine);
  free_released(all);
  if (found == ranks.end()) {
    static_cast<void>(exchange({}));
    return nullptr;
  }
  std::vector<cudaIpcMemHandle_t> handles;
  for (const int r : ranks) {
    const Offer& offer = all[static_cast<std::size_t>(r)];
    if (offer.bytes == 0 && problem.empty()) problem = concat("rank ", r, " has no memory for it");
    handles.push_back(offer.handle);
  }
  Offer answer = {};
  try {
    if (problem.empty()) room->open(handles, part->rank());
    answer.bytes = problem.empty() ? 1 : 0;
  } catch (const Error& error) {
    problem = error.what();
  }
  const auto answers = exchange(answer);
  for (const int r : ranks) {
    if (problem.empty() && answers[static_cast<std::size_t>(r)].bytes == 0) {
      problem = concat("rank ", r, " cannot reach the others");
    }
  }
  PEAL_CHECK(problem.empty(), "[cuda_ipc] rank ", rank(), ", a sub-group: ", problem);
  part->move_in(std::move(room));
  return part;
}

std::unique_ptr<Transport> CudaIpcTransport::subset(const std::vector<int>& ranks, std::uint64_t) {
  return make_subset(ranks);
}

void CudaIpcTransport::no_subset() { static_cast<void>(make_subset({})); }

Ticket CudaIpcTransport::post(Channel, std::span<const Message> round) {
  PEAL_CHECK(round.size() <= ipc::Round::most, "[cuda_ipc] a round of ", round.size(),
             " messages; at most ", ipc::Round::most, " can be posted");
  ipc::Round mail = {};
  mail.group = group_;
  for (const Message& message : round) {
    mail.letters[mail.count++] = {message.data, static_cast<std::int64_t>(message.bytes),
                                  message.peer, message.direction == Direction::send};
  }
  const StreamGuard guard(stream_);
  ipc::pass_mail(device_, mail);
  return next_++;
}

// Where the call's tensors lie, if all ranks of the group reach them there.
ipc::Place CudaIpcTransport::place_of(const NativeCall& call, std::size_t bytes,
                                      const ipc::Segment** found) const {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const ipc::Segment* segment = segments_[i].get();
    if (segment == nullptr || segment->parts().empty()) continue;
    const auto offset = [&](const std::byte* data) -> std::ptrdiff_t {
      const std::less<> before;
      if (before(data, segment->own()) || before(segment->own() + segment->bytes(), data + bytes)) {
        return -1;
      }
      return data - segment->own();
    };
    const std::ptrdiff_t in = offset(call.in), out = offset(call.out);
    if (in < 0 || out < 0 || in % 16 != 0 || out % 16 != 0) continue;
    *found = segment;
    return {i + 1, static_cast<ipc::Count>(in), static_cast<ipc::Count>(out)};
  }
  return {};
}

Ticket CudaIpcTransport::start_native(const NativeCall& call) {
  const StreamGuard guard(stream_);
  ipc::Group group = group_;
  group.signature = ipc::signature(call);
  const std::int64_t bytes =
      call.counts.empty() ? 0 : call.counts[0] * static_cast<std::int64_t>(size_of(call.dtype));
  const bool two_shot =
      call.what == Collective::all_reduce && bytes > options_.one_shot && world() > 1;
  const ipc::Exchange exchange = ipc::plan_exchange(group, call, two_shot);
  const bool reduces = call.what == Collective::all_reduce || call.what == Collective::reduce ||
                       call.what == Collective::reduce_scatter;
  if (!reduces) {
    ipc::copy_exchange(device_, exchange);
    return next_++;
  }
  ipc::Reduction reduction = {};
  reduction.op = call.op;
  reduction.dtype = call.dtype;
  reduction.factor = call.factor;
  reduction.takes = call.what != Collective::reduce || call.root == rank();
  reduction.pushes = two_shot;
  const ipc::Segment* segment = nullptr;
  if (two_shot) reduction.place = place_of(call, static_cast<std::size_t>(bytes), &segment);
  if (segment != nullptr) {
    std::copy(segment->parts().begin(), segment->parts().end(), reduction.segments);
    ++in_place_;
  }
  ipc::reduce_exchange(device_, exchange, reduction);
  return next_++;
}

void use_cuda_ipc(ProcessGroup& group, Device device, const CudaIpcOptions& options) {
  register_wire_kernels(DeviceType::cuda, &cuda_wire_kernels());
  GroupStore store(group);
  group.attach(CudaIpcTransport::create(store, device, options, group.deadline(),
                                        [&group] { group.check(); }));
}

}  // namespace peal::comm
