// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/anomaly.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/hooks.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/walk.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <map>
#include <utility>

namespace peal {
namespace {

std::atomic<std::uint64_t> walks{0};

// A copy or a cast of a leaf, which looks the same on all ranks. Not an op of several inputs: one
// that makes collectives (synchronised batch norm) would come earlier where its x is no result.
bool next_to_leaves(const Node& node) {
  return node.inputs.size() == 1 && node.inputs[0].node == nullptr;
}

// A contribution that does not come any more.
void left(GradSlot& slot) {
  if (--slot.expected > 0) return;
  slot.touched = false;
  slot.drop_pending();
}

}  // namespace

std::uint64_t last_backward_number() { return walks.load(std::memory_order_relaxed); }

Wanted::Wanted(const Tensors& inputs) : grads(inputs.size()) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    PEAL_CHECK(inputs[i].defined() && inputs[i].requires_grad(), "grad: input ", i,
               inputs[i].defined() ? concat(" of shape ", inputs[i].shape()) : std::string(),
               " wants no gradient; set_requires_grad() before it is used");
    const TensorBody& body = inputs[i].body();
    add({body.node, body.output, body.slot}, i);
  }
}

Wanted::Wanted(const std::vector<Edge>& leading_out, std::uint64_t since)
    : grads(leading_out.size()), since_(since) {
  for (std::size_t i = 0; i < leading_out.size(); ++i) add(leading_out[i], i);
}

void Wanted::add(const Edge& edge, std::size_t input) {
  if (edge.node) {
    outputs_[edge.node.get()].push_back({edge.output, input});
  } else {
    slots_[edge.slot.get()].push_back(input);
  }
}

bool Wanted::has(const Edge& edge) const {
  if (!edge.node) return slots_.contains(edge.slot.get());
  const auto found = outputs_.find(edge.node.get());
  return found != outputs_.end() &&
         std::any_of(found->second.begin(), found->second.end(),
                     [&](const auto& place) { return place.output == edge.output; });
}

std::uint64_t Wanted::oldest() const {
  if (since_ != 0) return since_;
  if (!slots_.empty()) return 0;
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [node, places] : outputs_) order = std::min(order, node->order);
  return order;
}

void Wanted::take(const Node& node) {
  const auto found = outputs_.find(&node);
  if (found == outputs_.end()) return;
  for (const auto& [output, input] : found->second) {
    grads[input] = node.grads[static_cast<std::size_t>(output)];
  }
}

void Wanted::take(std::size_t input, const Tensor& grad) {
  grads[input] = grads[input].defined() ? peal::add(grads[input], grad) : grad;
}

bool Wanted::take(const Edge& edge, const Tensor& grad) {
  if (!edge.node) {
    const auto found = slots_.find(edge.slot.get());
    if (found == slots_.end()) return false;
    for (const std::size_t input : found->second) take(input, grad);
    return true;
  }
  if (edge.node->order >= since_ || since_ == 0) return false;
  const auto found = outputs_.find(edge.node.get());
  if (found == outputs_.end()) return false;
  for (const auto& [output, input] : found->second) {
    if (output == edge.output) take(input, grad);
  }
  return true;
}

void Wanted::run_hooks() {
  if (since_ != 0) return;
  std::map<std::size_t, GradSlot*> in_order;  // of the inputs, on all ranks
  for (const auto& [slot, inputs] : slots_) {
    if (!slot->gradient_hooks().empty()) in_order.emplace(inputs[0], slot);
  }
  for (const auto& [first, slot] : in_order) {
    if (!grads[first].defined()) continue;
    const Tensor grad = peal::run_hooks(slot->gradient_hooks(), "a leaf", grads[first]);
    for (const std::size_t input : slots_.at(slot)) grads[input] = grad;
  }
}

void Wanted::part() {
  for (Tensor& grad : grads) {
    if (grad.defined() && !grad.owned_alone()) grad = grad.clone();
  }
}

Walk::Walk(bool retain_graph, bool create_graph, Wanted* wanted)
    : create_graph(create_graph),
      outer_(std::exchange(current(), this)),
      outermost_(outer_ ? outer_->outermost_ : this),
      number_(outer_ ? outer_->number_ : walks.fetch_add(1, std::memory_order_relaxed) + 1),
      retain_graph_(retain_graph || create_graph),
      wanted_(wanted) {}

