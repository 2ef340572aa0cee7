// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/record/flight_record.h>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

namespace peal::comm {
namespace {

// A JSON string. Bytes that are no ASCII stay as they are.
std::string in_quotes(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      all += concat("\\", c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      all += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      all += c;
    }
  }
  return all + "\"";
}

std::string in_seconds(std::int64_t nanoseconds) {
  return fmt::format("{:.6f}", static_cast<double>(nanoseconds) * 1e-9);
}

void write_whole(const std::string& path, const std::string& text) {
  const std::string aside = concat(path, ".", getpid());
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file(std::fopen(aside.c_str(), "w"));
  PEAL_CHECK(file, "PEAL_FLIGHT: cannot write ", aside, ": ", std::strerror(errno));
  const bool good = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size() &&
                    std::fflush(file.get()) == 0;
  const int why = errno;
  file.reset();
  const bool whole = good && std::rename(aside.c_str(), path.c_str()) == 0;
  const int after = good ? errno : why;
  if (!whole) std::remove(aside.c_str());
  PEAL_CHECK(whole, "PEAL_FLIGHT: cannot write ", path, ": ", std::strerror(after));
}

}  // namespace

std::string json(const FlightRecord& record) {
  std::string all = fmt::format(
      "{{\"peal_flight\":1,\"rank\":{},\"world\":{},\"host\":{},\"why\":{},\"now\":{},\"begun\":{},"
      "\n\"operations\":[",
      record.rank, record.world, in_quotes(record.host), in_quotes(record.why), record.now,
      record.begun);
  std::string_view between = "\n";
  for (const auto& one : record.operations) {
    all += fmt::format(
        "{}{{\"number\":{},\"group\":\"{:x}\",\"sequence\":{},\"signature\":\"{:x}\","
        "\"message\":{},\"state\":{},\"begin\":{},\"end\":{},\"text\":{}}}",
        between, one.number, one.group, one.sequence, one.signature, one.message,
        in_quotes(one.state), one.begin, one.end, in_quotes(one.text));
    between = ",\n";
  }
  return all + "]}\n";
}

std::string text(const FlightRecord& record, std::size_t most) {
  std::string all = fmt::format("rank {} of {} on {}: {} operations begun, {} kept\n", record.rank,
                                record.world, record.host, record.begun, record.operations.size());
  if (!record.why.empty()) all += concat("written because: ", record.why, "\n");
  all += fmt::format("{:>8}  {:>14}  {:>12}  {:<9}  {}\n", "number", "began s ago", "took s",
                     "state", "what");
  const std::size_t size = record.operations.size();
  for (std::size_t i = 0; i < size; ++i) {
    const auto& one = record.operations[i];
    if (i + most < size && one.done()) continue;
    all += fmt::format("{:>8}  {:>14}  {:>12}  {:<9}  {}{}\n", one.number,
                       one.begin == 0 ? "-" : in_seconds(record.now - one.begin),
                       one.begin == 0 || one.end == 0 ? "-" : in_seconds(one.end - one.begin),
                       one.state, one.text,
                       one.group == 0 ? "" : fmt::format(" in group {:x}", one.group));
  }
  return all;
}

void write_flight(const std::string& folder, const FlightRecord& record) {
  std::error_code ignored;  // opening the files says what is wrong
  std::filesystem::create_directories(folder, ignored);
  const std::string path = concat(folder, "/rank-", record.rank, ".flight");
  write_whole(path + ".txt", text(record));
  write_whole(path + ".json", json(record));
}

}  // namespace peal::comm
