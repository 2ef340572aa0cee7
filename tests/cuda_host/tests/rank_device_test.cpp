// SPDX-License-Identifier: Apache-2.0
// What only CUDA on the host can show of the device layer: on which devices there are contexts, and
// whom an error is told of.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/cuda/device.h>
#include <peal/autograd/core/cuda/launch.h>
#include <peal/autograd/core/graph.h>
#include <peal/autograd/core/tensor.h>
#include <peal/autograd/ops/ops.h>

#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "device.h"

using namespace peal;

TEST_CASE("page-locked memory makes no context on a device that the rank does not use") {
  cuda::use({DeviceType::cuda, 1});
  cuda_host::forget_contexts();
  std::thread([] { Tensor::pinned({std::int64_t{3} << 20}); }).join();
  CHECK(cuda_host::contexts() == 0b10);
  std::thread([] {
    context().device = {DeviceType::cuda, 0};
    Tensor::pinned({std::int64_t{5} << 20});
  }).join();
  CHECK(cuda_host::contexts() == 0b11);
}

TEST_CASE("an error of earlier work is not blamed on the kernel that is told of it") {
  const std::string error =
      testing::error_of([] { cuda::launch_failed(cudaErrorIllegalAddress, nullptr, 1, 32); });
  CHECK(error.find("could not start") != std::string::npos);
  CHECK(error.find("or one of work before it") != std::string::npos);
}

TEST_CASE("a copy to another device reads its source before that is given out again") {
  constexpr std::int64_t n = std::int64_t{1} << 20;
  const Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};
  const auto filled = [](float value) {
    const Tensor out = Tensor::empty({n}, DType::f32, Device{});
    std::fill_n(out.data<float>(), n, value);
    return out;
  };
  const Tensor to = Tensor::empty({n}, DType::f32, second), host = filled(0);
  const void* where = nullptr;
  {
    const Tensor from = Tensor::empty({n}, DType::f32, first);
    where = from.raw();
    from.copy_(filled(1));
    to.copy_(from, true);
  }
  const Tensor other = Tensor::empty({n}, DType::f32, first);
  REQUIRE(other.raw() == where);
  other.copy_(filled(2));
  host.copy_(to);
  CHECK(host.data<float>()[0] == 1);
  CHECK(host.data<float>()[n - 1] == 1);
}

TEST_CASE("a copy to another device is no part of a graph of one device, and says so") {
  const Device first{DeviceType::cuda, 0}, second{DeviceType::cuda, 1};
  const Tensor from = full({4}, 1.0, DType::f32, first),
               to = Tensor::empty({4}, DType::f32, second);
  Graph graph(first, 1);
  graph.run([&] { sum(from); });
  const std::string error = testing::error_of([&] { graph.run([&] { to.copy_(from, true); }); });
  CHECK(error.find("a graph, which is of one device") != std::string::npos);
  to.copy_(from, true);
  CHECK(to.to_vector<float>() == std::vector<float>(4, 1.0f));
}
