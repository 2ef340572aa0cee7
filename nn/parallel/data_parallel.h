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
#include <peal/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

namespace peal::nn {

class DataParallel : public Module {
 public:
  // `another` makes a module like this one, of its own tensors, for each device but the first, on
  // which the module lies. Errors: no device, one that a parameter does not lie on, modules that
  // differ in names, shapes or types.
  DataParallel(Module module, std::vector<Device> devices, const std::function<Module()>& another);

  // x [B, ...]. An Error of a replica says which it was.
  Tensor forward(const Tensor& x) override;

 private:
  struct Replicas;
  std::shared_ptr<Replicas> replicas_;
};

}  // namespace peal::nn
