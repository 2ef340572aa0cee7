// SPDX-License-Identifier: Apache-2.0
// Cut parameters: what of a model is cut over the ranks of a group, layer by layer (tensor
// parallelism), for who wraps such a model as well, over other ranks: its state is the plain
// model's all the same, and its norm one. REQUIRES: those ranks make the same calls in the same
// order. Thread safety: as of the group.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/nn/local_state.h>
#include <peal/nn/module.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace peal::nn {

// A layer that each rank of a group has a part of. Names are those of its own parameters.
class CutLayer {
 public:
  virtual ~CutLayer() = default;
  // The ranks over which it is cut.
  virtual const comm::ProcessGroup& group() const = 0;
  // The shape of the whole; none for a parameter that is whole on every rank.
  virtual std::optional<Shape> whole_shape(std::string_view parameter) const = 0;
  // This rank's part of a whole one, in memory of its own. REQUIRES: it has that shape.
  virtual Tensor take_part(std::string_view parameter, const Tensor& whole) const = 0;
  // The whole parameter of all ranks' parts, on all. Collective; `label` is for errors.
  virtual Tensor bring_together(std::string_view parameter, const Tensor& part,
                                std::string_view label) const = 0;
};

// Those of a model, by their names.
class CutParameters {
 public:
  // Of a model as its layers are now. Error for layers that are cut over different groups.
  explicit CutParameters(const Module& model);

  // Whether there are any; of a group of one rank there are none.
  explicit operator bool() const { return bool(group_); }
  // Over which ranks; none where there are none.
  const comm::ProcessGroup& group() const { return group_; }
  // One of that name in the model, also by another name that it is tied to.
  bool has(std::string_view name) const { return places_.contains(name); }
  // Error where one of the group's other ranks is among these, who are to have the same parts.
  void check_apart(const comm::ProcessGroup& replicas) const;

  // The plain model's state of this rank's. Collective. On rank `to` alone what is cut goes to the
  // host's memory, and is undefined on others; on all where none is given.
  NamedTensors whole(NamedTensors state, std::optional<int> to = {}) const;
  // This rank's of the plain model's. Error, which begins with `who`, for another shape than its.
  NamedTensors parts(NamedTensors state, std::string_view who) const;
  // The same of an optimizer of the model's parameters; Error also for a state that is not of a
  // parameter's shape. `keeps`: whether it keeps a tensor of that name ("exp_avg").
  NamedTensors whole_of_optimizer(NamedTensors state, std::string_view who,
                                  std::optional<int> to = {}) const;
  NamedTensors parts_of_optimizer(NamedTensors state, std::string_view who,
                                  const std::function<bool(std::string_view)>& keeps) const;

 private:
  struct Place {
    Module module;  // keeps the layer
    const CutLayer* layer;
    std::string own;  // the parameter's name there
    Shape part, whole;
  };
  const Place* find(std::string_view name) const;
  // Of "fc.weight.exp_avg".
  const Place* find_of_state(std::string_view key) const;

  comm::ProcessGroup group_;
  std::map<std::string, Place, std::less<>> places_;
};

// Of what has no runs of elements, so that a sharded checkpoint of it is an Error.
LocalState no_local_state(std::string_view who, std::string_view what);

}  // namespace peal::nn
