// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cuda/launch.h>
#include <peal/comm/transport/cuda_ipc/bytes.h>
#include <peal/comm/transport/cuda_ipc/combination.h>
#include <peal/comm/transport/cuda_ipc/interpreter.h>
#include <peal/comm/transport/cuda_ipc/signals.h>

#include <concepts>

namespace peal::comm::ipc {
namespace {

// Of a block: memory of peers is far, so many accesses must be on their way.
constexpr int threads = 512;

// What moves are given to do: elements of this block's strip.
class Strip {
 public:
  __device__ Strip(const Run& run, const Signals& signals, const FlatStep& step, std::int64_t round)
      : run_(run),
        signals_(signals),
        step_(step),
        elements_(elements_of(run.program, step, round, static_cast<int>(blockIdx.x),
                              static_cast<int>(gridDim.x))),
        round_(round) {}

  __device__ std::int64_t count() const { return elements_.count; }
  __device__ std::byte* target(int i) const { return at(run_.program.span[step_.first + i]); }
  __device__ const std::byte* source(int i) const { return target(step_.targets + i); }

 private:
  __device__ std::byte* at(const FlatSpan& span) const {
    return begin(span) + place_of(span, elements_, round_) * run_.element;
  }
  __device__ std::byte* begin(const FlatSpan& span) const {
    const int owner = span.owner;
    if (span.buffer == Buffer::room) return signals_.half_of(owner);
    const bool in = span.buffer == Buffer::in;
    if (owner == run_.group.rank) return in ? const_cast<std::byte*>(run_.in) : run_.out;
    const Lie lie = signals_.lie_of(owner);
    return in ? run_.ins[owner] + place_in_segment(lie.in)
              : run_.outs[owner] + place_in_segment(lie.out);
  }

  const Run& run_;
  const Signals& signals_;
  const FlatStep& step_;
  Block elements_;
  std::int64_t round_;
};

template <class T>
__device__ void combine(const Run& run, const FlatStep& step, const Strip& strip) {
  Combination<T> all;
  using F = typename Combination<T>::F;
  all.op = run.op;
  all.before = static_cast<F>(run.op == ReduceOp::premul_sum ? run.factor : 1.0);
  all.count = strip.count();
  all.sources = step.sources;
  all.targets = step.targets;
  for (int i = 0; i < all.sources; ++i) all.from[i] = reinterpret_cast<const T*>(strip.source(i));
  for (int i = 0; i < all.targets; ++i) all.to[i] = reinterpret_cast<T*>(strip.target(i));
  with_combination<Computed<T>>(run.op, all);
}

// T: the elements' type; std::byte for a program that combines nothing.
template <class T>
__global__ __launch_bounds__(threads) void interpret(const __grid_constant__ Run run) {
  Signals signals(run.group, run.lie);
  for (FlatCursor now;;) {
    const FlatStep& step = run.program.step[now.step];
    if (step.kind == FlatStep::Kind::stop) break;
    if (step.kind == FlatStep::Kind::choose) {
      const bool direct = signals.reach_all();
      if (direct && blockIdx.x == 0 && threadIdx.x == 0) {
        ++window_of(run.group, run.group.rank).direct;
      }
      choose(run.program, now, direct);
      continue;
    }
    if (step.kind == FlatStep::Kind::meet) {
      if (!signals.meet(step.signals, step.awaits)) return;
    } else if (step.kind != FlatStep::Kind::again) {
      if (step.fresh) __syncthreads();
      const Strip strip(run, signals, step, now.round);
      if (step.kind == FlatStep::Kind::copy) {
        std::byte* const to = strip.target(0);
        const std::byte* const from = strip.source(0);
        if (to != from) move_bytes(to, from, strip.count() * run.element);
      } else if constexpr (!std::same_as<T, std::byte>) {
        combine<T>(run, step, strip);
      }
    }
    advance(run.program, now);
  }
  signals.keep();
}

}  // namespace

void run_program(Device device, int blocks, DType dtype, const Run& run) {
  if (!run.program.combines()) {
    cuda::launch(device, blocks, threads, interpret<std::byte>, run);
    return;
  }
  visit(dtype, [&]<class T>() { cuda::launch(device, blocks, threads, interpret<T>, run); });
}

}  // namespace peal::comm::ipc
