// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/choose.h>
#include <peal/autograd/tape.h>
#include <peal/nn/parallel/mixed_precision.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace peal::nn {
namespace {

bool is_low(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// A tensor stands for another until this goes.
class Standing {
 public:
  Standing(const Tensor& tensor, const Tensor& other)
      : tensor_(tensor), own_(std::exchange(tensor.body(), TensorBody(other.body()))) {}
  ~Standing() { tensor_.body() = std::move(own_); }
  Standing(const Standing&) = delete;
  Standing& operator=(const Standing&) = delete;

 private:
  Tensor tensor_;
  TensorBody own_;
};

void set_slot(const Tensor& parameter, DType dtype) {
  TensorBody& body = parameter.body();
  if (!body.slot || body.slot->dtype() == dtype) return;
  PEAL_CHECK(!body.slot->has_final_hook(), "[ddp] a parameter of shape ", body.shape,
             " already belongs to a distributed wrapper; destroy that one first");
  const Tensor before = body.slot->grad();
  body.slot->clear();
  body.slot->keep_in(dtype, false);
  if (before.defined()) body.slot->accumulate(cast(before, dtype));
}

// The cast of a master, whose gradient comes back in the type that it is kept in.
Tensor rounded(const Tensor& master, const MixedPrecision& settings) {
  const DType dtype = *settings.param_dtype;
  Tensor low;
  {
    const NoGrad guard;
    low = cast(master, dtype);
  }
  return record(
      "mixed_precision", low, {master},
      [kept = settings.gradient_of(master.dtype())](const Tensor& g) { return cast(g, kept); });
}

}  // namespace

NamedTensors::const_iterator wide_in(const NamedTensors& parameters,
                                     const MixedPrecision& settings) {
  return std::find_if(parameters.begin(), parameters.end(), [&](const auto& parameter) {
    if (!parameter.second.requires_grad()) return false;  // it has no gradient to send
    const DType own = settings.gradient_of(parameter.second.dtype());
    return size_of(own) > size_of(settings.reduce_dtype.value_or(own));
  });
}

bool sends_by_hook(const NamedTensors& parameters, const MixedPrecision& settings) {
  const auto dtype = settings.travels_in();
  if (dtype && is_low(*dtype) && !settings.keep_low_precision_grads) return true;
  return wide_in(parameters, settings) != parameters.end();
}

void check(const MixedPrecision& settings) {
  const auto expect = [](std::string_view what, const std::optional<DType>& dtype, bool wide) {
    const bool fits = !dtype || is_low(*dtype) || (wide && *dtype == DType::f32);
    PEAL_CHECK(fits, "[ddp] mixed_precision: ", what, ": expected f16",
               wide ? ", bf16 or f32" : " or bf16", ", got ", *dtype);
  };
  expect("param_dtype", settings.param_dtype, false);
  expect("reduce_dtype", settings.reduce_dtype, true);
  expect("buffer_dtype", settings.buffer_dtype, true);
  expect("output_dtype", settings.output_dtype, true);
  PEAL_CHECK(!settings.keep_low_precision_grads || settings.param_dtype,
             "[ddp] mixed_precision: keep_low_precision_grads is of gradients that come in a "
             "param_dtype, which is not given");
}

void convert_buffers(const NamedTensors& buffers, DType dtype) {
  for (const auto& [name, buffer] : buffers) {
    if (!is_floating(buffer.dtype()) || buffer.dtype() == dtype) continue;
    const Tensor other = cast(buffer.detach(), dtype);
    TensorBody& body = buffer.body();
    body.storage = other.storage();
    body.at = other.body().at;
    body.dtype = dtype;
  }
}

void keep_gradients(const NamedTensors& parameters, const MixedPrecision& settings) {
  for (const auto& [name, parameter] : parameters) {
    const DType dtype = settings.gradient_of(parameter.dtype());
    if (dtype != parameter.dtype()) set_slot(parameter, dtype);
  }
}

void restore_gradients(const NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    const DType own = parameter.dtype();
    const auto& slot = parameter.body().slot;
    if (slot && !slot->has_final_hook()) set_slot(parameter, own);
  }
}

std::shared_ptr<void> round_parameters(const NamedTensors& parameters,
                                       const MixedPrecision& settings) {
  const auto standing = std::make_shared<std::vector<std::unique_ptr<Standing>>>();
  for (const auto& [name, parameter] : parameters) {
    if (parameter.dtype() == *settings.param_dtype || !is_floating(parameter.dtype())) continue;
    standing->push_back(std::make_unique<Standing>(parameter, rounded(parameter, settings)));
  }
  return standing;
}

Tensor rounded_input(const Tensor& x, const MixedPrecision& settings) {
  const bool wanted = settings.param_dtype && settings.cast_forward_inputs && x.defined();
  return wanted && is_floating(x.dtype()) ? cast(x, *settings.param_dtype) : x;
}

Tensor given_output(const Tensor& y, const MixedPrecision& settings) {
  const bool wanted = settings.output_dtype && y.defined() && is_floating(y.dtype());
  return wanted ? cast(y, *settings.output_dtype) : y;
}

}  // namespace peal::nn
