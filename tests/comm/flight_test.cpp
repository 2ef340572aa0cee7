// SPDX-License-Identifier: Apache-2.0
// The flight recorder: its rows, while they are written and after a rank is gone; what it leaves
// where a group fails; and where merged records begin to differ.
#include <peal/comm/control/board.h>
#include <peal/comm/record/flight_record.h>
#include <peal/comm/start/threads.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include <nlohmann/json.hpp>
#include "failing_run.h"

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::content_of;
using peal::testing::error_of;
using peal::testing::failure;
using peal::testing::Folder;
using peal::testing::wait_until;

namespace {

class Alone : public Rendezvous {
 public:
  int rank() const override { return 0; }
  int world() const override { return 1; }
  std::vector<std::string> exchange(const std::string& mine) override { return {mine}; }
};

// A record of calls that are all alike but for their words, each done but the last `open`.
FlightRecord record(int rank, int world, const std::vector<std::string>& calls, int open = 0) {
  FlightRecord made{.rank = rank, .world = world, .begun = calls.size()};
  std::uint64_t history = 1;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    history = history * 31 + std::hash<std::string>()(calls[i]);
    const bool done = i + static_cast<std::size_t>(open) < calls.size();
    made.operations.push_back({.number = i,
                               .sequence = i,
                               .signature = history,
                               .state = done ? "done" : "under way",
                               .text = concat(calls[i], " #", i)});
  }
  return made;
}

}  // namespace

TEST_CASE("rows are kept until later ones need their place, and end once") {
  const auto board = Board::in_memory(2);
  FlightRecorder& flight = board->flight(1);
  CHECK(flight.read().empty());
  const std::uint64_t first = flight.begin(7, 3, {.signature = 5, .call = {6, 8}}, "bucket 3: a");
  const std::uint64_t second = flight.begin(7, 4, {}, std::string(100, 'x'));
  flight.over(0, 9, {.signature = 1, .call = {}});
  auto rows = flight.read();
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].number == first);
  CHECK(rows[0].group == 7);
  CHECK(rows[0].sequence == 3);
  CHECK(rows[0].what.signature == 5);
  CHECK(rows[0].what.call[1] == 8);
  CHECK(rows[0].label == "bucket 3: a");
  CHECK(rows[0].state == FlightState::under_way);
  CHECK(rows[0].begin > 0);
  CHECK(rows[0].end == 0);
  CHECK(rows[1].label == std::string(56, 'x'));
  CHECK(rows[2].label.empty());
  CHECK(rows[2].state == FlightState::done);
  flight.end(first, FlightState::done);
  flight.end(second, FlightState::failed);
  rows = flight.read();
  CHECK(rows[0].state == FlightState::done);
  CHECK(rows[0].end >= rows[0].begin);
  CHECK(rows[1].state == FlightState::failed);
  for (std::uint64_t i = 0; i < FlightRecorder::kept; ++i) flight.over(0, i, {});
  flight.end(first, FlightState::failed);  // its place is another's
  rows = flight.read();
  CHECK(rows.size() == FlightRecorder::kept);
  CHECK(rows[0].number == 3);
  for (const FlightRow& row : rows) {
    CHECK(row.state == FlightState::done);
    CHECK(row.label.empty());
  }
  CHECK(board->flight(0).read().empty());
}

TEST_CASE("who reads while a rank writes sees whole rows") {
  const auto board = Board::in_memory(1);
  FlightRecorder& flight = board->flight(0);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < 20'000; ++i) {
      const Finished what{.signature = i, .call = {i, i}};
      if (i % 3 == 0) {
        flight.end(flight.begin(i, i, what, concat(i)), FlightState::done);
      } else {
        flight.over(i, i, what);
      }
    }
    over = true;
  });
  while (!over) {
    for (const FlightRow& row : flight.read()) {
      const bool whole = row.group == row.number && row.sequence == row.number &&
                         row.what.signature == row.number && row.what.call[0] == row.number &&
                         row.what.call[1] == row.number;
      if (!whole || (!row.label.empty() && row.label != concat(row.number))) FAIL("a torn row");
    }
  }
  writer.join();
  CHECK(flight.read().back().number == 19'999);
}

TEST_CASE("a node's board keeps rows of its own ranks alone") {
  Alone alone;
  const auto board = Board::shared(alone, 5, {3, 1});
  board->flight(3).begin(0, 41, {}, "");
  board->flight(1).begin(0, 42, {}, "");
  CHECK(board->flight(3).read().at(0).sequence == 41);
  CHECK(board->flight(1).read().at(0).sequence == 42);
  CHECK(board->has_flight(1));
  CHECK_FALSE(board->has_flight(4));
  CHECK(error_of([&] { board->flight(0); }) ==
        "board: rank 0 has its flight recorder on another node");
}

