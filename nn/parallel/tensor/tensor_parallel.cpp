// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/deferred.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/failure_words.h>
#include <peal/autograd/grad_slot.h>
#include <peal/comm/group/agree.h>
#include <peal/nn/named_places.h>
#include <peal/nn/parallel/any_rank.h>
#include <peal/nn/parallel/fail_everywhere.h>
#include <peal/nn/parallel/make_equal.h>
#include <peal/nn/parallel/planning.h>
#include <peal/nn/parallel/tensor/sequence_hooks.h>
#include <peal/nn/parallel/tensor/tensor_parallel.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <typeinfo>
#include <unordered_map>

namespace peal::nn {
namespace {

constexpr std::string_view tp = "[tp] ";

struct ModulePlace {
  std::string path;
  Module module;
  const ParallelStyle* style = nullptr;  // null: stays
};

// Name by name; `*` is any one.
bool matches(std::string_view pattern, std::string_view path) {
  while (true) {
    const std::string_view a = pattern.substr(0, pattern.find('.')),
                           b = path.substr(0, path.find('.'));
    if (a != "*" && a != b) return false;
    if (a.size() == pattern.size() || b.size() == path.size()) {
      return a.size() == pattern.size() && b.size() == path.size();
    }
    pattern.remove_prefix(a.size() + 1);
    path.remove_prefix(b.size() + 1);
  }
}

// Of peal's own class, not one derived from it, whose forward would be lost.
template <class M>
M* exactly(Module& module) {
  M* const found = module.as<M>();
  return found != nullptr && typeid(*found) == typeid(M) ? found : nullptr;
}

std::string_view module_above(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}

// The modules that there are where the first name of `pattern` is that is none of theirs.
std::string names_beside(std::string_view pattern, const std::vector<ModulePlace>& places) {
  while (true) {
    const std::string_view above = module_above(pattern);
    std::set<std::string_view> names;
    for (const ModulePlace& place : places) {
      const std::string_view path = place.path, parent = module_above(path);
      if (above.empty() != parent.empty() || !matches(above, parent)) continue;
      names.insert(path.substr(parent.empty() ? 0 : parent.size() + 1));
    }
    if (!names.empty() || above.empty()) {
      std::string all = above.empty() ? "the model has:" : concat(above, " has:");
      for (const std::string_view name : names) all += concat(" ", name);
      return all;
    }
    pattern = above;
  }
}

bool replaced(ModulePlace& place) {
  if (place.style == nullptr || std::holds_alternative<PrepareModuleOutput>(*place.style)) {
    return false;
  }
  return !std::holds_alternative<SequenceParallel>(*place.style) ||
         exactly<Dropout>(place.module) != nullptr;
}

// What the plan makes of the tree, without a change to it: how each tensor that is cut is.
class Surgery {
 public:
  Surgery(const Module& module, int world, const TensorParallelPlan& plan) : world_(world) {
    for (auto& [path, child] : named_places(module)) places_.push_back({path, child});
    for (const auto& [pattern, style] : plan) give(pattern, style);
    for (const ModulePlace& place : places_) check_below(place);
    for (ModulePlace& place : places_) check(place);
    for (ModulePlace& place : places_) check_ties(place);
    for (auto& [name, own] : module.named_parameters()) {
      if (name.find('.') == std::string::npos) check_whole(name, own);
    }
  }

  std::string text() const {
    std::string all;
    for (const ModulePlace& place : places_) {
      if (place.style == nullptr) continue;
      all += concat(place.path, " style ", place.style->index());
      if (const auto* column = std::get_if<ColwiseParallel>(place.style)) {
        all += concat(" gather_output ", column->gather_output, " sequence ",
                      column->sequence_parallel, " parts ", column->parts, " heads ", column->heads,
                      " sequence_dim ", column->sequence_dim);
      } else if (const auto* row = std::get_if<RowwiseParallel>(place.style)) {
        all += concat(" input_is_parallel ", row->input_is_parallel, " sequence ",
                      row->sequence_parallel, " sequence_dim ", row->sequence_dim);
      } else if (const auto* output = std::get_if<PrepareModuleOutput>(place.style)) {
        all += concat(" shard_dim ", output->shard_dim);
      } else if (const auto* sequence = std::get_if<SequenceParallel>(place.style)) {
        all += concat(" sequence_dim ", sequence->sequence_dim);
      }
      all += "\n";
    }
    return all;
  }

