// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/trace.h>

#include <algorithm>

namespace peal {

constexpr std::size_t most_unread = 4096;  // events of a device that are held at once

Trace::Trace(std::size_t most_events, Device device) : most_events_(most_events), device_(device) {
  if (device_.type != DeviceType::cpu) {
    synchronize(device_);
    origin_.record(current_stream(device_));
    origin_.synchronize();
  }
  start_ = Clock::now();
}

void Trace::add(Event event, bool outermost, std::unique_ptr<Marks> marks) {
  std::lock_guard lock(mutex_);
  if (!marks) return count(event, outermost);
  event.name = *names_.emplace(event.name).first;
  unread_.push_back({event, outermost, std::move(marks)});
  if (unread_.size() < most_unread) return;
  try {
    read_marks();
  } catch (const Error&) {  // a destructor's; the device is lost, and who waits for it is told
    unread_.clear();
  }
}

void Trace::read_marks() const {
  for (Unread& unread : unread_) {
    unread.marks->end.synchronize();
    Event& event = unread.event;
    event.device_start = unread.marks->begin.seconds_since(origin_);
    event.device_seconds = unread.marks->end.seconds_since(unread.marks->begin);
    count(event, unread.outermost);
  }
  unread_.clear();
}

void Trace::count(Event event, bool outermost) const {
  if (outermost) {
    auto found = rows_.find(event.name);
    if (found == rows_.end()) {
      found = rows_.emplace(std::string(event.name), Row{std::string(event.name), {}, {}}).first;
    }
    Total& total = event.backward ? found->second.backward : found->second.forward;
    ++total.calls;
    total.seconds += device_.type == DeviceType::cpu ? event.seconds : event.device_seconds;
    total.cost += event.cost;
  }
  if (most_events_ == 0) return;
  if (events_.size() == most_events_) {
    ++dropped_;
    return;
  }
  event.name = *names_.emplace(event.name).first;
  event.outermost = outermost;
  events_.push_back(event);
}

std::vector<Trace::Span> Trace::spans(std::thread::id thread) const {
  std::lock_guard lock(mutex_);
  read_marks();
  std::vector<Span> all;
  for (const Event& event : events_) {
    if (event.thread != thread) continue;
    all.push_back({event.name, event.backward, event.outermost, event.start, event.seconds});
  }
  return all;
}

std::vector<Trace::Row> Trace::rows() const {
  std::vector<Row> out;
  {
    std::lock_guard lock(mutex_);
    read_marks();
    for (const auto& [name, row] : rows_) out.push_back(row);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Row& a, const Row& b) { return a.seconds() > b.seconds(); });
  return out;
}

void TraceSpan::begin() {
  if (trace_->device_.type != DeviceType::cpu) {
    const Stream stream = current_stream(trace_->device_);
    marks_ = std::make_unique<Trace::Marks>();
    marks_->begin.record(stream);
    stream_space(stream.device()).push_range(std::string(name()).c_str());
  }
  outer_ = std::exchange(innermost_, this);
  start_ = Trace::Clock::now();
}

void TraceSpan::end() {
  const std::chrono::duration<double> spent = Trace::Clock::now() - start_;
  innermost_ = outer_;
  if (marks_) {
    stream_space(trace_->device_).pop_range();
    try {  // this is a destructor's, maybe on the way of the device's own error
      marks_->end.record(current_stream(trace_->device_));
    } catch (const Error&) {
      return;
    }
  }
  if (outer_ != nullptr) outer_->cost_ += cost_;
  trace_->add(
      {name(), backward_, std::this_thread::get_id(), start_, spent.count(), cost_,
       trace_->most_events_ > 0 ? memory_space(trace_->device_).statistics(trace_->device_).in_use
                                : 0},
      outer_ == nullptr, std::move(marks_));
}

}  // namespace peal