TEST_CASE("the rows of a process that was killed can be read") {
  Alone alone;
  const auto board = Board::shared(alone, 2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    board->flight(1).begin(0, 41, {}, "its last");
    ::kill(getpid(), SIGKILL);
  }
  REQUIRE(waitpid(child, nullptr, 0) == child);
  const auto rows = board->flight(1).read();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].sequence == 41);
  CHECK(rows[0].label == "its last");
}

TEST_CASE("calls, messages and groups within groups are in the table in words") {
  run_ranks(3, [](const ProcessGroup& group) {
    const Tensor few = Tensor::zeros({4}), many = Tensor::zeros({300'000});
    group.all_reduce(few).wait();
    group.all_reduce(many, ReduceOp::max, "bucket 3: fc1.weight").wait();
    if (group.rank() == 0) group.send(few, 2, 9).wait();
    if (group.rank() == 2) group.recv(few, 0, 9).wait();
    const ProcessGroup part = group.new_group({0, 2});
    if (part) part.broadcast(few, 1).wait();
    const std::string table = group.flight();
    CAPTURE(table);
    CHECK(contains(table, concat("rank ", group.rank(), " of 3")));
    CHECK(contains(table, "(sum of 4 f32)"));
    CHECK(contains(table, "(max of 300000 f32; bucket 3: fc1.weight)"));
    CHECK(contains(table, "send to rank 2 (4 f32, tag 9)") == (group.rank() == 0));
    CHECK(contains(table, "recv from rank 0 (4 f32, tag 9)") == (group.rank() == 2));
    CHECK(contains(table, "(4 f32, root 1) in group ") == (group.rank() != 1));
    CHECK(!contains(table, "under way"));
    CHECK(!contains(group.flight(1), "fc1.weight"));
  });
}

TEST_CASE("a group that fails leaves the records of all ranks, and they show where it began") {
  const Folder folder;
  ProcessGroup::Options options;
  options.flight = (folder.path / "records").string();
  options.deadline = std::chrono::seconds(30);
  const std::string error = failure(3, options, [](const ProcessGroup& group) {
    for (int i = 0; i < 5; ++i) group.all_reduce(Tensor::zeros({4})).wait();
    group.all_reduce(Tensor::zeros({group.rank() == 1 ? 5 : 4})).wait();
  });
  CHECK(contains(error, "must make the same calls"));
  std::vector<FlightRecord> records;
  for (int rank = 0; rank < 3; ++rank) {
    const auto path = folder.path / "records" / concat("rank-", rank, ".flight");
    CHECK(contains(content_of(path.string() + ".txt"), concat("rank ", rank, " of 3")));
    const auto json = nlohmann::json::parse(content_of(path.string() + ".json"));
    CHECK(json.at("rank") == rank);
    CHECK(contains(json.at("why"), "must make the same calls"));
    const auto& last = json.at("operations").back();
    CHECK(last.at("state") != "done");
    CHECK(contains(last.at("text"), rank == 1 ? "(sum of 5 f32)" : "(sum of 4 f32)"));
  }
}

TEST_CASE("without a folder nothing is written, and a group that ends well leaves nothing") {
  const Folder folder;
  ProcessGroup::Options options;
  options.flight = (folder.path / "records").string();
  run_ranks(2, options, [](const ProcessGroup& group) { group.barrier().wait(); });
  CHECK(folder.entries() == 0);
}

TEST_CASE("merged records name the first difference, the gravest first") {
  const auto said = [](const std::vector<FlightRecord>& records) {
    const MergedFlight all = merged(records);
    return all.differences.empty() ? "" : all.differences[0].text;
  };
  const std::vector<std::string> alike{"all_reduce", "all_reduce", "barrier"};
  CHECK(said({record(0, 2, alike), record(1, 2, alike)}).empty());
  const std::vector<std::string> other{"all_reduce", "broadcast", "barrier"};
  CHECK(said({record(0, 3, alike, 2), record(1, 3, other, 2), record(2, 3, alike, 2)}) ==
        "ranks 0,2 are in all_reduce #1, but rank 1 is in broadcast #1");
  CHECK(said({record(0, 3, alike, 1), record(1, 3, {"all_reduce"}), record(2, 3, alike, 1)}) ==
        "ranks 0,2 did all_reduce #1, but rank 1 has not come to it");
  CHECK(said({record(0, 2, alike, 1), record(1, 2, alike)}) ==
        "barrier #2 has not come to its end on rank 0, but has on rank 1");
  // What a rank no longer keeps is not missing.
  FlightRecord late = record(1, 2, alike);
  late.operations.erase(late.operations.begin());
  CHECK(said({record(0, 2, alike), late}).empty());
  const std::string table =
      merged({record(0, 3, alike, 2), record(1, 3, other, 2), record(2, 3, alike, 2)}).table;
  CAPTURE(table);
  CHECK(contains(table, "the world (ranks 0-2):"));
  CHECK(contains(table, "  done      on 0-2      all_reduce #0"));
  CHECK(contains(table, "> under way on 0,2      all_reduce #1"));
  CHECK(contains(table, "  under way on 1        broadcast #1"));
}
