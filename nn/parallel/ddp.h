// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel: each rank runs the model on its own samples, and the gradients that the
// optimizer sees are the average over ranks, so P ranks with batch B train as one with batch P * B
// (where every rank's batch has the same size and the loss is a mean).
//
//   nn::BasicNet net;
//   nn::DistributedDataParallel ddp(net, job.group());
//   nn::AdamW optimizer(ddp.parameters(), {.lr = 1e-3});
//   nll_loss(ddp(x), y).backward();   // gradients are averaged when this returns
//   optimizer.step();
//
// It is a handle to the same module: names and state_dict keys gain no prefix. While it lives, its
// gradients live in the buckets. All ranks start from rank 0's parameters and buffers. Replicas
// stay bit-identical, because every rank receives the same bits; on CPUs of different vector levels
// the optimizer may round differently, so there give all ranks one PEAL_CPU_LEVEL.
//
// Steps are the same on all ranks: each backward outside no_sync(), and each forward in training
// (with gradients, outside no_sync). Where a rank has one more than the others, or goes back
// through another forward, all get an Error. After a backward a rank alone may look at outputs in
// eval(), and under NoGrad in train() too where no layer is a SyncBatchNorm.
//
// Buffers are rank 0's, on all ranks, after each synchronised backward; and before a forward
// outside no_sync() where another in training came first, without a backward between them (what a
// forward under NoGrad writes, with the next backward, or sync_buffers()). So after
// a step every rank has the same model, and may evaluate or save it alone. (PyTorch broadcasts at
// each forward; docs/decisions/0018-buffers-after-backward.md.)
//
// Parameters may be frozen and thawed between steps, and parameters and buffers may join the model
// or leave it, on all ranks alike (Error by name, on all, where it is not): the next step begins
// with a plan of those that there are, and those that joined have rank 0's values when it is over,
// and when it failed, after the next that does not (its gradients are of what each rank had, so
// give them equal values where the first update matters). Gradients and optimizers keep what they
// have; a new parameter is to be given to an optimizer. Where such a
// model is called by a function of its own, let it be through the wrapper (call()), which sees new
// parameters then. After the first step rank 0's order of gradients makes the plan, unless one is
// given, or find_unused_parameters lets steps differ. A hook so gets other buckets, and sums of
// three ranks and more may be rounded otherwise: for the same bits after a restart save arrival(),
// and give it as the order. Thread safety: as of Module.
#pragma once

#include <peal/autograd/core/stateful.h>
#include <peal/nn/each_tensor.h>
#include <peal/nn/module.h>
#include <peal/nn/parallel/comm_hook.h>
#include <peal/nn/parallel/logging_data.h>
#include <peal/nn/parallel/mixed_precision.h>
#include <peal/nn/parallel/reducer.h>
#include <peal/nn/parallel/what_if.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace peal::nn {

struct DDPOptions {
  BucketCaps buckets{};
  // What an all_reduce costs between these ranks, the same on all of them: buckets that have no cap
  // then get the one whose step is the shortest (bucket_size.h). Of a machine that was measured:
  //   nn::simulated_cost(launch::load_machine("machine.json"), "ring", 4096, 1 << 27)
  // Without it: 25 MiB on one node, and between nodes as for 100 Gbit/s.
  CollectiveCost all_reduce_cost{};
  bool broadcast_buffers = true;  // false: they stay each rank's own after the start
  // Parameters may get no gradient in a step: on some ranks, where they get the average with zeros
  // in its place; or on all, where their gradient stays what it was. Costs a small collective at
  // the end of each step; and one when it begins, where layers have collectives of their own over
  // the group (SyncBatchNorm). All ranks call these equally often, in forward and in backward, and
  // the first use of a parameter (a tied one has several) lies between the same two of them on all
  // ranks that use it; else all get an Error.
  bool find_unused_parameters = false;
  // Each backward is as the first was, on the same rank: unused parameters, and gradients that come
  // in several parts (recomputed segments), are known from then on, and cost nothing once each rank
  // has had its first. Of such layers the same holds.
  bool static_graph = false;
  // Names of parameters in the order in which their gradients come, as an earlier run's arrival()
  // gave it: overlap is best then. Without it: the reverse order of registration.
  std::vector<std::string> order{};
  // Names of parameters whose gradients go last, in buckets of their own (PyTorch:
  // delay_all_reduce_named_params).
  std::vector<std::string> delayed{};
  // Names of parameters and buffers that are none of the wrapper's: each rank's own (PyTorch:
  // _set_params_and_buffers_to_ignore_for_model).
  std::vector<std::string> ignored{};
  // Every so many steps ranks compare digests of parameters and buffers (replica_check.h), and of
  // what check_replicas_of() is told; 0: never.
  std::int64_t check_every = 0;
  // The types in which the model computes, and gradients and buffers are (mixed_precision.h).
  MixedPrecision mixed_precision{};
  // Every so many steps it is measured where their time goes (get_ddp_logging_data()); 0: never,
  // but in a run under PEAL_TRACE, where each is. Costs such a step a small collective.
  std::int64_t measure_every = 0;
  // Which rank gets the average of a parameter's gradient, and `everyone` (bucket_plan.h) where all
  // do, as without this. On the others it is freed as soon as it was sent: after a backward that
  // communicates they have none. For sharded/sharded_ddp.h, which says what that goes with. The
  // same on all ranks.
  std::function<int(const Tensor& parameter)> owner_of{};
};

