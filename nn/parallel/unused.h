// SPDX-License-Identifier: Apache-2.0
// Unused parameters (PyTorch: find_unused_parameters): those that a rank's backward gives no
// gradient. In a bucket that travels zeros stand in for it; afterwards the ranks agree, by one bit
// a parameter, which were used by none: those gradients are then what they were before, also where
// that is nothing, so that no optimizer moves them. One that another rank used gets the reduced
// gradient here, too. A use under no_sync() counts for the step that ends the accumulation.
// Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace peal::nn {

class Unused {
 public:
  // Of those parameters, by their numbers there; none was used yet.
  Unused(const NamedTensors& parameters, comm::ProcessGroup group);

  // Of other parameters from now on. A use of one that stays still counts.
  void exchange(const NamedTensors& parameters);
  // A gradient came.
  void note_use(std::size_t parameter) { used_[parameter] = true; }
  // Zeros of that type, where the parameter has no gradient; what is there travels otherwise.
  void stand_in(std::size_t parameter, DType dtype);
  // An exception has left the backward.
  void forget() { stood_in_.clear(); }

  // Collective: which parameters any rank has used since the last step; and in those before it, as
  // long as they ended with `goes_on` on any rank, which is returned.
  bool agree(std::uint64_t tag, bool goes_on = false);
  // One that was used here, but not when ranks agreed; or none (the number of parameters).
  std::size_t surprise() const;
  // As the ranks last agreed: none of them used it.
  bool nowhere(std::size_t parameter) const { return !anywhere_[parameter]; }
  // The step has its gradients: takes back what stood in for nothing. Of which parameters.
  std::vector<std::size_t> settle();

 private:
  struct StoodIn {
    std::size_t parameter;
    Tensor before;  // undefined: there was none
  };
  std::vector<Tensor> parameters_;
  comm::ProcessGroup group_;
  std::vector<bool> used_, anywhere_;
  bool goes_on_ = false;
  std::vector<StoodIn> stood_in_;
};

}  // namespace peal::nn