  // `by_layer`: values of what is cut are made, and become rank 0's, a layer at a time.
  void operate(Module& module, const comm::ProcessGroup& group, bool by_layer);
  bool cuts(const Tensor& tensor) const { return cuts_.contains(&tensor.body()); }

 private:
  struct Cutting {
    Cut cut;
    std::string path;
    Tensor part{};  // once it is made
  };

  void give(const std::string& pattern, const ParallelStyle& style) {
    PEAL_CHECK(!pattern.empty(), "a plan names modules below the model, got an empty path");
    bool any = false;
    for (ModulePlace& place : places_) {
      if (!matches(pattern, place.path)) continue;
      PEAL_CHECK(place.style == nullptr, place.path, " is named by two entries of the plan, '",
                 pattern, "' is one");
      place.style = &style;
      any = true;
    }
    PEAL_CHECK(any, "the plan's '", pattern, "' is no module of the model; ",
               names_beside(pattern, places_));
  }

  // Gradients of cut parameters are this rank's, and others' below would add up twice.
  void check_below(const ModulePlace& outer) const {
    if (outer.style == nullptr || !std::holds_alternative<SequenceParallel>(*outer.style)) return;
    for (const ModulePlace& inner : places_) {
      if (!inner.path.starts_with(outer.path + ".")) continue;
      Module below = inner.module;
      PEAL_CHECK(inner.style == nullptr && below.as<TensorParallelLayer>() == nullptr, inner.path,
                 below.as<TensorParallelLayer>() ? ", which is cut, is within "
                                                 : ", which the plan names, is within ",
                 outer.path, ", which is SequenceParallel; name the modules below it one by one");
    }
    Module own = outer.module;
    PEAL_CHECK(own.as<TensorParallelLayer>() == nullptr, outer.path,
               " is cut already, and is not SequenceParallel as well");
  }

  void check(ModulePlace& place) {
    if (!replaced(place)) return;
    Module& module = place.module;
    PEAL_CHECK(!module.has_hooks(), place.path,
               " has hooks, which the layer in its place would not have; register them afterwards");
    const auto* const column = std::get_if<ColwiseParallel>(place.style);
    if (Linear* const linear = exactly<Linear>(module)) {
      if (column != nullptr) {
        cut(linear->weight, ColumnParallelLinear::cut(*linear, world_, *column, place.path),
            place.path, "weight");
        if (linear->bias.defined()) {
          cut(linear->bias, {linear->bias.shape(), 0, column->parts}, place.path, "bias");
        }
      } else {
        cut(linear->weight, RowParallelLinear::cut(*linear, world_, place.path), place.path,
            "weight");
      }
    } else if (Embedding* const table = exactly<Embedding>(module); table && column == nullptr) {
      cut(table->weight, VocabParallelEmbedding::cut(*table, world_, place.path), place.path,
          "weight");
    } else {
      PEAL_CHECK(std::holds_alternative<SequenceParallel>(*place.style), place.path, " is a ",
                 module.class_name(), ", which ",
                 column != nullptr ? "ColwiseParallel does not cut; it cuts Linear"
                                   : "RowwiseParallel does not cut; it cuts Linear and Embedding");
    }
  }

  void cut(const Tensor& tensor, const Cut& how, const std::string& path, const char* which) {
    const std::string name = path + "." + which;
    if (tensor.requires_grad()) {
      PEAL_CHECK(!tensor.grad_slot().has_final_hook(), name,
                 " already belongs to a distributed wrapper; cut the model before it is wrapped");
      PEAL_CHECK(!tensor.grad().defined(), name,
                 " has a gradient; call zero_grad() before the model is cut");
    }
    const auto [found, is_new] = cuts_.try_emplace(&tensor.body(), Cutting{how, name});
    const Cutting& before = found->second;
    PEAL_CHECK(is_new || (before.cut == how && how.dim == 0 && which == std::string_view("weight")),
               name, " is ", before.path, ", too, and is cut otherwise there");
  }

