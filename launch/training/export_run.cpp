// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/safetensors.h>
#include <peal/launch/training/export_run.h>

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

void export_run(const std::filesystem::path& path, const nn::DistributedDataParallel& model,
                data::DataLoader& training, data::DataLoader& test, int epochs,
                nn::LRScheduler& scheduler) {
  PEAL_CHECK(model.group().world() == 1, "[launch] export ", path.string(),
             ": expected a run of one rank, got one of ", model.group().world(),
             ", of which each has a share of the batches; start it without peal-run");
  NamedTensors all;
  for (const auto& [name, tensor] : model.state_dict()) all.emplace_back("model." + name, tensor);
  std::vector<double> rates;
  std::int64_t steps = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    training.set_epoch(epoch);
    for (std::int64_t k = 0; k < training.size(); ++k, ++steps) {
      scheduler.set_steps(steps);
      for (const double rate : scheduler.get_last_lr()) rates.push_back(rate);
    }
    add_batches(training, concat("train.", epoch), all);
  }
  scheduler.set_steps(0);
  training.set_epoch(0);
  add_batches(test, "test", all);
  test.set_epoch(0);
  const std::int64_t groups = steps > 0 ? std::ssize(rates) / steps : 0;
  all.emplace_back("rates", Tensor::from(rates, {steps, groups}, Device{}));
  save_safetensors(path, all);
}

}  // namespace peal::launch
