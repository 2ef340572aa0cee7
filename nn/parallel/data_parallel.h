// SPDX-License-Identifier: Apache-2.0
// DataParallel: one process runs a model on several devices, or threads of the CPU, each on its
// part of a batch (PyTorch: torch.nn.DataParallel). There are no ranks and nothing to launch;
// several processes under DistributedDataParallel are faster, and what scales.
//
//   nn::BasicNet net;
//   nn::DataParallel parallel(net, std::vector<Device>(4), [] { return nn::BasicNet(); });
//   nll_loss(parallel(x), y).backward();   // gradients are net's
//
// A batch of B is cut along dim 0 into chunks of ceil(B / devices), of which the last may be
// smaller and some devices have none: 10 over 4 is 3, 3, 3, 1, and 5 is 2, 2, 1. Outputs come
// together on the first device: along dim 0, or scalars as a vector with one element a chunk.
// Gradients are those of what is computed from these outputs, so the chunks' contributions are
// *summed*; a loss over the outputs has the gradient that it has without this. (Where each chunk
// has a loss of its own, a mean of the vector weighs chunks alike, whatever their size, as DDP
// weighs ranks.)
//
// Replicas on the first device's kind of memory, the CPU, look at the module's own parameters;
// others get copies at a forward before which the module's were written, and buffers are copied to
// all. What replicas write into their buffers is lost, but for the first's, which is the module
// itself. Random numbers differ by
// replica, and depend on the caller's generator alone.
//
// It is a handle to the same module: names and keys gain no prefix. Thread safety: as of Module;
// the modules' forwards run at the same time, so they must not share what they write.
#pragma once

#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/each_tensor.h>
#include <peal/nn/module.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace peal::nn {

struct Replicas;

class DataParallel : public Module {
 public:
  // `another` makes a module like this one, of its own tensors, for each device but the first, on
  // which the module lies. Errors: no device, one that a parameter does not lie on, modules that
  // differ in names, shapes or types.
  DataParallel(Module module, std::vector<Device> devices, const std::function<Module()>& another);

  // x [B, ...]. An Error of a replica says which it was.
  Tensor forward(const Tensor& x) override;
  // A method of the module's class by name, dp.call(&Net::encode, x, mask, 0.5): every tensor among
  // the arguments is cut along dim 0, all alike, each tensor of the result put together. Other
  // arguments are the same for all, and what else is in the result is the first replica's. Hooks
  // of the module's run once, around all.
  template <class F, class... Args>
  auto call(F&& f, const Args&... args) {
    static_assert(std::is_member_function_pointer_v<std::remove_cvref_t<F>>,
                  "DataParallel::call takes a method of the module's class: another function is of "
                  "one module, and there are several");
    return Module::call([&](const Args&... given) { return on_all(f, given...); }, args...);
  }
  // How many there are, the module among them.
  std::size_t replicas() const;

 private:
  // Of a replica, by its number: what it gives for its part of the inputs.
  using OnReplica =
      std::function<Tensors(Module& replica, std::size_t number, const Tensors& inputs)>;
  // Inputs [B, ...] each.
  Tensors spread(const Tensors& given, const OnReplica& run);

  template <class R, class M, class... P, class... Args>
  static R on_one(Module& module, R (M::*f)(P...), const Args&... args) {
    M* const object = module.as<M>();
    PEAL_CHECK(object != nullptr, "[data parallel] call: the module is a ", module.class_name(),
               ", and the method of another class");
    return std::invoke(f, *object, args...);
  }
  template <class R, class M, class... P, class... Args>
  static R on_one(Module& module, R (M::*f)(P...) const, const Args&... args) {
    M* const object = module.as<M>();
    PEAL_CHECK(object != nullptr, "[data parallel] call: the module is a ", module.class_name(),
               ", and the method of another class");
    return std::invoke(f, *object, args...);
  }
  template <class F, class... Args>
  auto on_all(F&& f, const Args&... args) {
    using Result = std::remove_cvref_t<decltype(on_one(*this, f, args...))>;
    std::vector<std::optional<Result>> results(replicas());
    std::tuple<Args...> given(args...);
    Tensors inputs;
    each_tensor(given, [&](const Tensor& each) { inputs.push_back(each); });
    const Tensors outputs =
        spread(inputs, [&](Module& module, std::size_t replica, const Tensors& parts) {
          std::tuple<Args...> own = given;
          auto at = parts.begin();
          each_tensor(own, [&](Tensor& each) { each = *at++; });
          auto& result = results[replica];
          result.emplace(
              std::apply([&](const Args&... mine) { return on_one(module, f, mine...); }, own));
          Tensors all;
          each_tensor(*result, [&](const Tensor& each) { all.push_back(each); });
          return all;
        });
    auto at = outputs.begin();
    each_tensor(*results[0], [&](Tensor& each) { each = *at++; });
    return std::move(*results[0]);
  }

  std::shared_ptr<Replicas> replicas_;
};

}  // namespace peal::nn
