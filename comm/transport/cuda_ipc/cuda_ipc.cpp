// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/comm/control/control.h>
#include <peal/comm/reduce/cuda/reduce.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/interpreter.h>
#include <peal/comm/transport/cuda_ipc/mail.h>
#include <peal/comm/transport/cuda_ipc/members.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
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
  static constexpr std::size_t most_closed = 8;
  cudaIpcMemHandle_t handle;
  std::uint64_t bytes;  // 0: it has none to give
  std::uint64_t closed[most_closed];
};

// Page-locked memory of the host, that kernels and copies reach. Not given back after a failure.
struct CudaIpcTransport::Words {
  unsigned ended = 0;
  Offer offers[ipc::most_ranks];
};

// Numbers of segments of which the last tensor is gone, or the sub-group, and of which the others
// have not been told.
struct CudaIpcTransport::Released {
  std::mutex mutex;
  std::vector<std::uint64_t> numbers;
  void add(std::uint64_t number) {
    const std::lock_guard guard(mutex);
    numbers.push_back(number);
  }
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

void CudaIpcTransport::move_in(std::shared_ptr<ipc::Segment> window) {
  window_ = std::move(window);
  std::copy(window_->parts().begin(), window_->parts().end(), group_.windows);
  programs_.emplace(group_, options_.one_shot);
}

std::unique_ptr<CudaIpcTransport> CudaIpcTransport::create(Rendezvous& ranks, Device device,
                                                           const CudaIpcOptions& options,
                                                           std::chrono::milliseconds deadline,
                                                           const Hopeless& hopeless) {
  const int rank = ranks.rank(), world = ranks.world();
  ipc::Member mine;
  try {
    mine = ipc::this_process(device);
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  mine.options = concat("rooms of ", options.half, " and ", options.parcel, " bytes, ",
                        options.blocks, " blocks, PEAL_IPC_ONE_SHOT ", options.one_shot);
  std::unique_ptr<ipc::Segment> window;
  bool opened = false;
  const auto members = [&] {
    std::vector<ipc::Member> all;
    for (const std::string& text : ranks.exchange(ipc::pack(mine))) {
      all.push_back(ipc::unpack(text));
    }
    const std::string problem = ipc::obstacle(all);
    if (!problem.empty() && window) {
      window->close();
      if (opened) ranks.exchange({});  // all have closed it
      window->free_own();
    }
    PEAL_CHECK(problem.empty(), "[cuda_ipc] ", problem);
    return all;
  };
  const int beside = ipc::blocks_beside(members());
  std::unique_ptr<CudaIpcTransport> made;
  try {
    PEAL_CHECK(world <= ipc::most_ranks, "at most ", ipc::most_ranks, " ranks, got ", world);
    PEAL_CHECK(options.half % 16 == 0 && options.half >= 32 * world && options.parcel % 16 == 0 &&
                   options.parcel > 0 && options.blocks >= 1 && options.blocks <= ipc::most_blocks,
               "rooms of ", world, " ranks cannot be so small, or odd, or many: ", mine.options);
    made.reset(new CudaIpcTransport(device, Stream::create(device, true), options, rank, world,
                                    deadline, hopeless));
    made->group_.blocks = std::min(options.blocks, beside);
    window = std::make_unique<ipc::Segment>(device, made->group_.bytes());
    mine.handle = window->handle();
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  std::vector<cudaIpcMemHandle_t> handles;
  for (const ipc::Member& member : members()) handles.push_back(member.handle);
  opened = true;
  try {
    window->open(handles, rank);
  } catch (const Error& error) {
    mine.problem = error.what();
  }
  members();
  made->move_in(std::move(window));
  return made;
}

// Its own kernels are over: the engine has waited for them, or they were ended.
CudaIpcTransport::~CudaIpcTransport() {
  if (words_->ended == 0) {
    if (leave_) leave_();
    return;
  }
  if (window_) window_->leave_open();
  for (const Kept& kept : segments_) {
    if (kept.segment) kept.segment->leave_open();
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

StorageRef CudaIpcTransport::allocate(std::size_t bytes) {
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
    part.reset(new CudaIpcTransport(device_, stream_, options,
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

Ticket CudaIpcTransport::post(Channel channel, std::span<const Message> round) {
  PEAL_CHECK(round.size() <= ipc::Round::most, "[cuda_ipc] a round of ", round.size(),
             " messages; at most ", ipc::Round::most, " can be posted");
  ipc::Round mail = {};
  mail.group = group_;
  const std::uint64_t half = channel.signature ^ channel.signature >> 32;
  mail.group.signature = static_cast<unsigned>((half ^ half >> 16) & 0xffff);
  for (const Message& message : round) {
    mail.letters[mail.count++] = {message.data, static_cast<std::int64_t>(message.bytes),
                                  message.peer, message.direction == Direction::send};
  }
  const StreamGuard guard(stream_);
  ipc::pass_mail(device_, mail);
  return next_++;
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

// Who has nothing in a buffer says that it lies where the other one does.
Ticket CudaIpcTransport::start(const NativeCall& call) {
  const StreamGuard guard(stream_);
  const ipc::Ready& ready = programs_->of(call);
  if (ready.program.is_empty()) return next_++;
  ipc::Run run = {};
  run.group = group_;
  run.group.signature = ipc::signature(call);
  run.in = call.in;
  run.out = call.out;
  run.factor = call.factor;
  run.op = call.op;
  run.element = static_cast<int>(size_of(call.dtype));
  run.program = ready.program;
  if (ready.asks) {
    const std::byte* const in = ready.in > 0 ? call.in : call.out;
    const std::byte* const out = ready.out > 0 ? call.out : call.in;
    run.lie = {locate(in, (ready.in > 0 ? ready.in : ready.out) * run.element, run.ins),
               locate(out, (ready.out > 0 ? ready.out : ready.in) * run.element, run.outs)};
  }
  ipc::run_program(device_, ready.blocks, call.dtype, run);
  return next_++;
}

std::int64_t CudaIpcTransport::in_place() const {
  stream_.synchronize();
  const auto* const window = reinterpret_cast<const ipc::Window*>(window_->own());
  ipc::Count count = 0;
  PEAL_CUDA_CHECK(cudaMemcpy(&count, &window->direct, sizeof count, cudaMemcpyDeviceToHost));
  return static_cast<std::int64_t>(count);
}

}  // namespace peal::comm
