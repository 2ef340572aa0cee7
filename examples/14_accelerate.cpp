// SPDX-License-Identifier: Apache-2.0
// The Accelerator: a loop of one's own, on any number of ranks and with any strategy. Alone it
// starts two ranks as threads; under peal-run or mpirun it is one of theirs.
//
//   14_accelerate [none|ddp|zero1|zero2|fsdp]
//
// The book (docs/book): chapter 11, ZeRO and FSDP.
#include <peal/data/synthetic_digits.h>
#include <peal/launch/training/accelerator/accelerator.h>
#include <peal/nn/models/basic_net.h>
#include <peal/peal.h>

#include <fmt/format.h>

#include <string>

using namespace peal;

void train(launch::Job& job, const std::string& strategy) {
  launch::set_seed(1);
  launch::Accelerator accelerator(
      job, {.mixed_precision = "bf16", .gradient_accumulation_steps = 2, .strategy = strategy});
  nn::BasicNet net;
  nn::AdamW adam(net.named_parameters(), {.lr = 1e-3});
  nn::OneCycleLR cycle(adam, {.max_lr = 2e-3, .total_steps = 60});
  data::DataLoader digits(data::synthetic_digits(480, 1), {.batch_size = 8, .shuffle = true});
  data::DataLoader others(data::synthetic_digits(100, 2), {.batch_size = 25});
  auto [model, optimizer, scheduler, training, test] =
      accelerator.prepare(net, adam, cycle, digits, others);
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
  std::int64_t right = 0, all = 0;
  for (const data::Batch& batch : test) {
    const Tensor hits = cast(argmax(model(batch.x), 1) == batch.y, DType::f32);
    const auto found = accelerator.gather_for_metrics(hits).to_vector<float>();
    for (const float hit : found) right += hit > 0 ? 1 : 0;
    all += std::ssize(found);
  }
  accelerator.print(fmt::format("{} of {} digits are right", right, all));
}

int main(int argc, char** argv) {
  const std::string strategy = argc > 1 ? argv[1] : "ddp";
  return launch::run_main([&](launch::Job& job) {
    if (job.world() > 1 || strategy == "none") return train(job, strategy);
    launch::spawn(2, [&](launch::Job& rank) { train(rank, strategy); });
  });
}
