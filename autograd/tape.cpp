// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/recorded.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

namespace peal {
namespace {

// Only the order of nodes matters, never the number itself, so ranks that are threads may share it.
std::atomic<std::uint64_t> next_order{1};
std::atomic<std::uint64_t> walks{0};

Edge edge_of(const Tensor& input) {
  if (!input.requires_grad()) return {};
  const TensorBody& body = input.body();
  return body.node ? Edge{body.node, body.output, nullptr, &body}
                   : Edge{nullptr, 0, body.slot, &body};
}

// What grad() asks for: places of the graph whose gradients are kept instead of being accumulated.
class Wanted {
 public:
  explicit Wanted(const Tensors& inputs) : grads(inputs.size()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      PEAL_CHECK(inputs[i].defined() && inputs[i].requires_grad(), "grad: input ", i,
                 inputs[i].defined() ? concat(" of shape ", inputs[i].shape()) : std::string(),
                 " wants no gradient; set_requires_grad() before it is used");
      const TensorBody& body = inputs[i].body();
      if (body.node) {
        outputs_[body.node.get()].push_back({body.output, i});
      } else {
        slots_[body.slot.get()].push_back(i);
      }
    }
  }

  bool has(const Edge& edge) const {
    if (edge.slot) return slots_.contains(edge.slot.get());
    const auto found = outputs_.find(edge.node.get());
    return found != outputs_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const auto& place) { return place.output == edge.output; });
  }
  // The node's gradients are all there.
  void take(const Node& node) {
    const auto found = outputs_.find(&node);
    if (found == outputs_.end()) return;
    for (const auto& [output, input] : found->second) {
      grads[input] = node.grads[static_cast<std::size_t>(output)];
    }
  }
  void take(const GradSlot& slot, const Tensor& grad) {
    const auto found = slots_.find(&slot);
    if (found == slots_.end()) return;
    for (const std::size_t input : found->second) {
      grads[input] = grads[input].defined() ? add(grads[input], grad) : grad;
    }
  }

  // What others hold too (another result, a seed) is copied: whoever writes into a result writes
  // into nothing else.
  void part() {
    for (Tensor& grad : grads) {
      if (grad.defined() && !grad.owned_alone()) grad = grad.clone();
    }
  }

  Tensors grads;  // by input

 private:
  struct Place {
    int output;
    std::size_t input;
  };
  std::unordered_map<const Node*, std::vector<Place>> outputs_;
  std::unordered_map<const GradSlot*, std::vector<std::size_t>> slots_;
};

// Where a walk begins: an output with the gradient that it gets.
struct Root {
  Tensor output, seed;
};

