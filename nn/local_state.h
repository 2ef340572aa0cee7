// SPDX-License-Identifier: Apache-2.0
// Local state: what one rank has of a state that several have together, and what it wants of a
// saved one (PyTorch: the local shards of a sharded state_dict, and the plans of
// torch.distributed.checkpoint). Sharded checkpoints are made of it
// (parallel/sharded/sharded_checkpoint.h): each rank saves and reads its own part, and nobody has
// the whole. Ranges are of elements of the flattened tensor, as flat parameters are cut anywhere.
//
// Whatever is Stateful has one: all of its state, which is then the same on all ranks. Objects
// whose ranks have other parts give theirs by a function local_state(). Thread safety: as of the
// object.
#pragma once

#include <peal/autograd/core/safetensors_file.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::nn {

struct LocalTensor {
  std::string key;
  Shape shape;      // of the whole
  Tensor elements;  // those that lie here, in order
  // The first of them, of the flattened whole; none: this is the whole, and the same on all ranks.
  std::optional<std::int64_t> begin = {};
  bool saved_elsewhere = false;  // another rank has the same elements, and saves them
  // Of a whole that each rank trains by itself: saving it is an Error where it is not the same.
  bool trained_apart = false;
};

struct ElementRange {
  std::int64_t begin = 0, count = 0;
  bool operator==(const ElementRange&) const = default;
};

// What this rank wants of each saved tensor; nothing of those that others keep.
using WantedRanges = std::vector<std::optional<ElementRange>>;

struct LocalState {
  // What lies here, in memory of the object's.
  std::function<std::vector<LocalTensor>()> save;
  // Error where the object cannot take these.
  std::function<WantedRanges(const std::vector<SavedTensor>& saved)> want;
  // Takes what was wanted: in the saved shape where that is all of it, else flat. Also what save()
  // gave. Empty where the object is const. Error, and nothing has changed, for what want() has not
  // found; `checked`: there is no such thing.
  std::function<void(const NamedTensors& pieces)> load;
  bool checked = false;
  // load() writes into no memory that save() gave: to go back, that needs no copy.
  bool replaces = false;
};

// All of a state, as the same on all ranks.
LocalState whole_state(std::function<NamedTensors()> save,
                       std::function<void(const NamedTensors&)> load);
// The same of a model's tensors, which `load` takes where check_fits() finds nothing. What it is
// given is its own: parameters that have no memory yet (nn/empty_weights.h) take theirs.
LocalState whole_model_state(std::string who, std::function<NamedTensors()> save,
                             std::function<void(const NamedTensors&)> load);

// What to load into a model's own tensors, of which those without memory have now taken that of the
// given ones, so that the model is there once. REQUIRES: these fit, and nobody else reads them.
NamedTensors taken_over(const NamedTensors& own, const NamedTensors& given);

// Error where one is this rank's piece (Storage::is_piece): the other ranks' would be lost.
void check_no_pieces(std::string_view who, const NamedTensors& state);

WantedRanges all_of(const std::vector<SavedTensor>& saved);
// Error that lists what is missing, too many, or of another shape or kind of type, as of
// Module::load_state_dict(). `own` may have no bytes.
void check_fits(std::string_view who, const NamedTensors& own,
                const std::vector<SavedTensor>& saved);

}  // namespace peal::nn
