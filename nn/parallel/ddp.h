// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel: each rank runs the model on its own samples, and the gradients that the
// optimizer sees are the average over ranks, so P ranks with batch B train as one with batch P * B
// (where every rank's batch has the same size and the loss is a mean).
//
//   nn::BasicNet net;
//   nn::DistributedDataParallel ddp(net, job.group_ref());
//   nn::AdamW optimizer(ddp.parameters(), {.lr = 1e-3});
//   nll_loss(ddp(x), y).backward();   // gradients are averaged when this returns
//   optimizer.step();
//
// It is a handle to the same module: names and state_dict keys gain no prefix. While it lives, its
// gradients live in the buckets. All ranks start from rank 0's parameters and buffers; buffers are
// broadcast from rank 0 at each forward in training. Replicas stay bit-identical, because every
// rank receives the same bits; on CPUs of different vector levels the optimizer may round
// differently, so there give all ranks one PEAL_CPU_LEVEL. Thread safety: as of Module.
#pragma once

#include <peal/nn/module.h>
#include <peal/nn/parallel/reducer.h>

#include <memory>

namespace peal::nn {

struct DDPOptions {
  BucketCaps buckets;
  bool broadcast_buffers = true;
};

class DistributedDataParallel : public Module {
 public:
  // Collective. Error, the same on all ranks, where the models differ.
  DistributedDataParallel(Module module, std::shared_ptr<comm::ProcessGroup> group,
                          const DDPOptions& options = {});

  // While one of these lives, backward accumulates local gradients without communication; the next
  // backward outside averages their sum. May be nested.
  class NoSync {
   public:
    explicit NoSync(Reducer& reducer) : reducer_(reducer), before_(reducer.synchronizing()) {
      reducer_.set_synchronizing(false);
    }
    ~NoSync() { reducer_.set_synchronizing(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Reducer& reducer_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

  Reducer& reducer() const { return *reducer_; }

 private:
  std::shared_ptr<Reducer> reducer_;
  std::shared_ptr<void> buffer_hook_;  // takes the hook off when the last handle goes
};

}  // namespace peal::nn
