// SPDX-License-Identifier: Apache-2.0
// Sample-weighted averaging: where ranks have batches of different sizes, losses are multiplied by
// their numbers of samples, these travel behind the gradients of the last bucket (of devices and
// types of few bits: beside them), and the sum of gradients is divided
// by the sum of samples once. A count belongs to gradients that are there: whoever gives those up,
// by zero_grad(), gives up the count.
//
// So that types and hooks of few bits overflow no sooner than an average does, what losses are
// multiplied by is the number of samples times a power of two next to world / (samples of the last
// step), the same on all ranks. Before the first step the ranks tell each other what its first
// backward has. What counts is the number that the loss's type has for the product.
// Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/process_group.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace peal::nn {

class SampleWeights {
 public:
  // `tag` tells this wrapper's announcements from those of others of the group.
  SampleWeights(comm::ProcessGroup group, std::uint64_t tag)
      : group_(std::move(group)), tag_(tag) {}

  // A loss is to be multiplied by `factor`, while `weighing` lives.
  struct Weighed {
    double factor;
    double before;  // the count without it
    std::shared_ptr<void> weighing;
  };
  // `gradient` names a parameter that has one already, or is empty. Collective, until a step is
  // done. Errors: in a captured step; samples < 0 or not finite, and a gradient that is of no such
  // loss, which are those of check(), on all ranks, where the backward is one that they hear of.
  [[nodiscard]] Weighed weigh(double samples, DType of_loss, std::string_view gradient, bool heard);
  // The gradients are of such losses; and the backward under way is, or is of another's.
  bool is_open() const { return is_open_; }
  bool weighing() const;
  bool others_weigh() const;
  // That loss was no step, and has given this count no gradient.
  void take_back(const Weighed& weighed) { samples_ = weighed.before; }
  // The gradients were given up.
  void forget() {
    samples_ = 0;
    is_open_ = false;
    wrong_.clear();
  }

  // A step begins, of which this is wrong: check() tells all ranks.
  void spoil(std::string wrong);
  // A step of a rank that has no batch in it: whether those who have one count samples.
  void follow(bool weighted);
  // Of such a rank, too: how many samples there are. Error as of check().
  void estimate(double samples);
  // A step begins. Where samples count their number is written into what is to be averaged over the
  // ranks, f32 or f64, to travel with others' sums; where there is none it is sent. Collective.
  static constexpr std::int64_t digits = 7;  // the last: whether a rank's number has more
  // `where`: room for it, [digits], or undefined, where it is sent.
  void begin(const Tensor& where);
  // Sends it, where nobody has in this step. Collective.
  void send();
  // Or reads the sum from there, when that is done. Collective, as a rank's number may not be one
  // of so many bits: then it is sent after all.
  void take(const Tensor& where);
  // Waits for what was sent. Error on all ranks where a rank's is none, and the group goes on.
  void check();
  // Of a backward that is no step: Error where its number of samples is none, of which nobody
  // hears.
  void check_unheard();
  // What to multiply averages over the ranks with, of which `divisor` is the number that counts
  // where samples do not.
  double factor(int divisor);
  // The same factor in the step, before it is known. Collective, and waits for all ranks.
  double factor_now(int divisor);
  // Before it: the factor that makes a mean of this rank's own sum.
  double own_factor() const { return samples_ > 0 ? 1 / samples_ : 0; }

 private:
  void open();
  void put(const Tensor& where) const;

  comm::ProcessGroup group_;
  std::uint64_t tag_;
  double samples_ = 0;   // times scale_
  double expected_ = 0;  // of all ranks in a step; 0: nobody knows
  double scale_ = 1;     // of the count that is open
  bool is_open_ = false, sent_ = false;
  std::string wrong_;  // with this rank's number, which then is NaN
  Tensor total_;       // of samples, over the ranks
  comm::Work totalled_;
};

}  // namespace peal::nn
