// SPDX-License-Identifier: Apache-2.0
// Step clock: takes the times of a step of DDP, for logging_data.h and for PEAL_TRACE. The reducer
// has one only where something is measured, and calls it where a step's parts begin and end; what
// its collectives do the group records (comm/group/recording.h). At the end of a measured step the
// ranks exchange two numbers a bucket: that is the only thing by which such a step differs.
//
// A step that fails is not measured, and leaves nothing to the next one; nor does a forward through
// which no backward can go any more.
//
// Times are of the host: on a device they say when work was queued. In a graph that is captured
// nothing is measured. Thread safety: the thread that runs backward.
#pragma once

#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/group/label.h>
#include <peal/comm/group/recording.h>
#include <peal/nn/parallel/bucket_plan.h>
#include <peal/nn/parallel/logging_data.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace peal::nn {

class StepClock {
 public:
  // Each `every` steps is measured; all of those that PEAL_TRACE records. `tag` as the reducer's.
  StepClock(comm::ProcessGroup group, std::int64_t every, std::uint64_t tag);

  void forward_begins();
  void forward_ends(const Tensors& outputs);
  // What follows does nothing in a step that is not measured. `captured`: this one lies in a graph.
  // The plan is that of the step, and numbers these parameters.
  void step_begins(std::uint64_t step, bool captured, const std::vector<Bucket>& plan,
                   const NamedTensors& parameters);
  void gradient(std::size_t parameter, std::size_t bucket, bool last);
  void sends(std::size_t bucket, const comm::Label& label);
  // By a hook on the CPU, whose work may go on after its collectives.
  void sent_by_hook(std::size_t bucket, const comm::Work& work);
  void visited();
  void waits(std::size_t bucket);  // from now on
  void waited();                   // for all
  // The last one has come, and what follows it is done. Collective.
  void step_ends();
  // In its place.
  void step_fails();

  const DDPLoggingData& last() const { return last_; }

 private:
  struct Way {
    std::int64_t ready = 0, sent = 0, waits = 0;
    std::shared_ptr<std::int64_t> over;  // by a continuation
    int held_by = -1;                    // none: no gradient came
    std::string label;
    std::uint64_t tag = 0;
    std::vector<comm::Recorder::Ended> collectives{};
    comm::BucketTime time() const;
  };
  std::string name_of(int parameter) const;
  void add_buckets(DDPLoggingData& data, bool recorded) const;
  void compare(DDPLoggingData& data) const;
  void note();

  comm::ProcessGroup group_;
  std::vector<Bucket> plan_;        // of the step
  std::vector<std::string> names_;  // of its parameters
  std::int64_t every_;
  std::uint64_t tag_;
  comm::Recording recording_;
  bool on_ = false;  // this step is measured
  std::uint64_t step_ = 0;
  // Of forwards that no step has had yet: when this one and the first one began, the last one's
  // end, and their outputs.
  std::int64_t begun_ = 0, first_ = 0, last_end_ = 0;
  std::vector<std::weak_ptr<Node>> outputs_;
  std::int64_t forward_ = 0, backward_ = 0, visited_ = 0, waited_ = 0;  // of the step
  std::vector<std::int64_t> came_;                                      // by parameter
  std::vector<Way> ways_;                                               // by bucket
  DDPLoggingData last_;
};

}  // namespace peal::nn
