// SPDX-License-Identifier: Apache-2.0
// What the tests of sharded checkpoints share: one training in f64, in one process or by any of the
// wrappers over a group, with AdamW of two groups and a frozen table.
#pragma once

#include <peal/nn/nn.h>

#include <memory>
#include <string>
#include <vector>

#include "fsdp_ranks.h"
#include "two_groups.h"

namespace peal::testing {

enum class How { plain, ddp, zero, fsdp, units, hybrid };

inline std::string name_of(How how) {
  constexpr const char* names[] = {"plain", "ddp", "zero", "fsdp", "fsdp of units", "hsdp"};
  return names[static_cast<int>(how)];
}

inline constexpr int rows_of_all = 12;  // of a batch, for 1 to 4 ranks

// One rank's. Its lm_head is tied to wte, and wpe is frozen.
struct Training {
  explicit Training(How way, const Group& over = {}, nn::GPT net = fresh(make_gpt))
      : how(way), group(over), model(net) {
    model.requires_grad_("transformer.wpe", false);
    const auto groups = [](const NamedTensors& parameters) {
      return two_groups(parameters, {.lr = 0.01, .weight_decay = 0.1});
    };
    if (how == How::plain) whole = std::make_unique<nn::Module>(model);
    if (how == How::ddp || how == How::zero) {
      whole = std::make_unique<DDP>(model, group);
    }
    if (how == How::fsdp || how == How::units || how == How::hybrid) {
      const nn::WrapPolicy wrap =
          how == How::units ? nn::wrap_by_type({"GptBlock"}) : nn::WrapPolicy{};
      nn::FSDPOptions settings{.wrap = wrap};
      if (how == How::hybrid) {  // two replicas
        settings.device_mesh =
            comm::DeviceMesh(group, {2, group.world() / 2}, {"replicate", "shard"});
      }
      fsdp = std::make_unique<FSDP>(model, group, settings);
      optimizer = std::make_unique<nn::AdamW>(groups(fsdp->local_parameters()));
      parts = {{"model", *fsdp}, {"optimizer", fsdp->saved(*optimizer)}};
      return;
    }
    if (how == How::zero) {
      optimizer = std::make_unique<nn::ZeroRedundancyOptimizer<nn::AdamW>>(
          group, groups(model.named_parameters()));
    } else {
      optimizer = std::make_unique<nn::AdamW>(groups(model.named_parameters()));
    }
    parts = {{"model", *whole}, {"optimizer", *optimizer}};
  }

  // The loss over the rows of all ranks, before it.
  double step(int number) {
    const int rank = group ? group.rank() : 0, world = group ? group.world() : 1;
    nn::Module& net = fsdp ? static_cast<nn::Module&>(*fsdp) : *whole;
    if (fsdp) fsdp->zero_grad();
    optimizer->zero_grad();
    const Tensor loss = loss_of(net, rows_of(batch_of(model, rows_of_all, number), rank, world));
    loss.backward();
    optimizer->step();
    Tensor sum = loss.detach().clone();
    if (group) group.all_reduce(sum).wait();
    return sum.item<double>() / world;
  }
  std::vector<double> steps(int begin, int end) {
    std::vector<double> losses;
    for (int number = begin; number < end; ++number) losses.push_back(step(number));
    return losses;
  }
  // Copies, the same on all ranks.
  NamedTensors values() const {
    NamedTensors copies;
    for (const auto& [name, tensor] : fsdp ? fsdp->state_dict() : model.state_dict()) {
      copies.emplace_back(name, tensor.clone());
    }
    return copies;
  }
  // Copies of this rank's part.
  NamedTensors moments() const {
    NamedTensors copies;
    for (const auto& [name, tensor] : optimizer->local_state_dict()) {
      copies.emplace_back(name, tensor.clone());
    }
    return copies;
  }

  How how;
  Group group;
  nn::GPT model;
  std::unique_ptr<nn::Module> whole;
  std::unique_ptr<FSDP> fsdp;
  std::unique_ptr<nn::Optimizer> optimizer;
  std::vector<nn::Part> parts;
};

}  // namespace peal::testing