class DistributedDataParallel : public Module {
 public:
  // Collective. Error, the same on all ranks, where the models differ.
  DistributedDataParallel(Module module, comm::ProcessGroup group, const DDPOptions& options = {});

  // While one of these lives, backward accumulates local gradients without communication; the next
  // backward outside averages their sum. (What counts is where backward runs; in PyTorch it is
  // where forward did.) Buffers stay each rank's own until then, too: who evaluates or saves before
  // calls sync_buffers(). May be nested.
  class NoSync {
   public:
    // no_sync() makes it.
    explicit NoSync(std::shared_ptr<Reducer> reducer)
        : reducer_(std::move(reducer)), before_(reducer_->synchronizing()) {
      reducer_->set_synchronizing(false);
    }
    ~NoSync() { reducer_->set_synchronizing(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<Reducer> reducer_;
    bool before_;
  };
  // What it gives has to be kept: its life is the span without communication.
  [[nodiscard]] NoSync no_sync();

  // The module's, as Module::call(); both with rounded parameters, inputs and outputs, where the
  // options say so.
  Tensor forward(const Tensor& x) override;
  template <class F, class... Args>
  auto call(F&& f, const Args&... args) {
    const std::shared_ptr<void> scope = rounded();
    if (!scope && !mixed_precision().output_dtype) {
      return Module::call(std::forward<F>(f), args...);
    }
    std::tuple<Args...> given(args...);
    if (scope) {
      each_tensor(given, [this](Tensor& each) { each = rounded_input(each, mixed_precision()); });
    }
    auto result = std::apply(
        [&](const Args&... inputs) { return Module::call(std::forward<F>(f), inputs...); }, given);
    each_tensor(result, [this](Tensor& each) { each = given_output(each, mixed_precision()); });
    return result;
  }

  // Where the options say so: until what is returned goes, the model's parameters are rounded ones,
  // as they are in forward() and call(). For what computes a part of the model beside these: a
  // segment that is computed again in backward, say, whose own backward comes after it. Else null.
  [[nodiscard]] std::shared_ptr<void> rounded();

  // Instead of loss.backward(), where ranks have batches of different sizes: `loss` is the mean
  // over `samples` samples (or labels, or tokens; 0 where the batch has none, and the loss is not
  // NaN then), and the gradients are those of the mean over all samples, of all ranks and of the
  // backwards under no_sync() before this one. The same call on all ranks, after zero_grad().
  // Other leaves (x, ignored parameters, a head outside of the wrapper) get the gradients of
  // loss.backward(), unless `samples` is 0 or the graph does not show them (a recomputed segment
  // outside of the wrapper); functions of register_hook() see those of a loss that was multiplied.
  // One that goes through ignored parameters alone, on all ranks, is no step: nothing is sent, and
  // its samples do not count (under no_sync() they do).
  // Errors: a number that is none; gradients of an earlier step (both on all ranks, but under
  // no_sync() once samples are counted); another wrapper on the way (on all; it ends the group).
  void backward(const Tensor& loss, double samples);

  // The hook is called for each bucket in the place of the average (comm_hook.h). The same on all
  // ranks; not in a backward. Error where mixed precision has one for its reduce_dtype.
  void register_comm_hook(CommHook hook);
  // All buffers become rank 0's now. Collective.
  void sync_buffers();

  // Names of parameters in the order in which gradients came in the last step, for
  // DDPOptions::order.
  std::vector<std::string> arrival() const;
  // Names of parameters in the order of the plan, where that was learnt or given, else none. For a
  // run that goes on where one has stopped: with the same order sums have the same bits.
  std::vector<std::string> order() const;
  // The plan is of that order now, and none is learnt; of no names: as it was. Collective, between
  // backwards. Errors: a name that the model has not; on all ranks, where theirs differ; after a
  // captured step.
  void set_order(const std::vector<std::string>& names);
  // Where DDPOptions::check_every says so, digests of this object's state are compared, too: an
  // optimizer's, say. The same on all ranks. REQUIRES: it lives as long as the wrapper.
  template <Stateful T>
  void check_replicas_of(std::string name, const T& object) {
    check_replicas_of(std::move(name), [&object] { return object.state_dict(); });
  }
  void check_replicas_of(std::string name, std::function<NamedTensors()> state);
  // What the wrapper does, for people: ranks, options, each bucket with its size and parameters,
  // and how long the last steps waited for gradients.
  std::string explain() const;
  // Of the last step that was measured (DDPOptions::measure_every). Of this rank; nothing is
  // communicated.
  const DDPLoggingData& get_ddp_logging_data() const;
  // What steps like that one would take with other buckets, where an all_reduce costs that much:
  //   ddp.what_if(nn::simulated_cost(machine, "ring", 4096, 1 << 27))
  // describe() makes a table of it. `travels_in`: what a registered hook sends gradients in (u8 for
  // int8); that of mixed precision is known. Error where no step was measured.
  std::vector<WhatIf> what_if(const CollectiveCost& cost,
                              std::optional<DType> travels_in = {}) const;
  // What sends the gradients, and to which ranks.
  Reducer& reducer() const;
  const comm::ProcessGroup& group() const;

 private:
  friend class Join;  // tells who has a batch, and what those without do
  void set_actives(int divisor, int lowest, bool all);
  Announcement turn() const;
  void follow(const Announcement& where);
  Device device() const;
  const MixedPrecision& mixed_precision() const;
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<void> hooks_;  // takes them off when the last handle goes
};

}  // namespace peal::nn
