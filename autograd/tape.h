// SPDX-License-Identifier: Apache-2.0
// The tape: what was computed from what, so that gradients can flow back.
//
// An op computes its output and then records how a gradient passes through it, backward beside
// forward:
//
//   Tensor tanh(const Tensor& x) {
//     Tensor y = ...;
//     return record("tanh", y, {x}, [y = save(y)](const Tensor& g) { return g * (1 - y() * y());
//     });
//   }
//
// Nodes carry their creation order, and backward visits them newest first, but for those whose one
// input is a leaf (copies and casts), which come as soon as their gradient is whole: every node
// after all that used its output, and in the same order on all ranks. A leaf's hooks run as soon as
// its gradient is complete, while the rest of backward goes on: that is what DDP overlaps with.
// What needs no gradient records nothing. Saved tensors notice when they were overwritten.
//
// A function that backward calls may itself run a backward (recomputed activations do): the inner
// walk belongs to the outer one, whose number it has and after which callbacks run. Gradients that
// are to be differentiated in turn: grad.h.
//
// Thread safety: a graph belongs to one thread at a time; several threads may each have graphs.
#pragma once

#include <peal/autograd/core/tensor.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace peal {

class Walk;  // a backward under way (walk.h)

// Which inputs of an op want a gradient; backward may return an undefined tensor for the others.
class Needs {
 public:
  explicit Needs(std::uint64_t bits) : bits_(bits) {}
  bool operator[](std::size_t input) const { return (bits_ >> input) & 1; }

 private:
  std::uint64_t bits_;
};

// From the gradients of the outputs (undefined where none came) to those of the inputs, in order.
using Backward = std::function<Tensors(const Tensors& grads, Needs needs)>;

// A tensor kept for backward. It shares storage without holding the graph, and reading it is an
// error once its storage was written in place. Where a backward is recorded (grad.h), an input or
// the output of the op comes with its place in the graph. REQUIRES: it is read by the function of
// the one node that it was made for; in another's, of_ may be the address of a tensor that came
// later, and what was saved would come in that one's place.
class Saved {
 public:
  explicit Saved(const Tensor& tensor)
      : tensor_(tensor.defined() ? tensor.detach() : Tensor()),
        version_(tensor.defined() ? tensor.storage()->version() : 0),
        of_(tensor.defined() ? &tensor.body() : nullptr) {}
  Tensor operator()() const;
  // The tensor, to be written over, where this backward reads it for the last time and nobody else
  // can see its elements; else an undefined one. To read it again is an error then. On the CPU
  // alone: elsewhere another stream may still read what the host has let go.
  Tensor taken() const;

 private:
  Tensor tensor_;
  std::uint64_t version_;
  const TensorBody* of_;  // which tensor it was, while the op was recorded; not to be followed
};
inline Saved save(const Tensor& tensor) { return Saved(tensor); }

// Where an input of a node came from: a node's output, a leaf's slot, or nothing that wants a
// gradient.
struct Edge {
  std::shared_ptr<Node> node;
  int output = 0;
  std::shared_ptr<GradSlot> slot;
  const TensorBody* of = nullptr;  // which tensor the input was (Saved)
  bool wanted() const { return node || slot; }
};

struct NodeHooks;  // hooks.h

struct Node {
  Node();
  ~Node();  // iterative, so that a long chain does not exhaust the stack
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  std::string_view op;  // static storage
  std::uint64_t order = 0;
  std::vector<Edge> inputs;
  Backward backward;  // emptied by a backward that does not retain the graph
  Tensors grads;      // scratch of the walk: what has come for each output
  std::size_t outputs = 0;
  const TensorBody* output = nullptr;  // which tensor the first output was (Saved)
  const Walk* walk = nullptr;          // scratch: the walk that has reached it
  bool useful = true;                  // scratch: it lies between what is asked for
  std::unique_ptr<NodeHooks> hooks;    // of its outputs; mostly none
  std::string where;                   // which module's forward, under DetectAnomaly
};

// True when an op over these inputs has to record.
bool wants_grad(std::span<const Tensor> inputs);

// Attaches a node to the outputs where a gradient is wanted, and returns them. At most 64 inputs.
Tensors record(std::string_view op, Tensors outputs, std::span<const Tensor> inputs,
               Backward backward);
Tensor record_one(std::string_view op, Tensor output, std::span<const Tensor> inputs,
                  Backward backward);

// One output; `backward` is (grad) -> Tensor for one input, or (grad, needs) -> Tensors for
// several.
template <class F>
Tensor record(std::string_view op, Tensor output, std::initializer_list<Tensor> inputs,
              F backward) {
  const std::span<const Tensor> all(inputs.begin(), inputs.size());
  if (!wants_grad(all)) return output;
  if constexpr (std::is_invocable_r_v<Tensor, F, const Tensor&>) {
    return record_one(
        op, std::move(output), all,
        [f = std::move(backward)](const Tensors& grads, Needs) { return Tensors{f(grads[0])}; });
  } else {
    return record_one(op, std::move(output), all,
                      [f = std::move(backward)](const Tensors& grads, Needs needs) {
                        return f(grads[0], needs);
                      });
  }
}

// Runs f on this thread when the backward that is now under way (the outermost, where one runs
// inside another) has visited every node. Error outside one.
void after_backward(std::function<void()> f);

// Which backward is under way on this thread, the outermost; 0 outside of one. No two backwards of
// the process have the same number.
std::uint64_t backward_number();
// That of the last one that has begun, on any thread: those to come have greater ones.
std::uint64_t last_backward_number();

// For the function that an op records: whether what it computes is recorded in turn (grad.h), so
// that it has to be made of recorded ops, not of kernels.
bool backward_is_recorded();

// The slots of all leaves from which these outputs were computed, each once: whoever is not among
// them gets no gradient from a backward.
std::vector<std::shared_ptr<GradSlot>> leaves_of(std::span<const Tensor> outputs);

}  // namespace peal