Walk::~Walk() {
  for (; counted_ && visiting_ < nodes_.size(); ++visiting_, passing_ = 0) {
    const std::vector<Edge>& edges = nodes_[visiting_]->inputs;
    for (; passing_ < edges.size(); ++passing_) {
      if (edges[passing_].slot) left(*edges[passing_].slot);
    }
  }
  for (const auto& node : nodes_) {
    node->walk = nullptr;
    node->grads.clear();
  }
  current() = outer_;
}

void Walk::run(std::vector<Root> roots) {
  for (const Root& root : roots) mark(root.output.body().node);
  reach();
  for (Root& root : roots) {
    const TensorBody& body = root.output.body();
    pass({body.node, body.output, body.slot}, std::move(root.seed), !body.node);
  }
  roots.clear();
  for (; visiting_ < nodes_.size(); ++visiting_) visit(*nodes_[visiting_]);
  if (wanted_ != nullptr) wanted_->run_hooks();
  if (outermost_ == this) finish();
}

// A callback may add another. One that fails takes no other's end from it: what that has begun, a
// collective perhaps, is not to be left half done.
void Walk::finish() {
  std::exception_ptr first;
  for (std::size_t i = 0; i < callbacks_.size(); ++i) {
    const auto callback = std::move(callbacks_[i]);
    try {
      callback();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

// Listed as soon as it is marked, so that the destructor clears the marks however this ends.
void Walk::mark(const std::shared_ptr<Node>& node) {
  if (!node || node->walk == this) return;
  PEAL_CHECK(node->walk == nullptr, "backward: the graph through '", node->op,
             "' belongs to a backward that is under way; inside of one, compute anew what is to "
             "be differentiated");
  node->walk = this;
  nodes_.push_back(node);
}

void Walk::reach() {
  // Where a function differentiates what it made of copies of its inputs, or anew, those before
  // that are of the walk around this one.
  const std::uint64_t oldest = wanted_ == nullptr ? 0 : wanted_->oldest();
  for (std::size_t next = 0; next < nodes_.size(); ++next) {
    Node& node = *nodes_[next];
    node.grads.resize(node.outputs);
    for (const Edge& edge : node.inputs) {
      if (edge.node && edge.node->order >= oldest) mark(edge.node);
    }
  }
  std::sort(nodes_.begin(), nodes_.end(),
            [](const auto& a, const auto& b) { return a->order > b->order; });
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const std::vector<Edge>& edges = (*node)->inputs;
    (*node)->useful = wanted_ == nullptr || std::any_of(edges.begin(), edges.end(),
                                                        [&](const Edge& e) { return leads(e); });
    PEAL_CHECK(
        !(*node)->useful || (*node)->backward, "backward: the graph through '", (*node)->op,
        "' was already freed by an earlier backward; pass retain_graph = true there to go twice");
  }
  if (wanted_ != nullptr) return;
  for (const auto& node : nodes_) {
    for (const Edge& edge : node->inputs) {
      if (edge.slot) ++edge.slot->expected;
    }
  }
  counted_ = true;
  count_awaited();
}

// Where a node next to leaves is the newest but for those that use it, it comes next anyway.
void Walk::count_awaited() {
  for (const auto& node : nodes_) {
    for (const Edge& edge : node->inputs) {
      if (edge.node && next_to_leaves(*edge.node)) ++awaited_[edge.node.get()];
    }
  }
}

// A contribution to a node's gradients came, or none will come of this edge.
void Walk::note_passed(const Edge& edge) {
  if (awaited_.empty() || !edge.node || !next_to_leaves(*edge.node)) return;
  const auto found = awaited_.find(edge.node.get());
  if (found != awaited_.end() && --found->second == 0) ready_.push_back(edge.node.get());
}

// Those that are ready come next, newest first.
void Walk::bring_forward() {
  const auto newer = [](const auto& a, const auto& b) { return a->order > b->order; };
  std::sort(ready_.begin(), ready_.end(), newer);
  auto next = nodes_.begin() + static_cast<std::ptrdiff_t>(visiting_) + 1;
  for (const Node* node : ready_) {
    const auto place = std::lower_bound(next, nodes_.end(), node, newer);
    next = std::rotate(next, place, place + 1);
  }
  ready_.clear();
}

// Whether the gradient of this input is asked for.
bool Walk::leads(const Edge& edge) const {
  if (wanted_ == nullptr) return edge.wanted();
  return edge.wanted() &&
         (wanted_->has(edge) || (edge.node && edge.node->walk == this && edge.node->useful));
}

void Walk::visit(Node& node) {
  if (node.hooks) node.hooks->run(node.op, node.grads, wanted_ == nullptr);
  if (wanted_ != nullptr) wanted_->take(node);
  Tensors grads;
  if (node.useful && std::any_of(node.grads.begin(), node.grads.end(),
                                 [](const Tensor& g) { return g.defined(); })) {
    std::uint64_t needs = 0;
    for (std::size_t i = 0; i < std::min<std::size_t>(node.inputs.size(), 64); ++i) {
      if (leads(node.inputs[i])) needs |= std::uint64_t{1} << i;
    }
    TraceSpan span(node.op, true);
    const MadeOfOps recorded(create_graph);
    grads = node.backward(node.grads, Needs(needs));
    PEAL_CHECK(grads.size() == node.inputs.size(), "backward: '", node.op, "' gave ", grads.size(),
               " gradients for ", node.inputs.size(), " inputs");
    for (std::size_t i = 0; context().detect_anomaly && i < grads.size(); ++i) {
      if (leads(node.inputs[i]) && grads[i].defined()) {
        check_anomaly(node.op, node.where, i, grads[i]);
      }
    }
  } else {
    grads.resize(node.inputs.size());
  }
  node.grads.clear();
  if (!retain_graph_ && node.useful) node.backward = nullptr;
  for (passing_ = 0; passing_ < grads.size();) {
    const Edge& edge = node.inputs[passing_];
    Tensor grad = leads(edge) ? std::move(grads[passing_]) : Tensor();
    ++passing_;
    pass(edge, std::move(grad), false);
    note_passed(edge);
  }
  passing_ = 0;
  bring_forward();
}

// A gradient on its way to where the edge leads; `uncounted`, as nothing else can come.
void Walk::pass(const Edge& edge, Tensor grad, bool uncounted) {
  if (wanted_ != nullptr && grad.defined() && wanted_->take(edge, grad)) return;
  if (edge.node) {
    if (!grad.defined()) return;
    Tensor& sum = edge.node->grads[static_cast<std::size_t>(edge.output)];
    if (!sum.defined()) {
      sum = std::move(grad);
    } else if (sum.owned_alone() && !context().grad_enabled) {
      sum.storage()->mark_own();  // as a part of a gradient may be a copy
      add_(sum, grad);
    } else {
      sum = add(sum, grad);
    }
  } else if (edge.slot && wanted_ == nullptr) {
    GradSlot& slot = *edge.slot;
    if (!uncounted) --slot.expected;
    if (grad.defined()) {
      slot.receive(std::move(grad), slot.touched);
      slot.touched = true;
    }
    if (slot.expected == 0 && slot.touched) {
      slot.touched = false;
      slot.complete();
    }
  }
}

Tensor seed_of(std::string_view op, const Tensor& output, const Tensor& given) {
  PEAL_CHECK(given.defined() || output.numel() == 1, op,
             ": without a seed the tensor must have one element, got shape ", output.shape(),
             "; reduce it (sum, mean) or pass a seed of that shape");
  if (!given.defined()) return ones(output.shape(), output.dtype(), output.device());
  PEAL_CHECK(given.shape() == output.shape() && given.dtype() == output.dtype(), op,
             ": expected a seed ", output.dtype(), " ", output.shape(), ", got ", given.dtype(),
             " ", given.shape());
  return given;
}

void check_not_recorded(std::string_view op) {
  const Walk* walk = Walk::current();
  PEAL_CHECK(walk == nullptr || !walk->create_graph, op, ": the function of '", walk->node()->op,
             "' runs it while its own gradient is recorded (grad with create_graph), so its "
             "gradient cannot be differentiated in turn: take autograd::grad with create_graph = "
             "backward_is_recorded() inside of it, or grad() outside without create_graph");
}

}  // namespace peal
