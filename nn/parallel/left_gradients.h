// SPDX-License-Identifier: Apache-2.0
// Left gradients: which parameters still have the gradient that a step has left, or something that
// was added to it. A gradient that one rank alone keeps cannot be averaged once more with what
// comes on top of it, so that must be noticed, however the rest of it was given up. Thread safety:
// the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace peal::nn {

class LeftGradients {
 public:
  LeftGradients() = default;
  ~LeftGradients();
  LeftGradients(const LeftGradients&) = delete;
  LeftGradients& operator=(const LeftGradients&) = delete;

  // Of those `own` from now on. What is known of one that was watched stays.
  void watch(const NamedTensors& parameters, const std::vector<bool>& own);
  // A step is done: what is there of gradients is what it has left.
  void note();
  // It was given up; the first gradient after zero_grad() shows it by itself.
  void forget(std::size_t parameter);
  // Whether the parameter of that number is one.
  bool has(std::size_t parameter) const;

 private:
  struct Watched {
    Tensor parameter;  // undefined: it is not
    std::shared_ptr<bool> left;
    std::uint64_t hook = 0;
  };
  static void stop(const Watched& watched);
  std::vector<Watched> watched_;  // by parameter
};

}  // namespace peal::nn
