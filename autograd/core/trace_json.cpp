// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/trace.h>

#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <map>
#include <thread>

#include <nlohmann/json.hpp>

namespace peal {

std::string Trace::json(std::string_view process) const {
  const auto quoted = [](std::string_view text) {
    using Json = nlohmann::json;
    return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  std::lock_guard lock(mutex_);
  read_marks();
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
                   start.count(), micros, event.cost.flops, event.cost.bytes,
                   start.count() + micros, event.tensor_bytes);
    if (device_.type == DeviceType::cpu) continue;
    // A row of its own, below the host's.
    fmt::format_to(
        std::back_inserter(text),
        ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":0,\"tid\":\"{}\",\"ts\":{:.3f}"
        ",\"dur\":{:.3f}}}",
        quoted(event.name), event.backward ? "backward" : "forward", name_of(device_),
        event.device_start * 1e6, event.device_seconds * 1e6);
  }
  return text + "\n]}\n";
}

}  // namespace peal
