// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/trace.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/arithmetic.h>
#include <peal/autograd/ops/factory.h>
#include <peal/autograd/tape.h>

#include <algorithm>
#include <atomic>

namespace peal {
namespace {

// Only the order of nodes matters, never the number itself, so ranks that are threads may share it.
std::atomic<std::uint64_t> next_order{1};

Edge edge_of(const Tensor& input) {
  if (!input.requires_grad()) return {};
  const TensorBody& body = input.body();
  return body.node ? Edge{body.node, body.output, nullptr} : Edge{nullptr, 0, body.slot};
}

// One backward under way. Its scratch in nodes and slots is cleared however it ends.
class Walk {
 public:
  Walk() : number(++walks()), outer_(std::exchange(current(), this)) {}
  ~Walk() {
    for (const auto& node : nodes_) {
      node->reached = false;
      node->grads.clear();
    }
    for (const auto& slot : slots_) {
      slot->expected = 0;
      slot->touched = false;
    }
    current() = outer_;
  }

  static Walk*& current() {
    thread_local Walk* walk = nullptr;
    return walk;
  }

  static std::uint64_t& walks() {
    thread_local std::uint64_t count = 0;
    return count;
  }

  void run(const std::shared_ptr<Node>& root, int output, const Tensor& seed, bool retain_graph) {
    reach(root);
    std::sort(nodes_.begin(), nodes_.end(),
              [](const auto& a, const auto& b) { return a->order > b->order; });
    root->grads[static_cast<std::size_t>(output)] = seed;
    for (const auto& node : nodes_) visit(*node, retain_graph);
    finish();
  }

  void finish() {
    for (std::size_t i = 0; i < callbacks.size(); ++i) {  // a callback may add another
      const auto callback = std::move(callbacks[i]);
      callback();
    }
  }

  const std::uint64_t number;  // of this thread's walks, from 1
  std::vector<std::function<void()>> callbacks;

 private:
  void reach(const std::shared_ptr<Node>& root) {
    // Listed as soon as it is marked, so that the destructor clears the marks however this ends.
    const auto mark = [this](const std::shared_ptr<Node>& node) {
      if (node->reached) return;
      node->reached = true;
      nodes_.push_back(node);
    };
    mark(root);
    for (std::size_t next = 0; next < nodes_.size(); ++next) {
      Node& node = *nodes_[next];
      PEAL_CHECK(
          node.backward, "backward: the graph through '", node.op,
          "' was already freed by an earlier backward; pass retain_graph = true there to go twice");
      node.grads.resize(node.outputs);
      for (const Edge& edge : node.inputs) {
        if (edge.slot) {
          if (edge.slot->expected++ == 0) slots_.push_back(edge.slot);
        } else if (edge.node) {
          mark(edge.node);
        }
      }
    }
  }

  void visit(Node& node, bool retain_graph) {
    Tensors grads;
    if (std::any_of(node.grads.begin(), node.grads.end(),
                    [](const Tensor& g) { return g.defined(); })) {
      std::uint64_t needs = 0;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i].wanted()) needs |= std::uint64_t{1} << i;
      }
      TraceSpan span(node.op, true);
      grads = node.backward(node.grads, Needs(needs));
      PEAL_CHECK(grads.size() == node.inputs.size(), "backward: '", node.op, "' gave ",
                 grads.size(), " gradients for ", node.inputs.size(), " inputs");
    } else {
      grads.resize(node.inputs.size());
    }
    node.grads.clear();
    if (!retain_graph) node.backward = nullptr;
    for (std::size_t i = 0; i < grads.size(); ++i) pass(node.inputs[i], std::move(grads[i]));
  }

  void pass(const Edge& edge, Tensor grad) {
    if (edge.node) {
      if (!grad.defined()) return;
      Tensor& sum = edge.node->grads[static_cast<std::size_t>(edge.output)];
      if (!sum.defined()) {
        sum = std::move(grad);
      } else if (sum.owned_alone()) {
        add_(sum, grad);
      } else {
        sum = add(sum, grad);
      }
    } else if (edge.slot) {
      GradSlot& slot = *edge.slot;
      if (grad.defined()) {
        slot.accumulate(std::move(grad));
        slot.touched = true;
      }
      if (--slot.expected == 0 && slot.touched) slot.complete();
    }
  }

  Walk* outer_;
  std::vector<std::shared_ptr<Node>> nodes_;
  std::vector<std::shared_ptr<GradSlot>> slots_;
};

}  // namespace

const Tensor& Saved::operator()() const {
  if (tensor_.defined()) {
    PEAL_CHECK(tensor_.storage()->version() == version_, "backward: a tensor of shape ",
               tensor_.shape(), " that was saved at version ", version_,
               " has since been written in place (version ", tensor_.storage()->version(),
               "); compute out of place, or write before it is used");
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
  Walk::current()->callbacks.push_back(std::move(f));
}

std::uint64_t backward_number() { return Walk::current() ? Walk::current()->number : 0; }

const Tensor& Tensor::set_requires_grad(bool wanted) const {
  TensorBody& here = body();
  PEAL_CHECK(here.node == nullptr,
             "set_requires_grad: only a leaf can change it; this tensor is the result of '",
             here.node->op, "'; use detach()");
  PEAL_CHECK(!wanted || is_floating(here.dtype),
             "set_requires_grad: only floating types have gradients, got ", here.dtype);
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
  PEAL_CHECK(seed.defined() || numel() == 1,
             "backward: without a seed the tensor must have one element, got shape ", shape(),
             "; reduce it (sum, mean) or pass a seed of that shape");
  warn_of_lone_ranks();
  const NoGrad guard;
  const Autocast as_recorded(DType::bf16, false);
  const Tensor start = seed.defined() ? seed.detach() : ones(shape(), dtype(), device());
  PEAL_CHECK(start.shape() == shape() && start.dtype() == dtype(), "backward: expected a seed ",
             dtype(), " ", shape(), ", got ", start.dtype(), " ", start.shape());
  Walk walk;
  if (const auto node = body().node) {
    walk.run(node, body().output, start, retain_graph);
  } else {
    grad_slot().accumulate(start.clone());
    grad_slot().complete();
    walk.finish();
  }
}

}  // namespace peal
