// SPDX-License-Identifier: Apache-2.0
// all_reduce_bandwidth: how fast the ranks of one node add up a tensor, beside how fast one rank
// copies one of that size, alternating in the same run.
//
//   PEAL_CUDA_TRANSPORT=cuda_ipc mpirun -n 2 bench/all_reduce_bandwidth --device cuda
//
// Bytes a second are the tensor's bytes over the median time, of the slowest rank. The tensor lies
// in memory for collectives, as DDP's buckets do.
#include <peal/autograd/core/context.h>
#include <peal/autograd/core/stream.h>
#include <peal/launch/command_line.h>
#include <peal/launch/job.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace {

using namespace peal;

// Seconds until the device is done, too.
double seconds_of(Device device, const std::function<void()>& f) {
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  f();
  synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// The slowest rank's median.
double slowest(const comm::ProcessGroup& group, const std::vector<double>& times) {
  const Tensor time = Tensor::scalar(median(times), Device{});
  group.all_reduce(time, comm::ReduceOp::max).wait();
  return time.item<double>();
}

}  // namespace

int main(int argc, char** argv) {
  launch::CommandLine line("All-reduce beside a copy of the same size");
  std::string device = "cpu";
  std::int64_t most = std::int64_t{64} << 20;
  int reps = 11;
  line.option("--device", &device, "cpu, cuda or cuda:N");
  line.option("--bytes", &most, "of the largest tensor");
  line.option("--reps", &reps, "calls of each size").positive();
  if (const auto status = line.parse(argc, argv)) return *status;
  return launch::run_main([&](launch::Job& job) {
    const Device here = job.device(device);
    const comm::ProcessGroup& group = job.group();
    if (job.is_main()) {
      fmt::print("all_reduce of f32, {} rank(s), over {}\n", group.world(), group.transport(here));
      fmt::print("{:>12} {:>14} {:>12} {:>12} {:>9}\n", "bytes", "all_reduce us", "GB/s",
                 "copy GB/s", "fraction");
    }
    for (std::int64_t bytes = 1024; bytes <= most; bytes *= 4) {
      const Tensor data = group.allocate({bytes / 4}, DType::f32, here);
      const Tensor from = Tensor::zeros({bytes / 4}, DType::f32, here);
      const Tensor to = Tensor::zeros({bytes / 4}, DType::f32, here);
      std::vector<double> reduces, copies;
      for (int k = 0; k < reps + 2; ++k) {
        group.barrier().wait();
        const double reduced = seconds_of(here, [&] { group.all_reduce(data).wait(); });
        // One rank alone, so that ranks that share a device do not share its bandwidth.
        double copied = 0;
        for (int r = 0; r < group.world(); ++r) {
          group.barrier().wait();
          if (r == group.rank()) copied = seconds_of(here, [&] { to.copy_(from); });
        }
        if (k < 2) continue;  // they warm up
        reduces.push_back(reduced);
        copies.push_back(copied);
      }
      const double reduce = slowest(group, reduces), copy = slowest(group, copies);
      if (!job.is_main()) continue;
      const auto size = static_cast<double>(bytes);
      fmt::print("{:>12} {:>14.1f} {:>12.2f} {:>12.2f} {:>9.3f}\n", bytes, reduce * 1e6,
                 size / reduce / 1e9, size / copy / 1e9, copy / reduce);
    }
  });
}
