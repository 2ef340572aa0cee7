// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/walk.h>

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_set>

namespace peal {
namespace {

thread_local bool again = false;

// What f found in the thread's context, beside what belongs to backward too.
struct Found {
  Generator generator = context().generator;
  std::optional<DType> autocast = context().autocast;
  Device device = context().device;
};

// While it lives, this thread computes anew, with what f found the first time.
class AsInForward {
 public:
  AsInForward(const Found& forward, bool random)
      : generator_(context().generator),
        random_(random),
        autocast_(std::exchange(context().autocast, forward.autocast)),
        device_(std::exchange(context().device, forward.device)),
        again_(std::exchange(again, true)) {
    if (random_) context().generator = forward.generator;
  }
  ~AsInForward() {
    if (random_) context().generator = generator_;
    context().autocast = autocast_;
    context().device = device_;
    again = again_;
  }
  AsInForward(const AsInForward&) = delete;
  AsInForward& operator=(const AsInForward&) = delete;

 private:
  const Generator generator_;
  const bool random_;
  const std::optional<DType> autocast_;
  const Device device_;
  const bool again_;
  const EnableGrad recorded_;
};

// A tensor of these elements at that place of the graph.
Tensor placed(const Tensor& elements, const Edge& at) {
  const Tensor x = elements.detach();
  TensorBody& body = x.body();
  body.node = at.node;
  body.output = at.output;
  body.slot = at.slot;
  body.requires_grad = at.wanted();
  return x;
}

// An input as it was.
struct Kept {
  explicit Kept(const Tensor& x) : elements(x) {
    if (!x.defined() || !x.requires_grad()) return;
    at = {x.body().node, x.body().output, x.is_leaf() ? x.body().slot : nullptr};
  }
  Tensor operator()() const {
    const Tensor x = elements();
    return x.defined() ? placed(x, at) : x;
  }

  Saved elements;
  Edge at;
};

Tensors inputs_of(const std::vector<Kept>& kept) {
  Tensors inputs;
  for (const Kept& each : kept) inputs.push_back(each());
  return inputs;
}

// Whether f made y, by nodes no older than `since`, and did not only pass it on.
bool made_here(const Tensor& y, std::uint64_t since) {
  return y.defined() && y.requires_grad() && !y.is_leaf() && y.body().node->order >= since;
}

// The part of the graph that f made.
class Part {
 public:
  Part(const Tensors& outputs, std::uint64_t since) {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> nodes;
    const auto look = [&](const std::shared_ptr<Node>& node) {
      if (seen.insert(node.get()).second) nodes.push_back(node.get());
    };
    for (const Tensor& y : outputs) {
      if (made_here(y, since)) look(y.body().node);
    }
    for (std::size_t next = 0; next < nodes.size(); ++next) {
      for (const Edge& edge : nodes[next]->inputs) {
        if (edge.node && edge.node->order >= since) {
          look(edge.node);
        } else if (edge.wanted() && places_.emplace(place(edge), leading_out.size()).second) {
          leading_out.push_back({edge.node, edge.output, edge.slot});
        }
      }
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const Node* a, const Node* b) { return a->order < b->order; });
    for (const Node* node : nodes) ops.push_back(node->op);
  }

  // Where in leading_out, or none.
  std::optional<std::size_t> find(const Edge& edge) const {
    const auto found = places_.find(place(edge));
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<Edge> leading_out;      // to leaves and to what was there before, each once
  std::vector<std::string_view> ops;  // in order

 private:
  static std::pair<const void*, int> place(const Edge& edge) {
    if (edge.node) return {edge.node.get(), edge.output};
    return {edge.slot.get(), 0};
  }
  std::map<std::pair<const void*, int>, std::size_t> places_;
};

// What came out the first time.
struct Result {
  explicit Result(const Tensor& y)
      : shape(y.defined() ? y.shape() : Shape()), dtype(y.defined() ? y.dtype() : DType::f32) {}
  bool operator==(const Result&) const = default;

