// SPDX-License-Identifier: Apache-2.0
// Context: everything that would otherwise be a mutable global (grad mode, autocast, random
// numbers, device, log tag, trace) is here, once per thread, because ranks may be threads of one
// process. Threads that peal starts take their parent's context along: std::thread(with_context([]
// { ... })).
//
// Random numbers: the thread that started the process draws the stream of seed 0 until
// manual_seed(). A thread that takes a context along goes on from where its parent was, so it draws
// the numbers that the parent draws next: ranks that are threads begin with equal models. Any other
// thread has a stream of its own, of a seed that depends on how many threads there were before it;
// for numbers that can be repeated it calls manual_seed() itself, which reaches no other thread.
//
// Thread safety: context() is the calling thread's own.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/dtype.h>
#include <peal/autograd/core/rng.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace peal {

class Graph;
class Stream;
class Trace;

struct Context {
  bool grad_enabled = true;
  std::optional<DType> autocast;  // what Autocast (autograd/autocast.h) lowers to
  Generator generator;
  Device device;                         // where new tensors live when no device is named
  std::shared_ptr<const Stream> stream;  // null: the device's own (stream.h)
  Graph* graph = nullptr;                // that this thread captures (graph.h)
  // On a device f32 may be multiplied as TF32, with 10 bits of fraction: faster, for products and
  // convolutions alike (PyTorch: torch.backends.cuda.matmul.allow_tf32 and cudnn.allow_tf32).
  bool allow_tf32 = false;
  // Only algorithms that give the same bits at each run (torch.use_deterministic_algorithms).
  bool deterministic = false;
  // On a device the convolutions of a geometry are timed at the first one that no graph captures,
  // and the fastest algorithm stays (torch.backends.cudnn.benchmark): for sizes that come again.
  bool cudnn_benchmark = false;
  // While a DetectAnomaly lives (autograd/anomaly.h), and which module's forward runs then.
  bool detect_anomaly = false;
  // While a DeferInit lives (deferred.h): what starts new tensors is written down for later.
  bool defer_init = false;
  std::string where;
  std::string log_tag;           // "rank 2": put before every log line
  std::shared_ptr<Trace> trace;  // null: nothing is recorded
};

Context& context();

// Seeds this thread's generator (PyTorch: torch.manual_seed), and no other's.
void manual_seed(std::uint64_t seed);

// While one of these lives, operations record a graph, or none (PyTorch: torch.set_grad_enabled).
class GradMode {
 public:
  explicit GradMode(bool on) : before_(std::exchange(context().grad_enabled, on)) {}
  ~GradMode() { context().grad_enabled = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

// While one of these lives, operations record no graph.
class NoGrad : public GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

// Records where NoGrad around it would not (torch.enable_grad).
class EnableGrad : public GradMode {
 public:
  EnableGrad() : GradMode(true) {}
};

using NoGradGuard = NoGrad;
// Nothing is tracked beyond the graph, so this is all that it saves (torch.inference_mode).
using InferenceMode = NoGrad;

// Wraps f so that it runs with a copy of the caller's context, whichever thread runs it.
template <class F>
auto with_context(F f) {
  return [f = std::move(f), inherited = context()]() mutable {
    context() = inherited;
    context().defer_init = false;  // its scope is one thread's
    return f();
  };
}

}  // namespace peal
