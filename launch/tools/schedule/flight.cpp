// SPDX-License-Identifier: Apache-2.0
// What PEAL_FLIGHT left, read back and laid side by side.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/record/flight_record.h>
#include <peal/launch/tools/schedule/commands.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace peal::launch {
namespace {

using comm::FlightRecord;

std::uint64_t from_hex(const std::string& text) {
  std::size_t read = 0;
  const std::uint64_t value = std::stoull(text, &read, 16);
  PEAL_CHECK(read == text.size(), "expected a number in hex, got '", text, "'");
  return value;
}

FlightRecord read_one(const std::string& path) {
  std::ifstream file(path);
  PEAL_CHECK(file.good(), "cannot read ", path);
  try {
    const auto json = nlohmann::json::parse(file);
    PEAL_CHECK(json.at("peal_flight") == 2, "it is of version ", json.at("peal_flight").dump());
    FlightRecord record{.run = from_hex(json.at("run")),
                        .rank = json.at("rank"),
                        .world = json.at("world"),
                        .host = json.at("host"),
                        .why = json.at("why"),
                        .over = json.at("over"),
                        .now = json.at("now"),
                        .written = json.at("written"),
                        .begun = json.at("begun")};
    for (const auto& one : json.at("operations")) {
      record.operations.push_back({.number = one.at("number"),
                                   .group = from_hex(one.at("group")),
                                   .sequence = one.at("sequence"),
                                   .signature = from_hex(one.at("signature")),
                                   .message = one.at("message"),
                                   .state = one.at("state"),
                                   .begin = one.at("begin"),
                                   .end = one.at("end"),
                                   .text = one.at("text")});
    }
    return record;
  } catch (const std::exception& error) {
    fail(concat(path, ": not what PEAL_FLIGHT leaves: ", error.what()));
  }
}

// Those of earlier runs are no part of what happened in it.
void leave_newest_run(std::vector<FlightRecord>& records) {
  std::set<std::uint64_t> earlier;
  for (const FlightRecord& record : records) earlier.insert(record.run);
  const std::uint64_t newest = *earlier.rbegin();
  earlier.erase(newest);
  const auto left_out = std::erase_if(records, [&](const auto& r) { return r.run != newest; });
  if (left_out == 0) return;
  fmt::print("run {:016x}; left out: {} of {}\n", newest,
             left_out == 1 ? "1 file" : concat(left_out, " files"),
             earlier.size() == 1 ? "an earlier run" : concat(earlier.size(), " earlier runs"));
}

// How far apart the moments lie at which ranks were asked, where those went on.
void print_moments(const std::vector<FlightRecord>& records) {
  std::vector<std::int64_t> moments;
  for (const FlightRecord& record : records) {
    if (!record.over) moments.push_back(record.written);
  }
  if (moments.empty()) return;
  const auto [first, last] = std::ranges::minmax(moments);
  if (first == last) return;
  fmt::print(
      "ranks that went on were asked within {:.3f} s; what one had not done yet counts only "
      "where another had before\n",
      static_cast<double>(last - first) * 1e-9);
}

}  // namespace

int flight(const FlightOptions& options) {
  std::vector<FlightRecord> records;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder, unreadable)) {
    const std::string path = entry.path();
    if (path.ends_with(".flight.json")) records.push_back(read_one(path));
  }
  PEAL_CHECK(!records.empty(), "no file RUN.rank-R.flight.json in ", options.folder,
             "; start the ranks with PEAL_FLIGHT=", options.folder);
  leave_newest_run(records);
  std::ranges::sort(records, {}, &FlightRecord::rank);
  const int world = records[0].world;
  std::string missing;
  for (int rank = 0; rank < world; ++rank) {
    const bool here = std::ranges::any_of(records, [&](const auto& r) { return r.rank == rank; });
    if (!here) missing += concat(missing.empty() ? "" : ", ", rank);
  }
  fmt::print("{} of {} ranks{}\n", records.size(), world,
             missing.empty() ? "" : concat("; without a file: ", missing));
  std::vector<std::string> said;
  for (const FlightRecord& record : records) {
    if (std::ranges::count(said, record.why) > 0) continue;
    said.push_back(record.why);
    fmt::print("written because: {}\n", record.why);
  }
  print_moments(records);
  const comm::MergedFlight all = comm::merged(records, options.around);
  fmt::print("{}", all.table);
  return all.differences.empty() ? 0 : 1;
}

}  // namespace peal::launch
