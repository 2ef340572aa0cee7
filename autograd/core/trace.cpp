// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/trace.h>

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

namespace peal {

void Trace::add(Event event, bool outermost) {
  std::lock_guard lock(mutex_);
  if (outermost) {
    auto found = rows_.find(event.name);
    if (found == rows_.end()) {
      found = rows_.emplace(std::string(event.name), Row{std::string(event.name), {}, {}}).first;
    }
    Total& total = event.backward ? found->second.backward : found->second.forward;
    ++total.calls;
    total.seconds += event.seconds;
    total.work += event.work;
  }
  if (most_events_ == 0) return;
  if (events_.size() == most_events_) {
    ++dropped_;
    return;
  }
  event.name = *names_.emplace(event.name).first;
  events_.push_back(event);
}

std::vector<Trace::Row> Trace::rows() const {
  std::vector<Row> out;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, row] : rows_) out.push_back(row);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Row& a, const Row& b) { return a.seconds() > b.seconds(); });
  return out;
}

std::string Trace::json(std::string_view process) const {
  const auto quoted = [](std::string_view text) {
    using Json = nlohmann::json;
    return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  std::lock_guard lock(mutex_);
  std::map<std::thread::id, std::size_t> threads;
  std::string text = fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"spans left out\":{}}},\"traceEvents\":[\n"
      "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{{\"name\":{}}}}}",
      dropped_, quoted(process));
  for (const Event& event : events_) {
    const std::size_t thread = threads.emplace(event.thread, threads.size()).first->second;
    const std::chrono::duration<double, std::micro> start = event.start - start_;
    const double micros = event.seconds * 1e6;
    fmt::format_to(std::back_inserter(text),
                   ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":{},\"ts\":{:.3f}"
                   ",\"dur\":{:.3f},\"args\":{{\"flops\":{},\"bytes\":{}}}}}"
                   ",\n{{\"name\":\"tensors\",\"ph\":\"C\",\"pid\":0,\"ts\":{:.3f},\"args\":"
                   "{{\"bytes\":{}}}}}",
                   quoted(event.name), event.backward ? "backward" : "forward", thread,
                   start.count(), micros, event.work.flops, event.work.bytes,
                   start.count() + micros, event.tensor_bytes);
  }
  return text + "\n]}\n";
}

void TraceSpan::begin() {
  outer_ = std::exchange(innermost_, this);
  start_ = Trace::Clock::now();
}

void TraceSpan::end() {
  const std::chrono::duration<double> spent = Trace::Clock::now() - start_;
  innermost_ = outer_;
  if (outer_ != nullptr) outer_->work_ += work_;
  trace_->add({name_, backward_, std::this_thread::get_id(), start_, spent.count(), work_,
               trace_->most_events_ > 0 ? cpu_allocator_statistics().in_use : 0},
              outer_ == nullptr);
}

}  // namespace peal
