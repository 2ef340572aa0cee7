// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/graph.h>

#include <exception>
#include <utility>

namespace peal {

Graph::Graph(Device device, int warm_up) : device_(device), warm_up_(warm_up) {
  PEAL_CHECK(warm_up >= 1, "graph: expected a warm-up of at least 1, got ", warm_up,
             "; what is made at first use cannot be made while work is captured");
  if (device_.type == DeviceType::cpu) return;
  stream_ = Stream::create(device_);
  graph_ = stream_space(device_).create_graph(device_);
}

void Graph::run(const std::function<void()>& step) {
  if (state_ == State::captured) return replay();
  if (device_.type == DeviceType::cpu || warm_up_ > 0) {
    --warm_up_;
    return step();
  }
  capture(step);
  replay();
}

void Graph::capture(const std::function<void()>& step) {
  const StreamSpace& space = stream_space(device_);
  Generator& generator = context().generator;
  const Generator before = generator;
  const auto trace = std::exchange(context().trace, nullptr);  // nothing takes time yet
  try {
    const StreamGuard guard(stream_);
    generator.shift = space.begin_capture(graph_.get(), stream_.native());
    step();
    space.end_capture(graph_.get(), stream_.native());
  } catch (...) {
    generator = before;
    context().trace = trace;
    space.abandon_capture(graph_.get(), stream_.native());
    throw;
  }
  context().trace = trace;
  seed_ = before.seed;
  drawn_at_ = before.offset;
  drawn_ = generator.offset - before.offset;
  generator = before;  // capturing drew nothing; the replays do
  state_ = State::captured;
}

// The captured kernels draw from where the capture began, shifted to where the generator is now.
void Graph::replay() {
  Generator& generator = context().generator;
  PEAL_CHECK(drawn_ == 0 || generator.seed == seed_, "graph: it draws random numbers of seed ",
             seed_, ", with which it was captured, and the generator's seed is ", generator.seed,
             " now; make a new graph after manual_seed()");
  const Stream stream = current_stream(device_);
  const std::uint64_t shift = generator.offset - drawn_at_;
  stream_space(device_).replay(graph_.get(), stream.native(), drawn_ == 0 ? nullptr : &shift);
  generator.offset += drawn_;
}

}  // namespace peal
