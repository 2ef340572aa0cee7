// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/trainer/export_run.h>
#include <peal/launch/training/trainer/trainer.h>

#include <cstdint>
#include <string>
#include <vector>

namespace peal::launch {
namespace {

void add_batches(data::DataLoader& loader, const std::string& before, NamedTensors& all) {
  std::int64_t k = 0;
  for (const data::Batch& batch : loader) {
    const std::string name = concat(before, ".", k++, ".");
    all.emplace_back(name + "x", batch.x);
    all.emplace_back(name + "y", batch.y);
    for (const auto& [other, tensor] : batch.more) all.emplace_back(name + other, tensor);
  }
}

}  // namespace

void ExportRun::on_train_begin(Trainer& trainer, TrainerControl&) {
  PEAL_CHECK(trainer.job.world() == 1, "[trainer] export ", path_,
             ": expected a run of one rank, got one of ", trainer.job.world(),
             ", of which each has a share of the batches; start it without peal-run");
  const TrainerState& state = trainer.state();
  PEAL_CHECK(state.global_step == 0, "[trainer] export ", path_,
             ": expected a run that begins, got one after step ", state.global_step);
  NamedTensors all;
  for (const auto& [name, tensor] : trainer.model.state_dict())
    all.emplace_back("model." + name, tensor);
  const auto training = trainer.get_train_dataloader();
  for (int epoch = 0; epoch < state.num_train_epochs; ++epoch) {
    training->set_epoch(epoch);
    add_batches(*training, concat("train.", epoch), all);
  }
  add_batches(*trainer.get_eval_dataloader(), "test", all);
  nn::LRScheduler& scheduler = *trainer.lr_scheduler();
  std::vector<double> rates;
  for (std::int64_t step = 0; step < state.max_steps; ++step) {
    scheduler.set_steps(step);
    for (const double rate : scheduler.get_last_lr()) rates.push_back(rate);
  }
  scheduler.set_steps(0);
  all.emplace_back(
      "rates",
      Tensor::from(rates, {state.max_steps, std::ssize(rates) / state.max_steps}, Device{}));
  save_safetensors(path_, all);
}

}  // namespace peal::launch
