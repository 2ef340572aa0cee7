// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/graph_inputs.h>

#include <cstring>
#include <exception>
#include <utility>

namespace peal {

Graph::Graph(Device device, int warm_up) : device_(device), warm_up_(warm_up) {
  PEAL_CHECK(warm_up >= 1, "CUDA graph: expected a warm-up of at least 1, got ", warm_up,
             "; what is made at first use cannot be made while work is captured");
  if (device_.type == DeviceType::cpu) return;
  stream_ = Stream::create(device_);
  graph_ = stream_space(device_).create_graph(device_);
  inputs_ = std::make_unique<GraphInputs>(device_);
}

Graph::~Graph() {
  try {
    drop("it is gone");
  } catch (const Error&) {  // of the device, whose memory is of no use to anybody now
  }
}

Graph* Graph::capturing() { return context().graph; }

Tensor Graph::input(const Shape& shape, DType dtype, std::function<void(void*)> write) {
  return inputs_->add(shape, dtype, std::move(write));
}

void Graph::at_replay(std::function<void()> before, std::function<void()> after) {
  hooks_.push_back({std::move(before), std::move(after)});
}

void Graph::run(const std::function<void()>& step) {
  PEAL_CHECK(state_ != State::dropped, "CUDA graph: ", dropped_, "; make a new graph");
  if (state_ == State::captured) return replay();
  if (device_.type == DeviceType::cpu || warm_up_ > 0) {
    --warm_up_;
    return step();
  }
  capture(step);
  replay();
}

// Whoever belongs to a capture that was left, or to a graph that goes.
void Graph::forget() {
  at_end_.clear();
  const auto hooks = std::exchange(hooks_, {});
  if (inputs_) inputs_->clear();
}

void Graph::drop(std::string reason) {
  if (state_ == State::dropped) return;
  state_ = State::dropped;
  dropped_ = std::move(reason);
  const auto leave = [&] {
    graph_.reset();
    forget();
  };
  try {
    done_.synchronize();
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void Graph::capture(const std::function<void()>& step) {
  PEAL_CHECK(context().graph == nullptr,
             "CUDA graph: a graph is captured within another's capture");
  const StreamSpace& space = stream_space(device_);
  Generator& generator = context().generator;
  const Generator before = generator;
  const auto trace = std::exchange(context().trace, nullptr);  // nothing takes time yet
  const auto leave = [&] {
    generator = before;  // capturing drew nothing; the replays do
    context().trace = trace;
    context().graph = nullptr;
  };
  try {
    const StreamGuard guard(stream_);
    // The captured kernels draw from where the capture began, shifted to where the generator is.
    const Tensor shift = input({}, DType::i64, [this](void* to) {
      const std::uint64_t words = context().generator.offset - drawn_at_;
      std::memcpy(to, &words, sizeof words);
    });
    generator.shift = static_cast<const std::uint64_t*>(shift.raw());
    space.begin_capture(graph_.get(), stream_.native());
    context().graph = this;
    step();
    for (const auto& f : at_end_) f();
    space.end_capture(graph_.get(), stream_.native());
  } catch (...) {
    leave();
    space.abandon_capture(graph_.get(), stream_.native());
    forget();
    throw;
  }
  drawn_ = generator.offset - before.offset;
  leave();
  at_end_.clear();
  seed_ = before.seed;
  drawn_at_ = before.offset;
  state_ = State::captured;
}

void Graph::replay() {
  Generator& generator = context().generator;
  PEAL_CHECK(drawn_ == 0 || generator.seed == seed_, "CUDA graph: it draws random numbers of seed ",
             seed_, ", with which it was captured, and the generator's seed is ", generator.seed,
             " now; make a new graph after manual_seed()");
  const Stream stream = current_stream(device_);
  stream.wait(done_);  // on another stream, maybe
  for (const Hook& hook : hooks_) {
    if (hook.before) hook.before();
  }
  inputs_->upload();
  stream_space(device_).replay(graph_.get(), stream.native());
  done_.record(stream);
  generator.offset += drawn_;
  for (const Hook& hook : hooks_) {
    if (hook.after) hook.after();
  }
}

}  // namespace peal
