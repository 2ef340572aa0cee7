// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/intra_op.h>
#include <peal/autograd/profile.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <vector>

namespace peal {
namespace {

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds * 1e-9 : 0; }

// ms, GFLOP/s, GB/s; blank where nothing was called.
std::string columns(const Trace::Total& total, double to_ms) {
  if (total.calls == 0) return fmt::format("{:>9} {:>8} {:>7}", "", "", "");
  return fmt::format("{:>9.3f} {:>8.1f} {:>7.1f}", total.seconds * to_ms,
                     rate(total.cost.flops, total.seconds), rate(total.cost.bytes, total.seconds));
}

// An op beside what it could take: both directions, each by its own ceiling, named after the
// longer.
struct Judged {
  Trace::Row row;
  Least could;
  double gap() const { return row.seconds() - could.seconds; }
};

Judged judged(const Trace::Row& row, const Ceilings& ceilings) {
  const auto least = [&](const Trace::Total& total) {
    return least_time(total.cost, static_cast<double>(total.calls), ceilings);
  };
  const Least forward = least(row.forward), backward = least(row.backward);
  return {row,
          {forward.seconds + backward.seconds,
           forward.seconds >= backward.seconds ? forward.by : backward.by}};
}

std::string line(const Judged& op, const std::string& calls, double to_ms) {
  const double seconds = op.row.seconds();
  return fmt::format("{:<22.22} {:>7} |{} |{} |{:>9.3f} {:>9.3f} {:<5} {:>9.3f} {:>5.0f} %\n",
                     op.row.name, calls, columns(op.row.forward, to_ms),
                     columns(op.row.backward, to_ms), seconds * to_ms, op.could.seconds * to_ms,
                     op.could.by, op.gap() * to_ms,
                     seconds > 0 ? 100 * op.could.seconds / seconds : 0);
}

void add_to(Trace::Total& sum, const Trace::Total& part) {
  sum.calls += part.calls;
  sum.seconds += part.seconds;
  sum.cost += part.cost;
}

}  // namespace

std::string profile_table(const Trace& trace, std::int64_t steps, const Ceilings& ceilings) {
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const double to_ms = 1e3 / count;
  const std::string titles = fmt::format("{:>9} {:>8} {:>7}", "ms", "GFLOP/s", "GB/s");
  std::string text = fmt::format(
      "{:<22} {:>7} |{:<26} |{:<26} |{:>9} {:>9} {:<5} {:>9} {:>7}\n"
      "{:<22} {:>7} |{} |{} |{:>9} {:>9} {:<5} {:>9} {:>7}\n",
      "", "", " forward", " backward", "sum", "could", "by", "gap", "", "op", "calls", titles,
      titles, "ms", "ms", "", "ms", "reached");
  std::vector<Judged> ops;
  for (const Trace::Row& row : trace.rows()) ops.push_back(judged(row, ceilings));
  std::stable_sort(ops.begin(), ops.end(),
                   [](const Judged& a, const Judged& b) { return a.gap() > b.gap(); });
  Judged sum{{"sum", {}, {}}, {}};
  for (const Judged& op : ops) {
    // Backward has a call for each one forward; what only ever runs there counts for itself.
    const auto calls = static_cast<double>(std::max(op.row.forward.calls, op.row.backward.calls));
    text += line(op, fmt::format("{:.1f}", calls / count), to_ms);
    add_to(sum.row.forward, op.row.forward);
    add_to(sum.row.backward, op.row.backward);
    sum.could.seconds += op.could.seconds;
  }
  return text + line(sum, "", to_ms);
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
  std::string traffic;
  for (const auto& [operands, bytes] : ceilings.traffic) {
    traffic += fmt::format("{}{:.1f} (of {} KiB)", traffic.empty() ? "" : ", ", bytes * 1e-9,
                           static_cast<std::int64_t>(operands) / 1024);
  }
  return profile_table(trace, steps, ceilings) +
         fmt::format(
             "ceilings of {}, measured: {:.1f} GFLOP/s of matrix products in f32, {:.1f} in bf16; "
             "GB/s of x += a y, by their size: {}\n"
             "memory: tensors at most {:.1f} MiB at once, {:.1f} MiB kept for reuse; resident at "
             "most {:.1f} MiB\n",
             where, ceilings.flops * 1e-9, ceilings.low_flops * 1e-9, traffic, mib(memory.tensors),
             mib(memory.cached), mib(memory.resident));
}

void save_trace(const std::filesystem::path& path, const Trace& trace) {
  const std::string text = trace.json(context().log_tag.empty() ? "peal" : context().log_tag);
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace peal
