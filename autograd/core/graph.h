// SPDX-License-Identifier: Apache-2.0
// CUDA graphs (PyTorch: torch.cuda.graph; the graph of what was computed from what is the tape's,
// tape.h): work on a device that is captured once and replayed as a whole, which spares the host
// the launch of every kernel. For small models the host is what a step waits for. A whole training
// step can be one:
//
//   Graph graph(device);
//   for (...) {
//     x.copy_(batch.x);                    // inputs and outputs keep their place
//     graph.run([&] {
//       optimizer.zero_grad();
//       loss = nll_loss(ddp(x), y);
//       loss.backward();                   // DDP's all-reduces too, over NCCL
//       optimizer.step();
//     });
//     scheduler.step();                    // the next replay has the new rate
//   }
//
// The first calls run the function as it is, so that caches, plans and buffers are made; then it is
// captured; from then on it is replayed, and the function is not called again. What it reads must
// stay where it is, what it makes (loss, gradients) keeps its place and gets new values;
// zero_grad() belongs inside, where gradients begin anew. It may not wait for the device (item(),
// to(cpu)), nor decide anything by values. Random numbers are those that uncaptured calls would
// draw, and numbers of the host that change (rates, bias corrections, counts of steps) are as in
// calls: whoever has such numbers asks for input(). Ranks capture and replay at the same steps. On
// the CPU the function is called each time.
//
// When the graph goes, what it made stays valid for the stream of the last replay. Thread safety:
// one thread.
#pragma once

#include <peal/autograd/core/stream.h>
#include <peal/autograd/core/tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace peal {

class GraphInputs;

class Graph {
 public:
  explicit Graph(Device device, int warm_up = 2);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Calls, captures or replays `step` on the current stream. An exception of `step` while it is
  // captured ends the capture and goes on.
  void run(const std::function<void()>& step);
  bool captured() const { return state_ == State::captured; }
  Device device() const { return device_; }

  // For those who are called while it is captured. The graph that the calling thread captures, or
  // null.
  static Graph* capturing();
  // A tensor on the device, aligned to 16 bytes, that holds in each replay what `write` puts into
  // the host's copy of its elements just before. At most 4096 bytes.
  Tensor input(const Shape& shape, DType dtype, std::function<void(void*)> write);
  // `before` is called on the host before each replay, ahead of all that inputs write, and `after`
  // behind it; both on the thread and stream that replay. When a `before` throws nothing is
  // replayed.
  void at_replay(std::function<void()> before, std::function<void()> after = {});
  // Called once, when the function has ended and the capture has not.
  void at_end(std::function<void()> f) { at_end_.push_back(std::move(f)); }
  // What it captured cannot be replayed any more; run() is an Error with this reason.
  void drop(std::string reason);

 private:
  enum class State : std::uint8_t { warming_up, captured, dropped };
  struct Hook {
    std::function<void()> before, after;
  };
  void capture(const std::function<void()>& step);
  void forget();
  void replay();

  Device device_;
  int warm_up_;
  State state_ = State::warming_up;
  std::string dropped_;          // why
  Stream stream_;                // that captures
  std::shared_ptr<void> graph_;  // the device library's
  std::unique_ptr<GraphInputs> inputs_;
  std::vector<std::function<void()>> at_end_;
  std::vector<Hook> hooks_;
  Event done_;  // the last replay
  // Random words: their seed, where the capture began, and how many it took.
  std::uint64_t seed_ = 0, drawn_at_ = 0, drawn_ = 0;
};

}  // namespace peal
