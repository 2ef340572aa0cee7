// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/named_places.h>
#include <peal/nn/parallel/cut_parameters.h>

#include <unordered_map>
#include <utility>

namespace peal::nn {
namespace {

// One rank's alone goes to the host, so that a device has no two of them at a time.
Tensor left_on(const Tensor& whole, std::optional<int> to, const comm::ProcessGroup& group) {
  if (!to) return whole;
  return *to == group.rank() ? whole.to(Device{}) : Tensor();
}

std::string_view named_path(std::string_view path) { return path.empty() ? "the model" : path; }

}  // namespace

CutParameters::CutParameters(const Module& model) {
  NamedPlaces all = named_places(model);
  all.emplace_back("", model);
  std::string first;
  for (const auto& [path, each] : all) {
    Module module = each;
    const auto* const layer = module.as<CutLayer>();
    if (layer == nullptr || layer->group().world() == 1) continue;
    if (!group_) {
      group_ = layer->group();
      first = path;
    }
    PEAL_CHECK(layer->group().world() == group_.world() && layer->group().rank() == group_.rank(),
               named_path(path), " is cut over another group than ", named_path(first));
    for (const auto& [own, part] : module.named_parameters()) {
      const auto whole = layer->whole_shape(own);
      if (!whole) continue;
      std::string name = path.empty() ? own : concat(path, ".", own);
      places_.emplace(std::move(name), Place{module, layer, own, part.shape(), *whole});
    }
  }
}

void CutParameters::check_apart(const comm::ProcessGroup& replicas) const {
  if (!group_ || replicas.world() == 1) return;
  // None has a name where a layer computes what it has cut from others (weight_norm).
  const std::string_view what =
      places_.empty() ? "a layer of the model" : std::string_view(places_.begin()->first);
  for (int r = 0; r < group_.world(); ++r) {
    if (r == group_.rank()) continue;
    for (int other = 0; other < replicas.world(); ++other) {
      PEAL_CHECK(group_.global_rank(r) != replicas.global_rank(other), what, " is cut over ",
                 group_.world(), " ranks, of which rank ", group_.global_rank(r),
                 " is in this group as well, and would lose its part; take the group of the other "
                 "dimension of a DeviceMesh");
    }
  }
}

const CutParameters::Place* CutParameters::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &found->second;
}

const CutParameters::Place* CutParameters::find_of_state(std::string_view key) const {
  const std::size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? nullptr : find(key.substr(0, dot));
}

NamedTensors CutParameters::whole(NamedTensors state, std::optional<int> to) const {
  const NoGrad guard;
  std::unordered_map<const void*, Tensor> wholes;  // a tied one once
  for (auto& [name, tensor] : state) {
    const Place* const place = find(name);
    if (place == nullptr) continue;
    const auto [found, is_new] = wholes.try_emplace(tensor.raw());
    if (is_new) {
      found->second = left_on(place->layer->bring_together(place->own, tensor, name), to, group_);
    }
    tensor = found->second;
  }
  return state;
}

NamedTensors CutParameters::parts(NamedTensors state, std::string_view who) const {
  for (auto& [name, tensor] : state) {
    const Place* const place = find(name);
    if (place == nullptr) continue;
    PEAL_CHECK(tensor.shape() == place->whole, who, "load_state_dict: ", name, ": expected ",
               place->whole, ", got ", tensor.shape(), "; a state is the plain model's");
    tensor = place->layer->take_part(place->own, tensor);
  }
  return state;
}

NamedTensors CutParameters::whole_of_optimizer(NamedTensors state, std::string_view who,
                                               std::optional<int> to) const {
  const NoGrad guard;
  for (auto& [key, tensor] : state) {
    const Place* const place = find_of_state(key);
    if (place == nullptr || tensor.dim() == 0) continue;  // a number is the same everywhere
    PEAL_CHECK(tensor.shape() == place->part, who, "optimizer_state_dict: ", key, ": of a part ",
               place->part, " expected a state of that shape, got ", tensor.shape());
    tensor = left_on(place->layer->bring_together(place->own, tensor, key), to, group_);
  }
  return state;
}

NamedTensors CutParameters::parts_of_optimizer(
    NamedTensors state, std::string_view who,
    const std::function<bool(std::string_view)>& keeps) const {
  for (auto& [key, tensor] : state) {
    const Place* const place = find_of_state(key);
    if (place == nullptr || !keeps(std::string_view(key).substr(key.rfind('.') + 1))) continue;
    PEAL_CHECK(tensor.shape() == place->whole, who, "load_optimizer_state_dict: ", key,
               ": expected ", place->whole, ", got ", tensor.shape());
    tensor = place->layer->take_part(place->own, tensor);
  }
  return state;
}

LocalState no_local_state(std::string_view who, std::string_view what) {
  const auto refuse = [text = concat(who, "a sharded checkpoint of ", what,
                                     " of a tensor-parallel model: its layers are cut by columns "
                                     "as well, which are no runs of elements; save it in a "
                                     "checkpoint of one file (nn/checkpoint.h)")] { fail(text); };
  return {[refuse]() -> std::vector<LocalTensor> {
            refuse();
            return {};
          },
          [refuse](const std::vector<SavedTensor>&) -> WantedRanges {
            refuse();
            return {};
          },
          [refuse](const NamedTensors&) { refuse(); }};
}

}  // namespace peal::nn