  void check_ties(ModulePlace& place) {
    if (replaced(place)) return;
    for (auto& [name, own] : place.module.named_parameters()) {
      if (name.find('.') == std::string::npos) check_whole(place.path + "." + name, own);
    }
  }

  void check_whole(const std::string& name, const Tensor& tensor) const {
    const auto found = cuts_.find(&tensor.body());
    PEAL_CHECK(found == cuts_.end(), name, " is ", found->second.path,
               ", too, which the plan cuts: name all modules that have it");
  }

  Module made(ModulePlace& place, const comm::ProcessGroup& group);
  Module made_of_equal(ModulePlace& place, const comm::ProcessGroup& group);
  Module made_or_told(ModulePlace& place, const comm::ProcessGroup& group, bool by_layer);
  NamedTensors whole_of(const ModulePlace& place) const;

  int world_;
  std::vector<ModulePlace> places_;
  std::unordered_map<const TensorBody*, Cutting> cuts_;
};

template <class Layer, class Whole, class Style>
Module cut_layer(const Whole& whole, const comm::ProcessGroup& group, const Style& style,
                 const std::string& path, Tensor& part) {
  const Layer layer(whole, group, style, path, part);
  part = layer.weight;
  Module module = layer;
  module.train(whole.training());
  return module;
}

Module Surgery::made(ModulePlace& place, const comm::ProcessGroup& group) {
  if (Dropout* const dropout = exactly<Dropout>(place.module)) {
    const int dim = std::get<SequenceParallel>(*place.style).sequence_dim;
    Module module = ParallelDropout(dropout->p(), group, dim);
    module.train(dropout->training());
    return module;
  }
  const auto part = [&](const Tensor& weight) -> Tensor& { return cuts_.at(&weight.body()).part; };
  if (Embedding* const table = exactly<Embedding>(place.module)) {
    return cut_layer<VocabParallelEmbedding>(*table, group, std::get<RowwiseParallel>(*place.style),
                                             place.path, part(table->weight));
  }
  const Linear& linear = *exactly<Linear>(place.module);
  if (const auto* column = std::get_if<ColwiseParallel>(place.style)) {
    return cut_layer<ColumnParallelLinear>(linear, group, *column, place.path, part(linear.weight));
  }
  return cut_layer<RowParallelLinear>(linear, group, std::get<RowwiseParallel>(*place.style),
                                      place.path, part(linear.weight));
}

// What the layer has of what is cut, and no layer before it had.
NamedTensors Surgery::whole_of(const ModulePlace& place) const {
  NamedTensors list;
  for (const auto& [name, parameter] : place.module.named_parameters()) {
    const auto found = cuts_.find(&parameter.body());
    if (found == cuts_.end() || found->second.part.defined()) continue;
    list.emplace_back(place.path + "." + name, parameter);
  }
  return list;
}

// Where values are made a layer at a time. The whole of what was empty goes with its layer, and not
// only when the model is let go: each rank has its part, and nobody can have read the rest.
Module Surgery::made_of_equal(ModulePlace& place, const comm::ProcessGroup& group) {
  const NamedTensors whole = whole_of(place);
  std::vector<Tensor> was_empty;
  for (const auto& [name, tensor] : whole) {
    if (is_deferred(tensor)) was_empty.push_back(tensor);
  }
  make_equal(group, whole);
  Module now = made(place, group);
  for (const Tensor& tensor : was_empty) {
    if (tensor.storage()->owned()) tensor.storage()->drop();
  }
  return now;
}

Module Surgery::made_or_told(ModulePlace& place, const comm::ProcessGroup& group, bool by_layer) {
  try {
    return by_layer ? made_of_equal(place, group) : made(place, group);
  } catch (const std::exception& error) {
    fail_instead(concat(place.path, " cannot be cut: ", error.what()));
  }
}

void Surgery::operate(Module& module, const comm::ProcessGroup& group, bool by_layer) {
  std::vector<std::pair<Module, Module>> done;  // a module of several places is one in all of them
  for (ModulePlace& place : places_) {
    if (place.style == nullptr) continue;
    const auto same = std::find_if(done.begin(), done.end(), [&](const auto& pair) {
      return pair.first.same_as(place.module);
    });
    const bool again = same != done.end();
    if (replaced(place)) {
      Module now = again ? same->second : made_or_told(place, group, by_layer);
      if (!again) done.emplace_back(place.module, now);
      module.replace_child(place.path, std::move(now));
      continue;
    }
    if (again) continue;
    if (const auto* output = std::get_if<PrepareModuleOutput>(place.style)) {
      cut_output(place.module, group, output->shard_dim, place.path);
    } else {
      add_up_gradients(place.module, group, place.path);
    }
    done.emplace_back(place.module, place.module);
  }
}

std::string outline(const NamedTensors& tensors) {
  std::string all;
  for (const auto& [name, tensor] : tensors) {
    all += concat(name, " ", tensor.dtype(), " ", tensor.shape(),
                  tensor.requires_grad() ? "\n" : " frozen\n");
  }
  return all;
}

std::string outline(const Module& module) {
  return outline(module.named_parameters()) + outline(module.named_buffers());
}

void check_group(const Module& module, const comm::ProcessGroup& group) {
  for (auto& [path, each] : module.named_modules()) {
    const auto* const layer = each.as<TensorParallelLayer>();
    PEAL_CHECK(layer == nullptr || (layer->group().world() == group.world() &&
                                    layer->group().rank() == group.rank()),
               path, " is cut over another group");
  }
}

// What is cut, by an earlier call, is each rank's own; `later` is made equal elsewhere.
void make_whole_equal(
    const Module& module, const comm::ProcessGroup& group,
    const std::function<bool(const Tensor&)>& later = [](const Tensor&) { return false; }) {
  NamedTensors whole = module.named_buffers();
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (!cut_of(module, name) && !later(parameter)) whole.emplace_back(name, parameter);
  }
  make_equal(group, whole);
}

// The model is being changed, and other ranks wait for this one.
void or_all_fail(const comm::ProcessGroup& group, const std::function<void()>& f) {
  try {
    f();
  } catch (...) {
    rethrow_everywhere(group, "the model could not be cut", "tp");
  }
}

// On any rank, of parameters that are to be cut: then no rank has them whole all at once.
bool any_is_empty(const Module& module, const comm::ProcessGroup& group) {
  const std::vector<Tensor> all = module.parameters();
  const bool mine = std::any_of(all.begin(), all.end(), is_deferred);
  return any_rank(group, {mine}, "whether a model that is to be cut is empty")[0];
}

}  // namespace