  Shape shape;
  DType dtype;
};

constexpr std::string_view advice =
    " when it was computed anew; the function reads what has changed since, or draws from a "
    "generator of its own";

void check_outputs(const std::vector<Result>& forward, const Tensors& outputs) {
  PEAL_CHECK(outputs.size() == forward.size(), "checkpoint: expected ", forward.size(),
             " outputs, as in forward, got ", outputs.size(), advice);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Result now(outputs[i]), &before = forward[i];
    PEAL_CHECK(now == before, "checkpoint: output ", i, ": expected ", before.dtype, " ",
               before.shape, ", as in forward, got ", now.dtype, " ", now.shape, advice);
  }
}

void check_ops(const std::vector<std::string_view>& forward,
               const std::vector<std::string_view>& now) {
  const auto [expected, got] =
      std::mismatch(forward.begin(), forward.end(), now.begin(), now.end());
  const auto name = [](auto at, const auto& ops) {
    return at == ops.end() ? std::string("no more") : concat("'", *at, "'");
  };
  PEAL_CHECK(expected == forward.end() && got == now.end(), "checkpoint: operation ",
             expected - forward.begin(), ": expected ", name(expected, forward),
             ", as in forward, got ", name(got, now), advice);
}

// What backward needs of a function.
struct Recipe {
  // The gradients that lead out of the function, as the node of Walk::current() has its inputs.
  Tensors operator()(const Tensors& grads, Needs) const {
    const std::uint64_t since = next_node_order();
    const Tensors outputs = [&] {
      const AsInForward guard(found, options.preserve_rng_state);
      return f(inputs_of(inputs));
    }();
    check_outputs(results, outputs);
    const Part part(outputs, since);
    if (options.determinism_check) check_ops(ops, part.ops);

    std::vector<Root> roots;
    for (std::size_t i = 0; i < recorded.size(); ++i) {
      if (!grads[i].defined()) continue;
      const Tensor& y = outputs[recorded[i]];
      PEAL_CHECK(made_here(y, since), "checkpoint: output ", recorded[i],
                 ": expected to need a gradient, as in forward, and does not", advice);
      roots.push_back({y, grads[i]});
    }
    const std::vector<Edge>& wanted_by = Walk::current()->node()->inputs;
    std::vector<std::optional<std::size_t>> places;
    for (const Edge& edge : wanted_by) {
      places.push_back(edge.wanted() ? part.find(edge) : std::nullopt);
      PEAL_CHECK(!edge.wanted() || places.back(),
                 "checkpoint: expected to be made from the same tensors that want a gradient as in "
                 "forward, got ",
                 part.leading_out.size(), " of which one is missing", advice);
    }
    Wanted wanted(part.leading_out, since);
    Walk(false, backward_is_recorded(), &wanted).run(std::move(roots));
    Tensors result;
    for (const auto& place : places) result.push_back(place ? wanted.grads[*place] : Tensor());
    return result;
  }

  std::function<Tensors(const Tensors& inputs)> f;
  CheckpointOptions options;
  Found found;
  std::vector<Kept> inputs;
  std::vector<Result> results;
  std::vector<std::string_view> ops;
  std::vector<std::size_t> recorded;  // which of the outputs are those of the node
};

// What f itself made and keeps nowhere: no gradient of it goes anywhere.
bool held_here_alone(const Edge& edge) { return edge.slot.use_count() == 1; }

}  // namespace

bool recomputing() { return again; }

Tensors checkpoint(std::function<Tensors(const Tensors& inputs)> f, const Tensors& inputs,
                   const CheckpointOptions& options) {
  if (!context().grad_enabled) return f(inputs);
  Recipe recipe;
  recipe.f = std::move(f);
  recipe.options = options;
  for (const Tensor& input : inputs) recipe.inputs.emplace_back(input);
  const std::uint64_t since = next_node_order();
  Tensors outputs = recipe.f(inputs_of(recipe.inputs));
  std::vector<Edge> leading_out;
  Tensors made;
  {
    const Part part(outputs, since);
    leading_out = part.leading_out;
    recipe.ops = part.ops;
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    recipe.results.emplace_back(outputs[i]);
    if (!made_here(outputs[i], since)) continue;
    recipe.recorded.push_back(i);
    made.push_back(outputs[i] = outputs[i].detach());  // without its graph
  }
  if (made.empty()) return outputs;
  std::erase_if(leading_out, held_here_alone);

  const Tensor any = placed(made[0], leading_out.empty() ? Edge() : leading_out[0]);
  if (!any.requires_grad()) any.set_requires_grad();  // of what f made alone; it may meet others
  record("checkpoint", made, std::span(&any, 1), std::move(recipe));
  // A node of one input that is a leaf comes first in backward, and f may make collectives.
  while (leading_out.size() < 2) leading_out.emplace_back();
  made[0].body().node->inputs = std::move(leading_out);
  return outputs;
}

}  // namespace peal
