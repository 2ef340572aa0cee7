// SPDX-License-Identifier: Apache-2.0
// The walk of backward over a graph: newest nodes first, each once all gradients of its outputs are
// there, and leaves as soon as theirs are complete. So are nodes whose one input is a leaf:
// weights that were cast or otherwise made from leaves before all else would be visited last, and
// their leaves, which DDP is to send while backward goes on, complete at the very end. What tape.h,
// grad.h and checkpoint.h offer rests on it; nobody else includes this. Thread safety: a walk
// belongs to its thread.
#pragma once

#include <peal/autograd/grad_slot.h>
#include <peal/autograd/tape.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace peal {

// The order that the next node will have, or one before it.
std::uint64_t next_node_order();

// What grad() asks for: places of the graph whose gradients are kept instead of being accumulated.
class Wanted {
 public:
  // Error for one that wants no gradient.
  explicit Wanted(const Tensors& inputs);
  // All that lead out of the part of a graph whose nodes are no older than `since`: the walk stays
  // in it, and hooks of leaves are left to the walk that goes on from there.
  Wanted(const std::vector<Edge>& leading_out, std::uint64_t since);
  bool has(const Edge& edge) const;
  // The order of the oldest node that leads to what is asked for, at least. 0 where a leaf is.
  std::uint64_t oldest() const;
  // The node's gradients are all there.
  void take(const Node& node);
  // A contribution on its way along the edge; false where that is not asked for, or comes with its
  // node.
  bool take(const Edge& edge, const Tensor& grad);
  // Those of the leaves among them, whose gradients are all there.
  void run_hooks();
  // What others hold too (another result, a seed) is copied: whoever writes into a result writes
  // into nothing else.
  void part();

  Tensors grads;  // by input

 private:
  struct Place {
    int output;
    std::size_t input;
  };
  void add(const Edge& edge, std::size_t input);
  void take(std::size_t input, const Tensor& grad);

  std::unordered_map<const Node*, std::vector<Place>> outputs_;
  std::unordered_map<GradSlot*, std::vector<std::size_t>> slots_;
  std::uint64_t since_ = 0;
};

// Where a walk begins: an output with the gradient that it gets.
struct Root {
  Tensor output, seed;
};

// The gradient that an output starts with: `given`, or 1 for an output of one element.
Tensor seed_of(std::string_view op, const Tensor& output, const Tensor& given);

// Error in a backward that is recorded. A gradient that is computed there, and is itself not
// recorded, would count as a constant.
void check_not_recorded(std::string_view op);

// One backward under way. Its scratch in nodes and slots is cleared however it ends; a slot's count
// is shared with the walks around this one.
class Walk {
 public:
  // `wanted`: for grad(), else null.
  explicit Walk(bool retain_graph, bool create_graph = false, Wanted* wanted = nullptr);
  ~Walk();
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  // This thread's innermost, or null.
  static Walk*& current() {
    thread_local Walk* walk = nullptr;
    return walk;
  }

  void run(std::vector<Root> roots);

  std::uint64_t number() const { return number_; }
  // Whether the nodes may be visited again by another walk.
  bool retains_graph() const { return retain_graph_; }
  void after(std::function<void()> f) { outermost_->callbacks_.push_back(std::move(f)); }
  // The node whose function runs.
  const std::shared_ptr<Node>& node() const { return nodes_[visiting_]; }

  const bool create_graph;

 private:
  void finish();
  void count_awaited();
  void note_passed(const Edge& edge);
  void bring_forward();
  void mark(const std::shared_ptr<Node>& node);
  void reach();
  bool leads(const Edge& edge) const;
  void visit(Node& node);
  void pass(const Edge& edge, Tensor grad, bool uncounted);

  Walk* const outer_;
  Walk* const outermost_;
  const std::uint64_t number_;
  const bool retain_graph_;
  Wanted* const wanted_;
  bool counted_ = false;
  std::size_t visiting_ = 0, passing_ = 0;  // the node, and its input, that come next
  std::vector<std::shared_ptr<Node>> nodes_;
  // Of nodes next to leaves: contributions still to come; and those for which none is.
  std::unordered_map<const Node*, std::int64_t> awaited_;
  std::vector<const Node*> ready_;
  std::vector<std::function<void()>> callbacks_;
};

}  // namespace peal
