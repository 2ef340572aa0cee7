// SPDX-License-Identifier: Apache-2.0
// Sample-weighted averaging: where ranks have batches of different sizes, losses are multiplied by
// their numbers of samples, these travel beside the gradients, and the sum of gradients is divided
// by the sum of samples once. A count belongs to gradients that are there: whoever gives those up,
// by zero_grad(), gives up the count. Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

namespace peal::nn {

class SampleWeights {
 public:
  SampleWeights(comm::ProcessGroup group, std::uint64_t tag)
      : group_(std::move(group)), tag_(tag) {}

  // The backwards that run while what is returned lives are of losses that were multiplied.
  // `gradient` names a parameter that has one already, or is empty. Errors: samples < 0 or not
  // finite; in a captured step; a gradient that is of no such loss.
  [[nodiscard]] std::shared_ptr<void> weigh(double samples, std::string_view gradient);
  // The gradients are of such losses; and the backward under way is.
  bool open() const { return open_; }
  bool weighing() const { return weighing_; }
  // The gradients were given up.
  void forget() {
    samples_ = 0;
    open_ = false;
  }

  // A step of a rank that has no batch in it: whether those who have one count samples.
  void follow(bool weighted) { open_ = weighted; }
  // Where samples count: sends their number. Collective.
  void send();
  // Waits for it. What to multiply averages over the ranks with, of which `divisor` is the number
  // that counts where samples do not.
  double factor(int divisor);

 private:
  comm::ProcessGroup group_;
  std::uint64_t tag_;
  double samples_ = 0;
  bool open_ = false, weighing_ = false;
  Tensor total_;  // of samples, over the ranks
  comm::Work totalled_;
};

}  // namespace peal::nn
