// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/ops/ops.h>
#include <peal/data/loader.h>
#include <peal/data/tensor_dataset.h>
#include <peal/launch/tools/test/checks.h>
#include <peal/nn/layers/linear.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/ddp.h>
#include <peal/nn/parallel/sharded/fsdp.h>
#include <peal/nn/parallel/sharded/sharded_ddp.h>
#include <peal/nn/parallel/sharded/zero_redundancy_optimizer.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace peal::launch {
namespace {

constexpr std::int64_t features = 4, batch = 8, batches = 6;
constexpr int epochs = 3;
constexpr nn::SGDOptions settings{.lr = 0.05, .momentum = 0.9};

// Points near a plane. So many that batches of all ranks come out even.
data::DatasetRef points(int world) {
  manual_seed(42);
  const Tensor x = randn({batches * batch * world, features});
  const Tensor noise = 0.1 * randn({x.size(0), 1});
  const Tensor y = sum(x, {1}, true) * 0.5 + 1.0 + noise;
  return std::make_shared<data::TensorDataset>(x.detach(), y.detach());
}

nn::Linear model_at_start(Device device) {
  manual_seed(7);
  nn::Linear net(features, 1);
  net.to(device);
  return net;
}

template <class Model>
void train(Model& model, nn::Optimizer& optimizer, data::DataLoader& loader) {
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const auto& [x, y] : loader) {
      optimizer.zero_grad();
      mse_loss(model(x), y).backward();
      optimizer.step();
    }
  }
}

data::DataLoader loader_of(const data::DatasetRef& set, std::int64_t batch_size, Place place,
                           Device device) {
  return data::DataLoader(
      set,
      {.batch_size = batch_size, .shuffle = true, .shard = place, .seed = 1, .device = device});
}

// The whole model's state after it, on all ranks.
NamedTensors train_by(const std::string& strategy, nn::Linear& net, const comm::ProcessGroup& group,
                      data::DataLoader& loader) {
  const nn::Parameters all = net.named_parameters();
  if (strategy == "fsdp") {
    nn::FullyShardedDataParallel model(net, group);
    nn::SGD optimizer(model.local_parameters(), settings);
    train(model, optimizer, loader);
    const auto gathered = model.summon_full_parameters();
    NamedTensors state;
    for (const auto& [name, tensor] : net.state_dict()) state.emplace_back(name, tensor.clone());
    return state;
  }
  if (strategy == "ddp") {
    nn::DistributedDataParallel model(net, group);
    nn::SGD optimizer(all, settings);
    train(model, optimizer, loader);
    return net.state_dict();
  }
  nn::ZeroRedundancyOptimizer<nn::SGD> optimizer(group, all, settings);
  if (strategy == "zero1") {
    nn::DistributedDataParallel model(net, group);
    train(model, optimizer, loader);
  } else {
    nn::ShardedDDP model(net, optimizer);
    train(model, optimizer, loader);
  }
  return net.state_dict();
}

std::vector<float> values_of(const NamedTensors& state) {
  std::vector<float> all;
  for (const auto& [name, tensor] : state) {
    const auto values = tensor.to(Device{}).to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

std::string check_training(Job& job, const std::string& strategy, Device device) {
  const data::DatasetRef set = points(job.world());
  nn::Linear alone = model_at_start(device);
  {
    nn::SGD optimizer(alone.named_parameters(), settings);
    data::DataLoader loader = loader_of(set, batch * job.world(), Place{}, device);
    train(alone, optimizer, loader);
  }
  nn::Linear together = model_at_start(device);
  data::DataLoader loader = loader_of(set, batch, job.place(), device);
  const std::vector<float> want = values_of(alone.state_dict()),
                           got = values_of(train_by(strategy, together, job.group(), loader));
  PEAL_CHECK(want.size() == got.size(), strategy, ": expected ", want.size(), " values, got ",
             got.size());
  float most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(want[i] - got[i]));
    PEAL_CHECK(std::abs(want[i] - got[i]) <= 1e-6F, strategy, ": parameter ", i, " on rank ",
               job.rank(), " is ", got[i], " after ", epochs, " epochs, expected ", want[i],
               " as of one process");
  }
  const std::string bytes(reinterpret_cast<const char*>(got.data()), got.size() * sizeof(float));
  for (const std::string& theirs : job.group().all_gather_object(bytes)) {
    PEAL_CHECK(theirs == bytes, strategy, ": ranks end with different parameters");
  }
  return fmt::format("{} x batch {} is one of {}, to {:.0e}", job.world(), batch,
                     batch * job.world(), most);
}

}  // namespace peal::launch
