// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>

#include <fmt/format.h>

#include <algorithm>

namespace peal {

void Trace::add(std::string_view name, bool backward, double seconds) {
  std::lock_guard lock(mutex_);
  auto found = rows_.find(name);
  if (found == rows_.end()) {
    found = rows_.emplace(std::string(name), Row{std::string(name), {}, {}}).first;
  }
  Total& total = backward ? found->second.backward : found->second.forward;
  ++total.calls;
  total.seconds += seconds;
}

std::vector<Trace::Row> Trace::rows() const {
  std::vector<Row> out;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, row] : rows_) out.push_back(row);
  }
  const auto seconds = [](const Row& row) { return row.forward.seconds + row.backward.seconds; };
  std::stable_sort(out.begin(), out.end(),
                   [&](const Row& a, const Row& b) { return seconds(a) > seconds(b); });
  return out;
}

std::string Trace::table(std::int64_t steps) const {
  const double scale = 1e3 / static_cast<double>(std::max<std::int64_t>(steps, 1));
  std::string text = fmt::format("{:<20} {:>8} {:>12} {:>12} {:>12}\n", "op", "calls", "forward ms",
                                 "backward ms", "sum ms");
  Total forward, backward;
  for (const Row& row : rows()) {
    const double calls = static_cast<double>(row.forward.calls) /
                         static_cast<double>(std::max<std::int64_t>(steps, 1));
    text += fmt::format("{:<20} {:>8.1f} {:>12.3f} {:>12.3f} {:>12.3f}\n", row.name, calls,
                        row.forward.seconds * scale, row.backward.seconds * scale,
                        (row.forward.seconds + row.backward.seconds) * scale);
    forward.seconds += row.forward.seconds;
    backward.seconds += row.backward.seconds;
  }
  text += fmt::format("{:<20} {:>8} {:>12.3f} {:>12.3f} {:>12.3f}\n", "sum", "",
                      forward.seconds * scale, backward.seconds * scale,
                      (forward.seconds + backward.seconds) * scale);
  return text;
}

void Trace::clear() {
  std::lock_guard lock(mutex_);
  rows_.clear();
}

}  // namespace peal
