// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/core/lone_ranks.h>
#include <peal/autograd/core/recorded.h>
#include <peal/autograd/hooks.h>
#include <peal/autograd/walk.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>

namespace peal {
namespace {

// Only the order of nodes matters, never the number itself, so ranks that are threads may share it.
std::atomic<std::uint64_t> next_order{1};

Edge edge_of(const Tensor& input) {
  if (!input.requires_grad()) return {};
  const TensorBody& body = input.body();
  return body.node ? Edge{body.node, body.output, nullptr, &body}
                   : Edge{nullptr, 0, body.slot, &body};
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

Tensor Saved::taken() const {
  const Walk* walk = Walk::current();
  if (!tensor_.defined() || walk == nullptr || walk->retains_graph()) return {};
  const StorageRef& storage = tensor_.storage();
  if (storage->device().type != DeviceType::cpu || !storage->owned() || storage.use_count() > 1) {
    return {};
  }
  const Tensor mine = (*this)();
  storage->bump_version();
  return mine;
}

Node::Node() = default;

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

std::uint64_t next_node_order() { return next_order.load(std::memory_order_relaxed); }

Tensors record(std::string_view op, Tensors outputs, std::span<const Tensor> inputs,
               Backward backward) {
  if (!wants_grad(inputs)) return outputs;
  PEAL_CHECK(inputs.size() <= 64, op, ": at most 64 inputs, got ", inputs.size());
  auto node = std::make_shared<Node>();
  node->op = op;
  if (context().detect_anomaly) node->where = context().where;
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
    set_record(
        [](std::string_view op, const Tensor& y, const Tensor& x,
           std::function<Tensor(const Tensor& g)> backward) {
          return record(op, y, {x}, std::move(backward));
        },
        [](const Node& node) { return node.op; });
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

}  // namespace peal
