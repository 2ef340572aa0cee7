// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/check.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/control/control.h>
#include <peal/comm/transport/cuda_ipc/cuda_ipc.h>
#include <peal/comm/transport/cuda_ipc/interpreter.h>
#include <peal/comm/transport/cuda_ipc/mail.h>
#include <peal/comm/transport/cuda_ipc/members.h>
#include <peal/comm/transport/cuda_ipc/offers.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
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

CudaIpcTransport::CudaIpcTransport(Device device, Stream stream, std::shared_ptr<QueueTail> tail,
                                   const CudaIpcOptions& options, int rank, int world,
                                   std::chrono::milliseconds deadline, Hopeless hopeless)
    : options_(options),
      device_(device),
      stream_(std::move(stream)),
      tail_(std::move(tail)),
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
    const Stream stream = Stream::create(device, true);
    made.reset(new CudaIpcTransport(device, stream, std::make_shared<QueueTail>(stream), options,
                                    rank, world, deadline, hopeless));
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
    while (!tail_->last().query()) {
      hopeless_();
      PEAL_CHECK(
          Clock::now() - start < deadline_, "[cuda_ipc] rank ", rank(), ": what ", device_,
          " has in its queue has not ended for ", std::chrono::duration<double>(deadline_).count(),
          " s (PEAL_TIMEOUT): not every rank takes part, or what is computed before takes as "
          "long");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  } catch (const Error&) {
    end_kernels();
    throw;
  }
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
  ipc::pass_mail(device_, mail);
  return next_++;
}

// Who has nothing in a buffer says that it lies where the other one does.
Ticket CudaIpcTransport::start(const NativeCall& call) {
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
  tail_->last().synchronize();
  const auto* const window = reinterpret_cast<const ipc::Window*>(window_->own());
  ipc::Count count = 0;
  PEAL_CUDA_CHECK(cudaMemcpy(&count, &window->direct, sizeof count, cudaMemcpyDeviceToHost));
  return static_cast<std::int64_t>(count);
}

}  // namespace peal::comm