// One backward under way. Its scratch in nodes and slots is cleared however it ends; a slot's count
// is shared with the walks around this one.
class Walk {
 public:
  // `wanted`: for grad(), else null.
  explicit Walk(bool retain_graph, bool create_graph = false, Wanted* wanted = nullptr)
      : create_graph(create_graph),
        outer_(std::exchange(current(), this)),
        outermost_(outer_ ? outer_->outermost_ : this),
        number_(outer_ ? outer_->number_ : walks.fetch_add(1, std::memory_order_relaxed) + 1),
        retain_graph_(retain_graph || create_graph),
        wanted_(wanted) {}
  ~Walk() {
    for (; visiting_ < nodes_.size(); ++visiting_, passing_ = 0) {
      if (!counted_) break;
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
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;

  static Walk*& current() {
    thread_local Walk* walk = nullptr;
    return walk;
  }

  void run(std::vector<Root> roots) {
    for (const Root& root : roots) mark(root.output.body().node);
    reach();
    for (Root& root : roots) {
      const TensorBody& body = root.output.body();
      pass({body.node, body.output, body.slot}, std::move(root.seed), !body.node);
    }
    roots.clear();
    for (; visiting_ < nodes_.size(); ++visiting_) visit(*nodes_[visiting_]);
    if (outermost_ == this) finish();
  }

  std::uint64_t number() const { return number_; }
  void after(std::function<void()> f) { outermost_->callbacks_.push_back(std::move(f)); }
  // The node whose function runs.
  const std::shared_ptr<Node>& node() const { return nodes_[visiting_]; }

  const bool create_graph;

 private:
  void finish() {
    for (std::size_t i = 0; i < callbacks_.size(); ++i) {  // a callback may add another
      const auto callback = std::move(callbacks_[i]);
      callback();
    }
  }

  // Listed as soon as it is marked, so that the destructor clears the marks however this ends.
  void mark(const std::shared_ptr<Node>& node) {
    if (!node || node->walk == this) return;
    PEAL_CHECK(node->walk == nullptr, "backward: the graph through '", node->op,
               "' belongs to a backward that is under way; inside of one, compute anew what is to "
               "be differentiated");
    node->walk = this;
    nodes_.push_back(node);
  }

  void reach() {
    for (std::size_t next = 0; next < nodes_.size(); ++next) {
      Node& node = *nodes_[next];
      node.grads.resize(node.outputs);
      for (const Edge& edge : node.inputs) mark(edge.node);
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
  }

  // Whether the gradient of this input is asked for.
  bool leads(const Edge& edge) const {
    if (wanted_ == nullptr) return edge.wanted();
    return edge.wanted() && (wanted_->has(edge) || (edge.node && edge.node->useful));
  }

  void visit(Node& node) {
    if (wanted_ != nullptr) wanted_->take(node);
    Tensors grads;
    if (node.useful && std::any_of(node.grads.begin(), node.grads.end(),
                                   [](const Tensor& g) { return g.defined(); })) {
      std::uint64_t needs = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (leads(node.inputs[i])) needs |= std::uint64_t{1} << i;
      }
      TraceSpan span(node.op, true);
      const MadeOfOps recorded(create_graph);
      grads = node.backward(node.grads, Needs(needs));
      PEAL_CHECK(grads.size() == node.inputs.size(), "backward: '", node.op, "' gave ",
                 grads.size(), " gradients for ", node.inputs.size(), " inputs");
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
    }
    passing_ = 0;
  }

  // A gradient on its way to where the edge leads; `uncounted`, as nothing else can come.
  void pass(const Edge& edge, Tensor grad, bool uncounted) {
    if (edge.node) {
      if (!grad.defined()) return;
      Tensor& sum = edge.node->grads[static_cast<std::size_t>(edge.output)];
      if (!sum.defined()) {
        sum = std::move(grad);
      } else if (sum.owned_alone() && !context().grad_enabled) {
        add_(sum, grad);
      } else {
        sum = add(sum, grad);
      }
    } else if (edge.slot && wanted_ != nullptr) {
      if (grad.defined()) wanted_->take(*edge.slot, grad);
    } else if (edge.slot) {
      GradSlot& slot = *edge.slot;
      if (!uncounted) --slot.expected;
      if (grad.defined()) {
        slot.accumulate(std::move(grad));
        slot.touched = true;
      }
      if (slot.expected == 0 && slot.touched) {
        slot.touched = false;
        slot.complete();
      }
    }
  }

  // A contribution that does not come any more.
  static void left(GradSlot& slot) {
    if (--slot.expected == 0) slot.touched = false;
  }

  Walk* const outer_;
  Walk* const outermost_;
  const std::uint64_t number_;
  const bool retain_graph_;
  Wanted* const wanted_;
  bool counted_ = false;
  std::size_t visiting_ = 0, passing_ = 0;  // the node, and its input, that come next
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<std::function<void()>> callbacks_;
};

// The gradient that an output starts with.
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

// A gradient that is computed while a backward is recorded, and is itself not recorded, would count
// as a constant.
void check_not_recorded(std::string_view op) {
  const Walk* walk = Walk::current();
  PEAL_CHECK(walk == nullptr || !walk->create_graph, op, ": the function of '", walk->node()->op,
             "' runs it while its own gradient is recorded (grad with create_graph), so its "
             "gradient cannot be differentiated in turn: take autograd::grad with create_graph = "
             "backward_is_recorded() inside of it, or grad() outside without create_graph");
}

}  // namespace

Tensor Saved::operator()() const {
  if (!tensor_.defined()) return tensor_;
  PEAL_CHECK(tensor_.storage()->version() == version_, "backward: a tensor of shape ",
             tensor_.shape(), " that was saved at version ", version_,
             " has since been written in place (version ", tensor_.storage()->version(),
             "); compute out of place, or write before it is used");
  const Walk* walk = Walk::current();
  if (walk == nullptr || !walk->create_graph) return tensor_;
  const std::shared_ptr<Node>& node = walk->node();
  const auto placed = [&](const std::shared_ptr<Node>& made_by, int output,
                          const std::shared_ptr<GradSlot>& slot) {
    Tensor with_graph = tensor_.detach();
    TensorBody& body = with_graph.body();
    body.node = made_by;
    body.output = output;
    body.slot = slot;
    body.requires_grad = true;
    return with_graph;
  };
  if (node->output == of_) return placed(node, 0, nullptr);
  for (const Edge& edge : node->inputs) {
    if (edge.of == of_) return placed(edge.node, edge.output, edge.slot);
  }
  return tensor_;
}

Node::~Node() {
  // The last holder of a chain would free it recursively, one stack frame a node; queue the nodes
  // instead.
  thread_local std::vector<std::shared_ptr<Node>>* queue = nullptr;
  if (queue != nullptr) {
    for (Edge& edge : inputs) {
      if (edge.node) queue->push_back(std::move(edge.node));
    }
    return;
  }
  std::vector<std::shared_ptr<Node>> local;
  queue = &local;
  for (Edge& edge : inputs) {
    if (edge.node) local.push_back(std::move(edge.node));
  }
  while (!local.empty()) {
    std::shared_ptr<Node> node = std::move(local.back());
    local.pop_back();
  }
  queue = nullptr;
}

bool wants_grad(std::span<const Tensor> inputs) {
  return context().grad_enabled && std::any_of(inputs.begin(), inputs.end(),
                                               [](const Tensor& t) { return t.requires_grad(); });
}

Tensors record(std::string_view op, Tensors outputs, std::span<const Tensor> inputs,
               Backward backward) {
  if (!wants_grad(inputs)) return outputs;
  PEAL_CHECK(inputs.size() <= 64, op, ": at most 64 inputs, got ", inputs.size());
  auto node = std::make_shared<Node>();
  node->op = op;
  node->order = next_order.fetch_add(1, std::memory_order_relaxed);
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) node->inputs.push_back(edge_of(input));
  node->backward = std::move(backward);
  node->outputs = outputs.size();
  node->output = &outputs.front().body();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TensorBody& body = outputs[i].body();
    body.node = node;
    body.output = static_cast<int>(i);
    body.requires_grad = true;
  }
  return outputs;
}

