// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/devices.h>

#include <doctest/doctest.h>

#include <peal/tests/errors.h>

using namespace peal;
using namespace peal::launch;

namespace {

std::string error_of(const std::string& text, const Rank& rank, int devices) {
  return testing::error_of([&] { choose_device(text, rank, devices); });
}

}  // namespace

TEST_CASE("a rank takes the device of its local number") {
  const Rank third{.rank = 7, .world = 8, .local_rank = 3, .local_world = 4};
  CHECK(choose_device("cpu", third, 0) == Device{});
  CHECK(choose_device("cuda", third, 8) == Device{DeviceType::cuda, 3});
  CHECK(choose_device("cuda", third, 2) == Device{DeviceType::cuda, 1});
  CHECK(choose_device("cuda", third, 1) == Device{DeviceType::cuda, 0});
  CHECK(choose_device("cuda:1", third, 2) == Device{DeviceType::cuda, 1});
  CHECK(error_of("cuda:2", third, 2) ==
        "[launch] rank 7: device cuda:2 asked for, expected one of cuda:0 to cuda:1");
  CHECK(error_of("cuda", third, 0).find("no CUDA device is here") != std::string::npos);
  CHECK(error_of("gpu", third, 1) == "device: expected cpu, cuda or cuda:N, got 'gpu'");
}

TEST_CASE("ranks that share a device are named") {
  CHECK(sharing_warning({"", ""}).empty());
  CHECK(sharing_warning({"GPU-a", "GPU-b"}).empty());
  CHECK(sharing_warning({"GPU-b", "GPU-a", "GPU-b", "GPU-c", "GPU-c"}) ==
        "[launch] ranks 0, 2 share GPU-b; ranks 3, 4 share GPU-c: they take turns on it, and NCCL "
        "refuses that; start a rank for each device");
  CHECK(device_report({DeviceType::cuda, 1}, {"NVIDIA H200", "GPU-x", 141000000000, 132},
                      {.rank = 5}) == "rank 5 trains on cuda:1, NVIDIA H200 (GPU-x), 141 GB");
}
