// SPDX-License-Identifier: Apache-2.0
// cuDNN has engines for the graphs of attention on an H100: they are planned, but for what only a
// driver can do, for a GPU that is described by numbers. Needs cuDNN and no GPU.
#include <peal/autograd/kernels/cuda/cudnn_attention_graph.h>

#include <memory>
#include <string_view>
#include <vector>

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

using namespace peal;
using namespace peal::cuda;

namespace {

// What cuDNN 9.19 wants to know, as DeviceProperties::serialize() writes it.
constexpr std::string_view h100_properties = R"({
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
  "multiProcessorCount": 132, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "l2CacheSize": 52428800,
  "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0, "supportCoopLaunch": 1,
  "deviceVer": 900, "driverVer": 13000, "totalGlobalMem": 85017755648, "cudaDeviceId": 0,
  "deviceName": "NVIDIA H100 80GB HBM3"})";

std::shared_ptr<cudnn_frontend::DeviceProperties> h100() {
  const auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  auto status = device->deserialize({h100_properties.begin(), h100_properties.end()});
  CAPTURE(status.get_message());
  REQUIRE(status.is_good());
  return device;
}

void check_plans(const AttentionLayout& layout) {
  const auto graph = AttentionGraph(layout, 90)();
  graph->set_device_properties(h100());
  auto status = graph->validate();
  if (status.is_good()) status = graph->build_operation_graph();
  if (status.is_good()) status = graph->create_execution_plans({cudnn_frontend::HeurMode_t::A});
  CAPTURE(status.get_message());
  CHECK(status.is_good());
  CHECK(graph->get_execution_plan_count() > 0);
}

}  // namespace

TEST_CASE("attention: cuDNN has engines for a Hopper, forward and backward") {
  struct Case {
    AttentionGeometry o;
    std::int64_t parts;  // 3: q, k and v side by side
  };
  for (const Case& c : {Case{{8, 1024, 1024, 12, 64, true}, 3},
                        Case{{2, 300, 300, 2, 128, false}, 3}, Case{{1, 70, 37, 1, 40, true}, 1},
                        Case{{1, 37, 70, 2, 8, true}, 1}, Case{{1, 1, 200, 2, 64, false}, 1}}) {
    const AttentionGeometry& o = c.o;
    CAPTURE(o.queries);
    CAPTURE(o.width);
    const std::int64_t row = o.heads * o.width, of_input = c.parts * row;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      check_plans({o, dtype, of_input, of_input, of_input, row});
      check_plans({o, dtype, of_input, of_input, of_input, row, row, of_input, of_input, of_input});
    }
  }
}