Tensor record_one(std::string_view op, Tensor output, std::span<const Tensor> inputs,
                  Backward backward) {
  return record(op, Tensors{std::move(output)}, inputs, std::move(backward))[0];
}

void after_backward(std::function<void()> f) {
  PEAL_CHECK(Walk::current() != nullptr, "after_backward: no backward is under way on this thread");
  Walk::current()->after(std::move(f));
}

std::uint64_t backward_number() { return Walk::current() ? Walk::current()->number() : 0; }

bool backward_is_recorded() { return Walk::current() != nullptr && Walk::current()->create_graph; }

std::vector<std::shared_ptr<GradSlot>> leaves_of(std::span<const Tensor> outputs) {
  std::vector<std::shared_ptr<GradSlot>> leaves;
  std::vector<const Node*> nodes;
  std::unordered_set<const void*> seen;
  const auto look = [&](const std::shared_ptr<Node>& node, const std::shared_ptr<GradSlot>& slot) {
    if (node && seen.insert(node.get()).second) nodes.push_back(node.get());
    if (!node && slot && seen.insert(slot.get()).second) leaves.push_back(slot);
  };
  for (const Tensor& output : outputs) {
    if (output.requires_grad()) look(output.body().node, output.body().slot);
  }
  for (std::size_t next = 0; next < nodes.size(); ++next) {
    for (const Edge& edge : nodes[next]->inputs) look(edge.node, edge.slot);
  }
  return leaves;
}

