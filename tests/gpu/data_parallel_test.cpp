// SPDX-License-Identifier: Apache-2.0
// One process on several devices, or on one several times: chunks, gradients that are summed, and
// whose buffers live on. On a GPU and on the host.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/layers/layers.h>
#include <peal/nn/models/mlp.h>
#include <peal/nn/optim/sgd.h>
#include <peal/nn/parallel/data_parallel.h>

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace peal;

namespace {

std::vector<Device> devices(int count) {
  std::vector<Device> all;
  for (int i = 0; i < count; ++i) {
    all.push_back({DeviceType::cuda, i % device_count(DeviceType::cuda)});
  }
  return all;
}

template <class M>
nn::DataParallel over(int count, const M& model) {
  return nn::DataParallel(model, devices(count), [] { return M(); });
}

Tensor one_to(std::int64_t n, Device device) {
  return cast(arange(n, DType::i64), DType::f32).to(device) + 1.0;
}

struct Slope : nn::Module {  // y = w x
  Tensor w = add_parameter("w", full({1}, 1, DType::f32, Device{}));
  Tensor forward(const Tensor& x) override { return x * w; }
};

struct Count : nn::Module {  // how many samples came, as a scalar; and how many ever, in a buffer
  Tensor w = add_parameter("w", full({1}, 1, DType::f32, Device{}));
  Tensor ever = add_buffer("ever", Tensor::zeros({}, DType::f32, Device{}));
  Tensor forward(const Tensor& x) override {
    const Tensor y = sum(x * 0.0 + w);
    add_(ever, y.detach());
    return y;
  }
};

}  // namespace

TEST_CASE("gradients are summed over devices, and scalars become a vector") {
  const Device first{DeviceType::cuda, 0};
  for (const int count : {1, 2, 4}) {
    CAPTURE(count);
    Slope net;
    net.to(first);
    nn::DataParallel parallel = over(count, net);
    for (int step = 0; step < 2; ++step) {
      net.zero_grad();
      const Tensor y = parallel(one_to(5, first));
      CHECK(y.device() == first);
      CHECK(y.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5});
      mean(y).backward();
      CHECK(net.w.grad().to_vector<float>() == std::vector<float>{3});
    }
  }
  Count net;
  net.to(first);
  nn::DataParallel parallel = over(4, net);
  CHECK(parallel(one_to(10, first)).to_vector<float>() == std::vector<float>{3, 3, 3, 1});
  CHECK(parallel(one_to(5, first)).to_vector<float>() == std::vector<float>{2, 2, 1});
  CHECK(net.ever.item<float>() == 3 + 2);  // what the other replicas count is lost
}

TEST_CASE("it trains over devices as the module does on the CPU") {
  const auto train = [](int count) {  // 0: on the CPU
    manual_seed(3);
    const Device device = count == 0 ? Device{} : Device{DeviceType::cuda, 0};
    nn::Sequential net = nn::mlp({3, 4, 2});
    // Short dyadic numbers, whose sums are exact in any order.
    for (const Tensor& p : net.parameters()) {
      for (std::int64_t i = 0; i < p.numel(); ++i) {
        p.data<float>()[i] = static_cast<float>(i * 5 % 7 - 3);
      }
    }
    net.to(device);
    nn::Module model = net;
    if (count > 0) {
      model = nn::DataParallel(net, devices(count), [] { return nn::mlp({3, 4, 2}); });
    }
    nn::SGD optimizer(net.parameters(), {.lr = 0.0625});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const Tensor x = one_to(21, Device{}).detach({7, 3}).to(device) - 10.0 - step;
      sum(model(x)).backward();
      optimizer.step();
    }
    std::vector<float> all;
    for (const Tensor& p : net.parameters()) {
      const auto values = p.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const auto expected = train(0);
  for (const int count : {1, 2, 3}) CHECK(train(count) == expected);
}
