// SPDX-License-Identifier: Apache-2.0
// All parameters as one vector and back (torch.nn.utils), and a model made like another. Thread
// safety: as of the tensors.
#pragma once

#include <peal/nn/module.h>

#include <vector>

namespace peal::nn {

// [count] of all elements in order, recorded. Error for none.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters);
// Writes the elements of `vector` [count] into the parameters, in order, without recording it.
// Error for another count.
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

// Takes over from a model that was made alike: parameters and buffers with their types and devices,
// what is frozen, the modes of all modules. Error as of load_state_dict.
void copy_state(Module to, const Module& from);

// A model of its own with the same values (copy.deepcopy): handles share, so it is made anew.
//   Net average = nn::deepcopy(net, [] { return Net(); });
template <class Make>
auto deepcopy(const Module& model, Make&& make) {
  auto copy = make();
  copy_state(copy, model);
  return copy;
}

}  // namespace peal::nn
