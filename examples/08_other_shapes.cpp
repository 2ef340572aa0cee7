// SPDX-License-Identifier: Apache-2.0
// Steps of data-parallel training that are not the plain one: ranks that this program starts
// itself, ranks with a batch less than others, gradients that travel in fewer bytes, one rank that
// reads for all, and several devices without ranks. The numbers are small enough to check by hand.
// docs/book/07-data-parallel.md explains it.
//
// Run it:   build/release/examples/08_other_shapes
#include <peal/autograd/ops/ops.h>
#include <peal/data/data.h>
#include <peal/launch/spawn.h>
#include <peal/launch/training/across_processes.h>
#include <peal/launch/training/dispatcher.h>
#include <peal/nn/nn.h>

#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace peal;

namespace {

// Sample i is the number i + 1.
struct Numbers : data::Dataset {
  explicit Numbers(std::int64_t n) : count(n) {}
  std::int64_t size() const override { return count; }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<float> x;
    for (const std::int64_t index : indices) x.push_back(static_cast<float>(index + 1));
    return {Tensor::from(x, {std::ssize(x), 1}), Tensor()};
  }
  std::int64_t count;
};

// y = w x from w = 0, so a loss of mean(y) has the mean of x as its gradient.
nn::Linear line(std::int64_t width = 1) { return nn::Linear(Tensor::zeros({1, width})); }

std::string text(const Tensor& tensor) {
  std::string all;
  for (const float value : tensor.to_vector<float>()) {
    std::array<char, 32> number{};
    std::snprintf(number.data(), number.size(), " %.6g", value);
    all += number.data();
  }
  return all;
}

void train_with_uneven_batches(launch::Job& job, bool by_all) {
  const nn::Linear model = line();
  nn::DistributedDataParallel ddp(model, job.group());
  nn::SGD optimizer(ddp.named_parameters(), {.lr = 1});
  // Three batches for two ranks: rank 0 has two of them.
  data::DataLoader loader(std::make_shared<Numbers>(3),
                          {.shard = job.place(), .way = data::Way::batches, .exact = true});
  for (int epoch = 0; epoch < 2; ++epoch) {
    loader.set_epoch(epoch);
    nn::Join join(ddp, {.divide_by_initial_world_size = by_all});
    while (join.next(loader.has_next())) {
      optimizer.zero_grad();
      if (join.active()) {
        mean(ddp(loader.next()->x)).backward();
      } else {
        join.follow();
      }
      optimizer.step();
      if (job.is_main()) {
        std::printf("epoch %d, %d with a batch: gradient%s, then w%s\n", epoch, join.active_ranks(),
                    text(model.weight.grad()).c_str(), text(model.weight).c_str());
      }
    }
  }
}

void send_less(launch::Job& job) {
  const Tensor x = Tensor::from(std::vector<float>{1, 1.0F / 3}, {1, 2});
  std::int64_t elements = 0;
  const auto gradient_with = [&](const nn::CommHook& hook) {
    nn::Linear model = line(2);
    nn::DistributedDataParallel ddp(model, job.group());
    if (hook) ddp.register_comm_hook(hook);
    mean(ddp(x)).backward();
    return text(model.weight.grad());
  };
  // A hook of one's own: the average, and what went through it.
  const auto counted = [&](nn::GradBucket& bucket) {
    elements += bucket.buffer.numel();
    mul_(bucket.buffer, 1.0 / job.world());
    return job.group().all_reduce(bucket.buffer, comm::ReduceOp::sum, bucket.label);
  };
  const std::vector<std::pair<const char*, nn::CommHook>> hooks{
      {"f32", nullptr},
      {"own", counted},
      {"fp16", nn::fp16_compress_hook(job.group())},
      {"bf16", nn::bf16_compress_hook(job.group())},
      {"int8", nn::int8_compress_hook(job.group())}};
  for (const auto& [name, hook] : hooks) {
    const std::string gradient = gradient_with(hook);
    if (job.is_main()) std::printf("%-5s gradient%s\n", name, gradient.c_str());
  }
  if (job.is_main()) std::printf("own: %s\n", elements >= 2 ? "went through it" : "did not");
}

void read_on_one_rank(launch::Job& job) {
  const data::DatasetRef set = job.is_main() ? std::make_shared<Numbers>(5) : nullptr;
  launch::Dispatcher batches(job.group(), set, {.batch_size = 2});
  std::string mine;
  while (const auto batch = batches.next()) mine += (mine.empty() ? "" : " |") + text(batch->x);
  const auto all = job.group().all_gather_object(mine);
  for (std::size_t rank = 0; job.is_main() && rank < all.size(); ++rank) {
    std::printf("rank %zu:%s\n", rank, all[rank].c_str());
  }
}

void use_devices_of_one_process() {
  nn::Linear model = line();
  nn::DataParallel parallel(model, std::vector<Device>(2), [] { return line(); });
  const Tensor x = Numbers(5).get(std::vector<std::int64_t>{0, 1, 2, 3, 4}).x;
  const Tensor y = parallel(x);
  mean(y).backward();
  std::printf("%lld rows from two, gradient%s\n", static_cast<long long>(y.size(0)),
              text(model.weight.grad()).c_str());
}

}  // namespace

int main() {
  launch::notebook_launcher(2, [](launch::Job& job) {
    const auto title = [&](const char* words) {
      if (job.is_main()) std::printf("%s\n", words);
    };
    title("divided by all ranks:");
    train_with_uneven_batches(job, true);
    title("divided by those with a batch:");
    train_with_uneven_batches(job, false);
    title("what gradients travel as:");
    send_less(job);
    title("one rank reads 1 to 5:");
    read_on_one_rank(job);
  });
  std::printf("no ranks, two devices:\n");
  use_devices_of_one_process();
  return 0;
}