const Tensor& Tensor::set_requires_grad(bool wanted) const {
  TensorBody& here = body();
  PEAL_CHECK(here.node == nullptr,
             "set_requires_grad: only a leaf can change it; this tensor is the result of '",
             here.node->op, "'; use detach()");
  PEAL_CHECK(!wanted || is_floating(here.dtype),
             "set_requires_grad: only floating types have gradients, got ", here.dtype);
  if (wanted) {
    set_record([](std::string_view op, const Tensor& y, const Tensor& x,
                  std::function<Tensor(const Tensor& g)> backward) {
      return record(op, y, {x}, std::move(backward));
    });
  }
  here.requires_grad = wanted;
  if (wanted && !here.slot)
    here.slot = std::make_shared<GradSlot>(here.shape, here.dtype, device());
  return *this;
}

Tensor Tensor::grad() const { return body().slot ? body().slot->grad() : Tensor(); }

void Tensor::zero_grad() const {
  if (body().slot) body().slot->clear();
}

GradSlot& Tensor::grad_slot() const {
  PEAL_CHECK(body().slot != nullptr,
             "grad_slot: only a leaf that requires a gradient has one; shape ", shape());
  return *body().slot;
}

void Tensor::backward(const Tensor& seed, bool retain_graph) const {
  PEAL_CHECK(requires_grad(), "backward: this tensor of shape ", shape(),
             " needs no gradient: nothing it was made from does, or it was made under NoGrad");
  check_not_recorded("backward");
  warn_of_lone_ranks();
  const NoGrad guard;
  const Autocast as_recorded(DType::bf16, false);
  const Tensor start = seed_of("backward", *this, seed);
  Walk(retain_graph).run({{*this, is_leaf() ? start.clone() : start.detach()}});
}

namespace autograd {

Tensors grad(const Tensors& outputs, const Tensors& inputs, const GradOptions& options) {
  PEAL_CHECK(options.grad_outputs.empty() || options.grad_outputs.size() == outputs.size(),
             "grad: expected a gradient for each of ", outputs.size(), " outputs, or none, got ",
             options.grad_outputs.size());
  if (context().grad_enabled && !options.create_graph) check_not_recorded("grad");
  Wanted wanted(inputs);
  {
    const bool before = std::exchange(context().grad_enabled, options.create_graph);
    const std::shared_ptr<void> restore(nullptr, [=](void*) { context().grad_enabled = before; });
    const Autocast as_recorded(DType::bf16, false);
    std::vector<Root> roots;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      PEAL_CHECK(outputs[i].requires_grad(), "grad: output ", i, " of shape ", outputs[i].shape(),
                 " needs no gradient: nothing it was made from does, or it was made under NoGrad");
      const Tensor& given = options.grad_outputs.empty() ? Tensor() : options.grad_outputs[i];
      roots.push_back({outputs[i], seed_of("grad", outputs[i], given)});
    }
    Walk(options.retain_graph, options.create_graph, &wanted).run(std::move(roots));
    wanted.part();
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    PEAL_CHECK(options.allow_unused || wanted.grads[i].defined(),
               "grad: no output depends on input ", i, " of shape ", inputs[i].shape(),
               "; pass allow_unused where that is meant");
  }
  return std::move(wanted.grads);
}

}  // namespace autograd

}  // namespace peal
