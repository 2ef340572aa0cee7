// SPDX-License-Identifier: Apache-2.0
// Gradient buckets: the memory of a bucket plan. Each parameter's gradient slot is placed in it, so
// a bucket is sent from where gradients accumulate and received where the optimizer reads
// (docs/decisions/0005-gradients-live-in-buckets.md). A final hook at each parameter tells when its
// gradient is complete.
//
// Of a bucket that is another rank's alone there is memory only while it is sent: until then the
// gradients have memory of their own, and then they are gone. Thread safety: the thread that runs
// backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/comm_hook.h>
#include <peal/nn/parallel/sample_weights.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace peal::nn {

class GradBuckets {
 public:
  // By its number. It outlives the buckets, which it may exchange for others when it is called.
  using Complete = std::function<void(std::size_t parameter)>;
  // A bucket lies where its parameters do. Gradients that are there move in, bucket by bucket, so
  // memory is needed for one of them more. Error where one is in a wrapper already, or kept in
  // another type; then no hook is left behind.
  GradBuckets(const NamedTensors& parameters, const std::vector<Bucket>& plan,
              const comm::ProcessGroup& group, const Complete& complete);
  // As give_back(), but for gradients for which there is no memory: these stay where they are.
  ~GradBuckets();
  GradBuckets(const GradBuckets&) = delete;
  GradBuckets& operator=(const GradBuckets&) = delete;

  // Parameters get gradients of their own again, and each bucket's memory goes before that of the
  // next is copied. Nothing but the destructor may follow. Error where memory runs out.
  void give_back();

  // How many there are, and one of them, by its number in the plan.
  std::size_t size() const { return buckets_.size(); }
  GradBucket& operator[](std::size_t bucket) { return buckets_[bucket]; }
  // What the average of a bucket is over: its memory and, where the last one lies on the CPU,
  // behind that an element of its own, by which a rank tells the others that gradients are missing.
  const Tensor& sent(std::size_t bucket) const {
    const bool flagged = flagged_.defined() && !flag_is_apart_ && bucket + 1 == size();
    return flagged ? flagged_ : buckets_[bucket].buffer;
  }
  // Whether there is such an element.
  bool has_flag() const { return flag_.defined(); }
  // The last bucket does not go to all, and so the flag not with it.
  bool flag_is_apart() const { return flag_is_apart_; }
  // Beside the flag, where that is of a type that holds them: digits of a count (SampleWeights).
  bool has_digits() const { return digits_.defined(); }
  const Tensor& digits() const { return digits_; }
  // The flag and the digits, a few elements, for who sends them by themselves.
  const Tensor& tail() const { return tail_; }
  // Before the last bucket is sent; and whether any rank has, since.
  void raise_flag();
  bool flag_raised() const;
  void lower_flag();
  // Another rank's: it has a buffer from collect(), which takes the gradients, to release().
  bool is_elsewhere(std::size_t bucket) const { return !plans_[bucket].entries.empty(); }
  void collect(std::size_t bucket);
  void release(std::size_t bucket) { buckets_[bucket].buffer = {}; }
  // "bucket 0: fc2.bias, fc2.weight"
  const std::string& name(std::size_t bucket) const { return names_[bucket]; }

 private:
  void add(const NamedTensors& parameters, const Bucket& plan, const comm::ProcessGroup& group,
           bool is_last);
  void leave() noexcept;

  std::vector<GradBucket> buckets_;
  std::vector<Bucket> plans_;              // by bucket: of another rank's; else without entries
  Tensor flagged_, flag_, digits_, tail_;  // of the last bucket
  bool flag_is_apart_ = false;
  std::vector<std::string> names_;
};

}  // namespace peal::nn
