// SPDX-License-Identifier: Apache-2.0
// checkpoint_wrapper (FairScale; PyTorch: checkpoint_wrapper, apply_activation_checkpointing):
// modules that keep nothing of their forward but what goes in, and compute the rest anew when
// backward comes to them (autograd/checkpoint.h, which says what that does to random numbers,
// autocast and running statistics).
//
//   nn::apply_activation_checkpointing(gpt, {"GptBlock"});            // every block, in its place
//   nn::Module block = nn::checkpoint_wrapper(nn::Linear(32, 128));   // or one, by hand
//
// It is a handle to the same module: names, keys and shapes stay. A policy of FSDP that goes by
// class finds the module's own (wrap_by_type({"GptBlock"})), and either may be the outer one. What
// is called by a method of its own (Module::call of a member function) keeps all, as before. Of its
// members that are no tensors (a double, say) a module that is wrapped has the values of when it
// was registered. In evaluation and under NoGrad nothing is kept, and nothing computed twice.
// Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>

#include <string>
#include <vector>

namespace peal::nn {

struct CheckpointWrapperOptions {
  // What goes in is kept in the host's memory until backward comes: of a model on a device.
  bool offload_to_cpu = false;
};

class CheckpointWrapper : public Module {
 public:
  explicit CheckpointWrapper(Module module, const CheckpointWrapperOptions& options = {});

  Tensor forward(const Tensor& x) override;
  // Of what is wrapped.
  const std::string& wrapped_class() const { return wrapped_class_; }

 private:
  std::string wrapped_class_;
  CheckpointWrapperOptions options_;
};

// The module's class; where it is a wrapper, of what is wrapped. For who goes by classes.
std::string own_class(const Module& module);

CheckpointWrapper checkpoint_wrapper(Module module, const CheckpointWrapperOptions& options = {});

// Wraps each module below `model` of one of these classes, with namespace or without, that is not
// wrapped yet, in all its places. Error for a class of which there is none, wrapped or not, and
// then nothing is wrapped.
void apply_activation_checkpointing(Module& model, const std::vector<std::string>& types,
                                    const CheckpointWrapperOptions& options = {});

}  // namespace peal::nn
