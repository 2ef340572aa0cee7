// SPDX-License-Identifier: Apache-2.0
// Reducer: the machinery of DDP. Gradients live in the buckets: each parameter's gradient slot is
// placed there, so a bucket is sent from where gradients accumulate and received where the
// optimizer reads. A final hook a parameter says when its gradient is
// complete; a bucket whose gradients all are is launched as an averaging all-reduce, strictly in
// plan order, while backward goes on; when backward has visited everything, the reducer waits for
// what is still under way.
//
// A parameter that got no gradient is an Error in the same step, by name, and on every rank.
// Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/comm/group/process_group.h>
#include <peal/nn/parallel/bucket_plan.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace peal::nn {

class Reducer {
 public:
  // Collective: compares names, shapes, dtypes and the plan over the ranks, and throws the first
  // difference on all of them. `buffers` take part in the comparison alone.
  Reducer(NamedTensors parameters, const NamedTensors& buffers,
          std::shared_ptr<comm::ProcessGroup> group, const BucketCaps& caps);
  // Gives parameters gradients of their own again. Communicates nothing.
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // While false, backward only accumulates.
  void set_synchronizing(bool on) { synchronizing_ = on; }
  bool synchronizing() const { return synchronizing_; }

  const std::vector<Bucket>& buckets() const { return plan_; }
  // Seconds, since the last reset, in which this rank did nothing but wait for gradients.
  double exposed_seconds() const { return exposed_seconds_; }
  // Seconds between a bucket's launch and its last message, summed over buckets.
  double wire_seconds() const { return wire_seconds_; }
  void reset_times() { exposed_seconds_ = wire_seconds_ = 0; }

 private:
  struct Flight {
    Tensor memory;
    std::string label;        // "bucket 0: fc2.bias, fc2.weight"
    std::size_t waiting = 0;  // gradients not yet complete
    comm::Work work;
  };
  void compare_models(const NamedTensors& buffers) const;
  void watch_frozen();
  void on_complete(std::size_t parameter);
  void launch_ready();
  void finish();
  void begin();

  NamedTensors parameters_;
  std::vector<ParameterSpec> specs_;
  std::shared_ptr<comm::ProcessGroup> group_;
  std::vector<Bucket> plan_;
  std::vector<Flight> flights_;
  std::vector<int> bucket_of_;  // by parameter; -1: frozen
  std::vector<std::pair<std::shared_ptr<GradSlot>, std::uint64_t>> frozen_;  // with the hook's id
  std::vector<bool> complete_;  // by parameter, in this backward
  std::size_t next_ = 0;        // the bucket to launch next
  std::uint64_t backward_ = 0;  // the one under way (tape.h), 0: none
  bool synchronizing_ = true;
  bool captured_ = false;  // the backward under way lies in a graph: nothing was sent
  double exposed_seconds_ = 0, wire_seconds_ = 0;
};

}  // namespace peal::nn
