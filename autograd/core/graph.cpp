// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/graph.h>

#include <exception>
#include <utility>

namespace peal {

Graph::Graph(Device device, int warm_up) : device_(device), warm_up_(warm_up) {
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
  {
    const StreamGuard guard(stream_);
    generator.shift = space.begin_capture(graph_.get(), stream_.native());
    try {
      step();
    } catch (...) {
      generator = before;
      context().trace = trace;
      space.abandon_capture(graph_.get(), stream_.native());
      throw;
    }
    space.end_capture(graph_.get(), stream_.native());
  }
  context().trace = trace;
  drawn_at_ = before.offset;
  drawn_ = generator.offset - before.offset;
  generator = before;  // capturing drew nothing; the replays do
  state_ = State::captured;
}

// The captured kernels draw from where the capture began, shifted to where the generator is now.
void Graph::replay() {
  Generator& generator = context().generator;
  const Stream stream = current_stream(device_);
  stream_space(device_).replay(graph_.get(), stream.native(), generator.offset - drawn_at_);
  generator.offset += drawn_;
}

}  // namespace peal
