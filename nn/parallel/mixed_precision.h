// SPDX-License-Identifier: Apache-2.0
// Mixed precision of a wrapped model (PyTorch: DistributedDataParallel's mixed_precision;
// Micikevicius et al., "Mixed precision training", ICLR 2018): a model in f32 that computes, sends
// gradients and keeps buffers in fewer bits.
//
//   nn::DistributedDataParallel ddp(net, group, {.mixed_precision = {.param_dtype = DType::bf16}});
//
// The parameters stay what they are: masters, which the optimizer steps and state_dict has. While
// the model is called through the wrapper (ddp(x), ddp.call(f, x)), they are themselves rounded, by
// a cast that is recorded, so that gradients come back to the masters. For layers in which one
// chooses by operation there is Autocast (autograd/autocast.h). Thread safety: as of Module.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/tensor.h>

#include <memory>
#include <optional>

namespace peal::nn {

struct MixedPrecision {
  // What parameters and inputs are while the model computes: f16 or bf16.
  std::optional<DType> param_dtype{};
  // What gradients travel in: f16, bf16 or f32; param_dtype where it is not given. Sums are f32.
  std::optional<DType> reduce_dtype{};
  // What floating buffers become when the model is wrapped, and stay.
  std::optional<DType> buffer_dtype{};
  // What the wrapped model gives becomes: f16, bf16 or f32; what it is where it is not given.
  std::optional<DType> output_dtype{};
  bool cast_forward_inputs = true;
  // Gradients stay in reduce_dtype, and take that much memory; else they are in the masters' type.
  bool keep_low_precision_grads = false;

  // Whether any of the four types is given, and the type in which gradients travel; none: their
  // own.
  bool any() const { return param_dtype || reduce_dtype || buffer_dtype || output_dtype; }
  std::optional<DType> travels_in() const { return reduce_dtype ? reduce_dtype : param_dtype; }
  // What gradients of masters of that type are kept in.
  DType gradient_of(DType master) const {
    return keep_low_precision_grads ? travels_in().value_or(master) : master;
  }
};

// A parameter with a gradient of more bytes than what it is to travel in, or the end.
NamedTensors::const_iterator wide_in(const NamedTensors& parameters,
                                     const MixedPrecision& settings);
// Whether a hook is to convert what travels.
bool sends_by_hook(const NamedTensors& parameters, const MixedPrecision& settings);
// Error for what makes no sense.
void check(const MixedPrecision& settings);

// Floating buffers become of that type, in place.
void convert_buffers(const NamedTensors& buffers, DType dtype);

// The parameters' gradients are kept in other types from now on. What there is of one that was kept
// in another is converted, and hooks on it are gone. REQUIRES: no graph of that is alive. Error
// where it is another wrapper's.
void keep_gradients(const NamedTensors& parameters, const MixedPrecision& settings);
// In their own again, but for those that are another wrapper's by now.
void restore_gradients(const NamedTensors& parameters);

// Until what is returned goes, the parameters are rounded ones.
std::shared_ptr<void> round_parameters(const NamedTensors& parameters,
                                       const MixedPrecision& settings);
// An input of the model, of any shape: a floating one in its type.
Tensor rounded_input(const Tensor& x, const MixedPrecision& settings);
// What the model gives, of any shape: a floating one in output_dtype.
Tensor given_output(const Tensor& y, const MixedPrecision& settings);

}  // namespace peal::nn
