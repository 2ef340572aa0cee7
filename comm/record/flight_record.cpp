// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/record/flight_record.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace peal::comm {
namespace {

// Bytes of the letter of UTF-8 that the text begins with; 0 where it begins with none.
std::size_t letter_of(std::string_view text) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto follow = [&](std::size_t bytes) {
    for (std::size_t i = 1; i < bytes; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return std::size_t{0};
    }
    return bytes;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follow(2);
  // Neither longer than need be, nor half of a pair of UTF-16, nor past the last letter.
  const bool wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) ||
                     (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f);
  if (wrong || first < 0xe0 || first > 0xf4) return 0;
  return follow(first < 0xf0 ? 3 : 4);
}

// A JSON string. What is no UTF-8 becomes the replacement character.
std::string in_quotes(std::string_view text) {
  std::string all = "\"";
  while (!text.empty()) {
    const std::size_t bytes = letter_of(text);
    const char c = text.front();
    if (bytes == 0) {
      all += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      all += concat("\\", c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      all += fmt::format("\\u{:04x}", static_cast<int>(c));
    } else {
      all += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return all + "\"";
}

std::string in_seconds(std::int64_t nanoseconds) {
  return fmt::format("{:.6f}", static_cast<double>(nanoseconds) * 1e-9);
}

void write_whole(const std::string& path, const std::string& text) {
  try {
    AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit(AtomicFile::Flush::no);  // a launcher ends the job soon after the first failure
  } catch (const Error& error) {
    fail(concat("PEAL_FLIGHT: ", error.what()));
  }
}

}  // namespace

std::string json(const FlightRecord& record) {
  std::string all = fmt::format(
      "{{\"peal_flight\":2,\"run\":\"{:x}\",\"rank\":{},\"world\":{},\"host\":{},\"why\":{},"
      "\"over\":{},\"now\":{},\"written\":{},\"begun\":{},\n\"operations\":[",
      record.run, record.rank, record.world, in_quotes(record.host), in_quotes(record.why),
      record.over, record.now, record.written, record.begun);
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
  const std::string path =
      fmt::format("{}/{:016x}.rank-{}.flight", folder, record.run, record.rank);
  write_whole(path + ".txt", text(record));
  write_whole(path + ".json", json(record));
}

}  // namespace peal::comm
