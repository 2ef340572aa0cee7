// SPDX-License-Identifier: Apache-2.0
// One call of a Pipe on a rank: it follows the rank's program, with what is under way. Thread
// safety: as of Pipe.
#pragma once

#include <peal/comm/group/process_group.h>
#include <peal/comm/pipeline/pipeline.h>
#include <peal/comm/schedule/schedule.h>
#include <peal/nn/parallel/pipeline/parcel.h>
#include <peal/nn/parallel/pipeline/pipe.h>

#include <compare>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace peal::nn {

class PipeStep {
 public:
  struct Batch {
    Tensor x, target;        // no target in forward()
    const Pipe::Loss* loss;  // nor loss
    double divisor = 1;
    bool keeps_outputs = false;
  };
  PipeStep(Pipe& pipe, const Pipe::Plan& plan, const Batch& batch, PipeCall::What what);

  // The loss over the divisor, where the last part is; 0 elsewhere.
  double run();
  int stash() const { return most_; }
  // Of the last part, by micro-batch.
  const Tensors& outputs() const { return outputs_; }

 private:
  using Pass = comm::pipeline::Pass;
  using Action = comm::pipeline::Action;
  // What leads from a part to another: the activation of part p to the next is line p, and skips
  // come behind those. Forward goes an activation, back its gradient.
  struct Label {
    bool forward;
    int line, micro_batch;
    auto operator<=>(const Label&) const = default;
  };
  // What a part has of a micro-batch. The input comes first among the inputs, the output among the
  // outputs (of the last part: the loss over the divisor); then skips.
  struct Entry {
    Tensors inputs, outputs;
    bool anew = false;  // it is checkpointed
    Tensor end;         // from which backward goes: it gives all outputs their gradients
  };
  struct Asked {
    Tensor header;
    comm::Work work;
    int from;
  };

  int tag(const Label& label) const;
  std::vector<Label> labels_of(const comm::pipeline::Step& step) const;
  Tensor rows(const Tensor& whole, int i) const;
  void send(const comm::pipeline::Step& step);
  void ask(const comm::pipeline::Step& step);
  Parcel take(const Label& which);

  void compute(const Action& action);
  void forward(const Action& action);
  Tensors through(int part, int i, const Tensors& inputs);
  Tensor loss_of(const Tensor& y, int i);
  Tensor end_of(const Action& action, const Entry& entry);
  static Tensors gradients_of_inputs(const Entry& entry, bool walked);
  void give_gradients(const Action& action, const Entry& entry, const Tensors& gradients);
  bool trains() const { return call_.what == PipeCall::What::step; }

  Pipe& pipe_;
  const Pipe::Plan& plan_;
  const comm::pipeline::Problem& problem_;
  const Batch batch_;
  const PipeCall call_;
  const Generator start_ = context().generator;
  const comm::Blocks rows_;
  std::map<std::pair<int, int>, Entry> kept_;  // the stash, by part and micro-batch
  std::map<Label, Parcel> made_;               // to be sent, or for another part of this rank
  std::map<Label, Asked> asked_;
  std::vector<comm::Work> sent_;
  Tensors outputs_;
  double sum_ = 0;
  int most_ = 0;
};

}  // namespace peal::nn
