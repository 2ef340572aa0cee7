// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/checkpoint_wrapper.h>
#include <peal/nn/is_of_class.h>
#include <peal/nn/named_places.h>

#include <algorithm>
#include <utility>

namespace peal::nn {

std::string own_class(const Module& module) {
  Module here = module;
  const auto* const wrapper = here.as<CheckpointWrapper>();
  return wrapper != nullptr ? wrapper->wrapped_class() : here.class_name();
}

CheckpointWrapper::CheckpointWrapper(Module module, const CheckpointWrapperOptions& options)
    : Module(std::move(module)), options_(options) {
  stay();
  wrapped_class_ = Module(static_cast<const Module&>(*this)).class_name();
}

Tensor CheckpointWrapper::forward(const Tensor& x) {
  Module wrapped(static_cast<const Module&>(*this));  // the handle below this class
  if (!options_.offload_to_cpu) {
    return checkpoint([wrapped](const Tensor& in) mutable { return wrapped.forward(in); }, x);
  }
  const Device device = x.device();
  return checkpoint(
      [wrapped, device](const Tensor& in) mutable { return wrapped.forward(in.to(device)); },
      x.to(Device{}));
}

CheckpointWrapper checkpoint_wrapper(Module module, const CheckpointWrapperOptions& options) {
  return CheckpointWrapper(std::move(module), options);
}

void apply_activation_checkpointing(Module& model, const std::vector<std::string>& types,
                                    const CheckpointWrapperOptions& options) {
  NamedPlaces places = named_places(model);
  for (const std::string& type : types) {
    PEAL_CHECK(std::any_of(places.begin(), places.end(),
                           [&](auto& each) { return is_of_class(own_class(each.second), type); }),
               "apply_activation_checkpointing: the model has no ", type, " below it");
  }
  std::vector<Module> wrappers;
  for (auto& [path, module] : places) {
    const std::string name = own_class(module);
    const bool wanted = std::any_of(types.begin(), types.end(), [&](const std::string& type) {
      return is_of_class(name, type);
    });
    if (!wanted || module.as<CheckpointWrapper>() != nullptr) continue;
    auto wrapper = std::find_if(wrappers.begin(), wrappers.end(),
                                [&](const Module& each) { return each.same_as(module); });
    if (wrapper == wrappers.end()) {
      const Module made = checkpoint_wrapper(module, options);  // with its class
      wrapper = wrappers.insert(wrapper, made);
    }
    model.replace_child(path, *wrapper);
  }
}

}  // namespace peal::nn
