// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/reduce.h>
#include <peal/launch/training/evaluation.h>
#include <peal/nn/parallel/ddp.h>

#include <vector>

namespace peal::launch {

double accuracy(nn::Module& model, data::DataLoader& loader, const comm::ProcessGroup& group) {
  const NoGrad guard;
  // Forwards without synchronisation have left each rank buffers of its own.
  if (auto* const ddp = model.as<nn::DistributedDataParallel>()) ddp->sync_buffers();
  model.eval();
  std::int64_t correct = 0, seen = 0;
  for (const auto& [x, y] : loader) {
    const auto guesses = argmax(model(x), 1).to_vector<std::int64_t>();
    const auto classes = y.to_vector<std::int64_t>();
    for (std::size_t i = 0; i < classes.size(); ++i) correct += guesses[i] == classes[i];
    seen += std::ssize(classes);
  }
  const Tensor totals = Tensor::from(std::vector<std::int64_t>{correct, seen}, {2}, Device{});
  group.all_reduce(totals).wait();
  const std::int64_t* total = totals.data<std::int64_t>();
  PEAL_CHECK(total[1] > 0,
             "[launch] accuracy: the loaders of all ranks have no sample to judge by");
  return static_cast<double>(total[0]) / static_cast<double>(total[1]);
}

}  // namespace peal::launch
