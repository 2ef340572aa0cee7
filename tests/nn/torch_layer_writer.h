// SPDX-License-Identifier: Apache-2.0
// Layers beside the expressions that make the same in PyTorch: torch_layers.h's tables are written
// with it. Thread safety: one thread.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace peal::test {

class LayerWriter {
 public:
  // `make` makes the layer that `torch` makes; `run` makes of it and x what `call` makes of m and
  // x.
  template <class Make, class Run>
  void operator()(const std::string& torch, const Make& make, const Tensors& inputs,
                  const std::string& call, const Run& run) {
    expressions_[std::to_string(count_)] = torch + "; " + call;
    for (const DType dtype : {DType::f64, DType::f32}) {
      manual_seed(count_ + 1);
      auto layer = make();
      layer.to(dtype);
      write(concat(count_, ".", dtype, "."), layer, inputs, dtype, run);
    }
    ++count_;
  }
  template <class Make>
  void operator()(const std::string& torch, const Make& make, const Tensor& x) {
    (*this)(torch, make, {x}, "m(x[0])",
            [](auto& layer, const Tensors& t) { return Tensors{layer(t[0])}; });
  }

  void save(const std::filesystem::path& path) const {
    save_safetensors(path, tensors_, expressions_);
  }

 private:
  template <class Layer, class Run>
  void write(const std::string& prefix, Layer& layer, const Tensors& inputs, DType dtype,
             const Run& run) {
    const auto add = [&](const std::string& name, const Tensor& tensor) {
      tensors_.emplace_back(prefix + name, tensor.detach().clone());
    };
    Tensors x;
    for (const Tensor& input : inputs) {
      const bool floating = is_floating(input.dtype());
      x.push_back(floating ? cast(input, dtype).detach().clone() : input);
      if (floating) x.back().set_requires_grad();
      add(concat("x.", x.size() - 1), x.back());
    }
    for (const auto& [name, tensor] : layer.state_dict()) add("before." + name, tensor);
    const Tensors y = run(layer, x);
    Tensor loss;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const Tensor seed = cast(randn(y[i].shape()), dtype);
      add(concat("y.", i), y[i]);
      add(concat("seed.", i), seed);
      loss = loss.defined() ? loss + sum(y[i] * seed) : sum(y[i] * seed);
    }
    loss.backward();
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x[i].requires_grad()) add(concat("dx.", i), x[i].grad());
    }
    for (const auto& [name, parameter] : layer.named_parameters()) {
      add("grad." + name, parameter.grad());
    }
    run(layer, x);  // statistics of two batches
    for (const auto& [name, tensor] : layer.state_dict()) add("after." + name, tensor);
    layer.eval();
    const NoGrad guard;
    const Tensors last = run(layer, x);
    for (std::size_t i = 0; i < last.size(); ++i) add(concat("eval.", i), last[i]);
  }

  std::uint64_t count_ = 0;
  NamedTensors tensors_;
  Metadata expressions_;
};

// One table a file.
void write_small_layers(LayerWriter& write);
void write_activations(LayerWriter& write);
void write_recurrent_layers(LayerWriter& write);
void write_transformers(LayerWriter& write);
void write_window_layers(LayerWriter& write);

}  // namespace peal::test