TensorParallel::TensorParallel(Module module, comm::ProcessGroup group)
    : Module(std::move(module)), group_(std::move(group)) {
  PEAL_CHECK(bool(group_), tp, "expected a process group, got none");
  stay();
  const std::string wrong = why_not([&] { check_group(*this, group_); });
  comm::agree_unless(group_, "[tp] the model", outline(*this), wrong,
                     "build the same model with the same plan on every rank");
  or_all_fail(group_, [&] { make_whole_equal(*this, group_); });
}

TensorParallel parallelize_module(Module module, const comm::ProcessGroup& group,
                                  const TensorParallelPlan& plan) {
  PEAL_CHECK(bool(group), tp, "expected a process group, got none");
  std::optional<Surgery> surgery;
  const std::string wrong = why_not([&] {
    check_group(module, group);
    surgery.emplace(module, group.world(), plan);
  });
  comm::agree_unless(group, "[tp] the model",
                     (surgery ? surgery->text() : std::string()) + outline(module), wrong,
                     "build the same model with the same plan on every rank");
  or_all_fail(group, [&] {
    const bool by_layer = any_is_empty(module, group);
    make_whole_equal(module, group,
                     [&](const Tensor& each) { return by_layer && surgery->cuts(each); });
    surgery->operate(module, group, by_layer);
  });
  return TensorParallel(std::move(module), group);
}

}  // namespace peal::nn
