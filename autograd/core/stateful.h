// SPDX-License-Identifier: Apache-2.0
// Checkpointable state: what an object has to remember so that a run can stop and go on, as named
// tensors (PyTorch: state_dict and load_state_dict of modules, optimizers, schedulers, loaders).
// Whatever has the two functions is Stateful, and nn/checkpoint.h saves and loads it.
//
// Thread safety: as of the object.
#pragma once

#include <peal/autograd/core/safetensors.h>

#include <concepts>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace peal {

// load_state_dict takes what state_dict gave, of an object that was made alike; where the state
// does not fit, it is an Error that lists the differences, and nothing has changed.
template <class T>
concept Stateful = requires(const T& saved, T& loaded, const NamedTensors& state) {
  { saved.state_dict() } -> std::same_as<NamedTensors>;
  loaded.load_state_dict(state);
};

// For load_state_dict: takes the tensors of a state one by one, and at the end says all that was
// wrong. Reads everything first, and changes the object after finish().
//
//   StateReader reader("LRScheduler", state);
//   const auto steps = reader.number<std::int64_t>("steps");
//   reader.finish();
class StateReader {
 public:
  // `who` begins the error's message.
  StateReader(std::string_view who, const NamedTensors& state);

  bool has(const std::string& key) const { return given_.contains(key); }
  // The tensor of that key; undefined, and an entry in the error, where it is missing or otherwise.
  Tensor tensor(const std::string& key, const Shape& shape, DType dtype);
  // The only element; T() where it is missing or otherwise.
  template <class T>
  T number(const std::string& key) {
    const Tensor found = tensor(key, {}, dtype_of<T>);
    return found.defined() ? found.item<T>() : T();
  }
  // Another thing that does not fit.
  void fault(std::string what) { faults_.push_back(std::move(what)); }
  // Error that lists the faults and the keys that nobody asked for; `hint` goes to its first line.
  void finish(std::string_view hint = {});

 private:
  std::string who_;
  std::map<std::string, Tensor> given_;  // and not yet taken
  std::vector<std::string> faults_;
};

// The calling thread's random numbers (context.h), for a checkpoint: "seed" and "offset". Of ranks
// that draw equally often one may save: each keeps its seed then, and so a stream of its own.
struct RandomState {
  bool keep_seed = false;
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state) const;
};

}  // namespace peal
