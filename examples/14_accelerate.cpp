// SPDX-License-Identifier: Apache-2.0
// The Accelerator: a loop of one's own, on any number of ranks and with any strategy. Alone it
// starts two ranks as threads; under peal-run or mpirun it is one of theirs.
//
//   14_accelerate [--strategy none|ddp|zero1|zero2|fsdp] [--data mnist/]
//
// The book (docs/book): chapter 11, ZeRO and FSDP.
#include <peal/data/mnist.h>
#include <peal/data/synthetic_digits.h>
#include <peal/launch/command_line.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/metrics/classification.h>
#include <peal/nn/models/basic_net.h>
#include <peal/peal.h>

#include <fmt/format.h>

using namespace peal;

void train(launch::Job& job, const launch::AcceleratorOptions& options, const std::string& folder) {
  const auto digits = [&](bool train) -> data::DatasetRef {
    if (!folder.empty()) return data::mnist(folder, train);
    return data::synthetic_digits(train ? 960 : 100, train ? 1 : 2);
  };
  launch::set_seed(1);
  launch::Accelerator accelerator(job, options);
  nn::BasicNet net;
  data::DataLoader learnt(digits(true), {.batch_size = 32, .shuffle = true, .drop_last = true});
  data::DataLoader judged(digits(false), {.batch_size = 250});
  nn::AdamW adam(net.named_parameters(), {.lr = 1e-3});
  nn::OneCycleLR cycle(adam, {.max_lr = 2e-3, .total_steps = learnt.size() / 2});
  auto [model, optimizer, scheduler, training, test] =
      accelerator.prepare(net, adam, cycle, learnt, judged);
  for (const data::Batch& batch : training) {
    const auto turn = accelerator.accumulate(model);
    accelerator.backward(nll_loss(model(batch.x), batch.y));
    if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(model.parameters(), 1.0);
    optimizer.step();
    scheduler.step();
    optimizer.zero_grad();
  }
  model.eval();
  const NoGrad guard;
  nn::Accuracy accuracy;
  for (const data::Batch& batch : test) {
    const auto [outputs, classes] = accelerator.gather_for_metrics(model(batch.x), batch.y);
    accuracy.update(outputs, classes);
  }
  accelerator.print(fmt::format("accuracy {:.4f}", accuracy.value()));
}

int main(int argc, char** argv) {
  launch::AcceleratorOptions options{.gradient_accumulation_steps = 2};
  std::string folder;
  launch::CommandLine line("Trains BasicNet on digits.");
  line.option("--data", &folder, "folder with MNIST's files; without it digits are drawn");
  line.option("--strategy", &options.strategy, "none, ddp, zero1, zero2 or fsdp");
  line.option("--mixed_precision", &options.mixed_precision, "no, bf16 or fp16");
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) {
    if (job.world() > 1 || options.strategy == "none") return train(job, options, folder);
    launch::spawn(2, [&](launch::Job& rank) { train(rank, options, folder); });
  });
}
