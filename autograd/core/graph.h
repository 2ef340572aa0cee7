// SPDX-License-Identifier: Apache-2.0
// Graph: work on a device that is captured once and replayed as a whole, which spares the host the
// launch of every kernel (CUDA graphs; PyTorch: torch.cuda.graph). For small models the host is
// what a step waits for.
//
//   Graph graph(device);
//   for (...) {
//     x.copy_(batch.x);                    // inputs and outputs keep their place
//     graph.run([&] { optimizer.zero_grad(); loss = nll_loss(net(x), y); loss.backward(); });
//     optimizer.step();
//   }
//
// The first calls run the function as it is, so that caches, plans and buffers are made; then it is
// captured; from then on it is replayed, and the function is not called again. What it reads must
// stay where it is, what it makes (loss, gradients) keeps its place and gets new values;
// zero_grad() belongs inside, where gradients begin anew. It may not wait for the device (item(),
// to(cpu)), nor decide anything by values. Random numbers are those that uncaptured calls would
// draw. On the CPU the function is called each time. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/stream.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace peal {

class Graph {
 public:
  explicit Graph(Device device, int warm_up = 2);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Calls, captures or replays `step` on the current stream. An exception of `step` while it is
  // captured ends the capture and goes on.
  void run(const std::function<void()>& step);
  bool captured() const { return state_ == State::captured; }

 private:
  enum class State : std::uint8_t { warming_up, captured };
  void capture(const std::function<void()>& step);
  void replay();

  Device device_;
  int warm_up_;
  State state_ = State::warming_up;
  Stream stream_;                // that captures
  std::shared_ptr<void> graph_;  // the device library's
  // Random words: their seed, where the capture began, and how many it took.
  std::uint64_t seed_ = 0, drawn_at_ = 0, drawn_ = 0;
};

}  // namespace peal
