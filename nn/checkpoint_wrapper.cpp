// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/core/error.h>
#include <peal/nn/checkpoint_wrapper.h>

#include <utility>

namespace peal::nn {
namespace {

// "peal::nn::GptBlock" is called GptBlock, too.
bool is_called(const std::string& class_name, const std::string& type) {
  return class_name == type || class_name.ends_with("::" + type);
}

}  // namespace

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
  for (const std::string& type : types) {
    bool any = false;
    for (auto& [path, module] : model.named_modules()) {
      if (path.empty() || !is_called(module.class_name(), type)) continue;
      any = true;
      model.replace_child(path, checkpoint_wrapper(module, options));
    }
    PEAL_CHECK(any, "apply_activation_checkpointing: the model has no ", type, " below it");
  }
}

}  // namespace peal::nn
