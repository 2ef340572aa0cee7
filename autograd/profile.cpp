// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/profile.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace peal {
namespace {

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds * 1e-9 : 0; }

// ms, GFLOP/s, GB/s; blank where nothing was called.
std::string columns(const Trace::Total& total, double to_ms) {
  if (total.calls == 0) return fmt::format("{:>9} {:>8} {:>7}", "", "", "");
  return fmt::format("{:>9.3f} {:>8.1f} {:>7.1f}", total.seconds * to_ms,
                     rate(total.cost.flops, total.seconds), rate(total.cost.bytes, total.seconds));
}

std::string line(const std::string& name, const std::string& calls, const Trace::Row& row,
                 double to_ms, const Ceilings& ceilings) {
  OpCost cost = row.forward.cost;
  cost += row.backward.cost;
  return fmt::format("{:<22.22} {:>7} |{} |{} |{:>9.3f} {:>5.0f} %\n", name, calls,
                     columns(row.forward, to_ms), columns(row.backward, to_ms),
                     row.seconds() * to_ms, 100 * share_of_ceiling(cost, row.seconds(), ceilings));
}

void add_to(Trace::Total& sum, const Trace::Total& part) {
  sum.calls += part.calls;
  sum.seconds += part.seconds;
  sum.cost += part.cost;
}

}  // namespace

double share_of_ceiling(const OpCost& cost, double seconds, const Ceilings& ceilings) {
  if (seconds <= 0 || ceilings.flops <= 0 || ceilings.bytes <= 0) return 0;
  return std::max(cost.flops / ceilings.flops, cost.bytes / ceilings.bytes) / seconds;
}

std::string profile_table(const Trace& trace, std::int64_t steps, const Ceilings& ceilings) {
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const double to_ms = 1e3 / count;
  const std::string titles = fmt::format("{:>9} {:>8} {:>7}", "ms", "GFLOP/s", "GB/s");
  std::string text = fmt::format(
      "{:<22} {:>7} |{:<26} |{:<26} |{:>9} {:>7}\n{:<22} {:>7} |{} |{} |{:>9} {:>7}\n", "", "",
      " forward", " backward", "sum", "of", "op", "calls", titles, titles, "ms", "ceiling");
  Trace::Row sum;
  for (const Trace::Row& row : trace.rows()) {
    // Backward has a call for each one forward; what only ever runs there counts for itself.
    const auto calls = static_cast<double>(std::max(row.forward.calls, row.backward.calls));
    text += line(row.name, fmt::format("{:.1f}", calls / count), row, to_ms, ceilings);
    add_to(sum.forward, row.forward);
    add_to(sum.backward, row.backward);
  }
  return text + line("sum", "", sum, to_ms, ceilings);
}

MemoryMarks memory_marks(Device device) {
  const AllocatorStatistics statistics = memory_space(device).statistics(device);
  MemoryMarks marks{statistics.peak, statistics.cached, 0};
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    std::size_t kilobytes = 0;
    status >> kilobytes;
    marks.resident = kilobytes * 1024;
  }
  return marks;
}

std::string profile_report(const Trace& trace, std::int64_t steps) {
  const Device device = trace.device();
  const MemoryMarks memory = memory_marks(device);
  const Ceilings ceilings = measure_ceilings(device);
  const std::string where =
      device.type == DeviceType::cpu ? concat(num_threads(), " thread(s)") : describe(device).name;
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return profile_table(trace, steps, ceilings) +
         fmt::format(
             "ceilings of {}, measured: {:.1f} GFLOP/s (f32 matrix product), {:.1f} GB/s "
             "(x += a y out of memory)\n"
             "memory: tensors at most {:.1f} MiB at once, {:.1f} MiB kept for reuse; resident at "
             "most {:.1f} MiB\n",
             where, ceilings.flops * 1e-9, ceilings.bytes * 1e-9, mib(memory.tensors),
             mib(memory.cached), mib(memory.resident));
}

void save_trace(const std::filesystem::path& path, const Trace& trace) {
  const std::string text = trace.json(context().log_tag.empty() ? "peal" : context().log_tag);
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace peal
