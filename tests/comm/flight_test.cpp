// SPDX-License-Identifier: Apache-2.0
// The flight recorder: its rows, while they are written and after a rank is gone; what it leaves
// where a group fails; and where merged records begin to differ.
#include <peal/comm/control/board.h>
#include <peal/comm/group/group_body.h>
#include <peal/comm/record/flight_record.h>
#include <peal/comm/start/threads.h>

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
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
using peal::testing::path_ending;
using peal::testing::wait_until;

namespace {

std::atomic<int> flushes{0};

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

// The system's own, counted.
extern "C" int fsync(int file) {
  ++flushes;
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "fsync"))(file);
}

TEST_CASE("rows are kept until later ones need their place, and end once") {
  const auto board = Board::in_memory(2);
  FlightRecorder& flight = board->flight(1);
  CHECK(flight.read().empty());
  const std::uint64_t first = flight.begin(7, 3, {.signature = 5, .call = {6, 8}}, "bucket 3: a");
  const std::uint64_t second = flight.begin(7, 4, {}, std::string(100, 'x'));
  flight.over(0, 9, {.signature = 1, .call = {}}, "bucket 4: b");
  flight.over(0, 10, {.signature = 1, .call = {}});
  auto rows = flight.read();
  REQUIRE(rows.size() == 4);
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
  CHECK(rows[2].label == "bucket 4: b");
  CHECK(rows[2].state == FlightState::done);
  CHECK(rows[3].label.empty());
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
  CHECK(rows[0].number == 4);
  for (const FlightRow& row : rows) {
    CHECK(row.state == FlightState::done);
    CHECK(row.label.empty());
  }
  CHECK(board->flight(0).read().empty());
}

TEST_CASE("a label that is too long ends with a whole letter, and what is none is replaced") {
  const auto board = Board::in_memory(1);
  const std::string letters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x99\x82"};
  for (const std::string& letter : letters) {
    for (std::size_t cut = 0; cut <= letter.size(); ++cut) {  // bytes that have room
      const std::string before(56 - cut, 'x');
      board->flight(0).begin(0, 0, {}, before + letter + "more");
      const std::string kept = board->flight(0).read().back().label;
      CHECK(kept == (cut == letter.size() ? before + letter : before));
    }
  }
  // Bytes of the user's own that are no text.
  board->flight(0).begin(0, 0, {}, std::string(80, '\xa0'));
  CHECK(board->flight(0).read().back().label.size() >= 53);
  const std::string wrong[] = {"\xff",    "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                               "\xe2\x82"};
  for (const std::string& bytes : wrong) {
    FlightRecord made{.why = concat("a\"", bytes, "\xf0\x9f\x99\x82", "\n\\")};
    std::string replaced;
    for (std::size_t i = 0; i < bytes.size(); ++i) replaced += "\xef\xbf\xbd";
    CHECK(nlohmann::json::parse(json(made)).at("why") ==
          concat("a\"", replaced, "\xf0\x9f\x99\x82", "\n\\"));
  }
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

TEST_CASE("whether a rank has come to a call is not known while it has more under way") {
  const auto row = [](std::uint64_t group, std::uint64_t sequence, FlightState state) {
    return FlightRow{.group = group, .sequence = sequence, .state = state};
  };
  const CallPlace barrier{7, 3};
  std::vector<FlightRow> rows{row(7, 3, FlightState::under_way)};
  CHECK(has_begun(rows, 5, 9, barrier) == std::nullopt);  // nothing of that group
  rows.push_back(row(5, 8, FlightState::done));
  CHECK(has_begun(rows, 5, 9, barrier) == std::optional(false));
  CHECK(has_begun(rows, 5, 8, barrier) == std::optional(true));
  rows.back().state = FlightState::under_way;  // what follows it may be call 9
  CHECK(has_begun(rows, 5, 9, barrier) == std::nullopt);
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
    // Some are over within their call.
    for (int i = 0; i < 20; ++i) {
      group.all_reduce(few, ReduceOp::sum, concat("bucket ", i, ": part")).wait();
    }
    const std::string table = group.flight();
    CAPTURE(table);
    for (int i = 0; i < 20; ++i) CHECK(contains(table, concat("; bucket ", i, ": part)")));
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
  std::uint64_t run = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const auto file = [&](const char* kind) {
      return path_ending(options.flight, concat(".rank-", rank, ".flight.", kind));
    };
    CHECK(contains(content_of(file("txt")), concat("rank ", rank, " of 3")));
    const auto json = nlohmann::json::parse(content_of(file("json")));
    CHECK(json.at("rank") == rank);
    CHECK(json.at("over") == true);
    CHECK(contains(json.at("why"), "must make the same calls"));
    const std::uint64_t mine = std::stoull(std::string(json.at("run")), nullptr, 16);
    CHECK((rank == 0 || mine == run));
    run = mine;
    const auto& last = json.at("operations").back();
    CHECK(last.at("state") != "done");
    CHECK(contains(last.at("text"), rank == 1 ? "(sum of 5 f32)" : "(sum of 4 f32)"));
  }
  CHECK(run > 0);
}

TEST_CASE("runs that fail one after the other leave files of their own, the later the larger") {
  const Folder folder;
  ProcessGroup::Options options;
  options.flight = folder.path.string();
  std::vector<std::filesystem::path> first;
  for (const int ranks : {3, 2}) {
    failure(ranks, options, [](const ProcessGroup& group) {
      group.barrier().wait();
      group.all_reduce(Tensor::zeros({group.rank() == 1 ? 5 : 4})).wait();
    });
    for (const auto& entry : std::filesystem::directory_iterator(folder.path)) {
      const bool known = std::ranges::count(first, entry.path()) > 0;
      if (ranks == 3) first.push_back(entry.path());
      if (ranks == 2 && !known) {
        for (const auto& earlier : first) CHECK(entry.path().filename() > earlier.filename());
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(first.size() == 6);
  CHECK(folder.entries() == 10);
}

TEST_CASE("who takes the node's records and cannot write them leaves them to another") {
  const auto board = Board::in_memory(3);
  CHECK(board->take_flight(0));
  CHECK_FALSE(board->take_flight(1));
  board->end_flight(0, false);
  CHECK_FALSE(board->flight_written());
  CHECK(board->take_flight_word());
  CHECK_FALSE(board->take_flight_word());
  CHECK(board->take_flight(1));
  board->end_flight(1, true);
  CHECK(board->flight_written());
  CHECK_FALSE(board->take_flight(0));
}

TEST_CASE("of those who wait for a slow writer of the records one goes on, and no more") {
  const auto board = Board::in_memory(3);
  CHECK(board->take_flight(0));
  CHECK(board->take_flight(1, board->flight_writer()));
  CHECK_FALSE(board->take_flight(2, 0));  // which has seen the first alone
  CHECK(board->flight_writer() == 1);
  board->end_flight(0, false);  // the slow one fails: that is the other's no more
  CHECK(board->flight_writer() == 1);
  board->end_flight(1, true);
  board->end_flight(0, false);
  CHECK(board->flight_written());
}

TEST_CASE("a rank that has taken the records and never writes them costs nobody's") {
  const Folder folder;
  ProcessGroup::Options options;
  options.flight = folder.path.string();
  failure(3, options, [](const ProcessGroup& group) {
    if (group.rank() == 0) CHECK(body_of(group).lane->control().take_flight(Board::nobody));
    group.barrier().wait();
    group.all_reduce(Tensor::zeros({group.rank() == 1 ? 5 : 4})).wait();
  });
  CHECK(folder.entries() == 6);
}

TEST_CASE("records are there without a wait for the disk") {
  const Folder folder;
  ProcessGroup::Options options;
  options.flight = folder.path.string();
  flushes = 0;
  failure(2, options, [](const ProcessGroup& group) {
    group.all_reduce(Tensor::zeros({group.rank() == 1 ? 5 : 4})).wait();
  });
  CHECK(folder.entries() == 4);
  CHECK(flushes == 0);
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

TEST_CASE("what ranks that were asked at different moments had not done yet is no difference") {
  const auto said = [](const std::vector<FlightRecord>& records) {
    const MergedFlight all = merged(records);
    return all.differences.empty() ? "" : all.differences[0].text;
  };
  // Each call takes from 10 i to 10 i + 5.
  const auto asked = [](int rank, std::int64_t now, const std::vector<std::string>& calls,
                        const std::string& host = "here") {
    FlightRecord made = record(rank, 2, calls);
    made.host = host;
    made.now = now;
    made.written = now;
    for (auto& one : made.operations) {
      one.begin = 10 * static_cast<std::int64_t>(one.number);
      const bool ended = one.begin + 5 <= now;
      one.end = ended ? one.begin + 5 : 0;
      if (!ended) one.state = "under way";
    }
    return made;
  };
  const std::vector<std::string> two{"all_reduce", "barrier"},
      four{"all_reduce", "barrier", "all_reduce", "barrier"};
  // Rank 0 was asked when it was in #1, rank 1 when it had done #3.
  CHECK(said({asked(0, 13, two), asked(1, 39, four)}).empty());
  // It is still there when rank 1 has long done it; or has not come to the next that rank 1 has.
  CHECK(said({asked(0, 13, two), asked(1, 15, two)}).empty());
  FlightRecord late = asked(0, 13, two);
  late.now = late.written = 60;
  CHECK(said({late, asked(1, 39, four)}) ==
        "rank 1 did all_reduce #2, but rank 0 has not come to it");
  CHECK(said({late, asked(1, 15, two)}) ==
        "barrier #1 has not come to its end on rank 0, but has on rank 1");
  // Of ranks whose world has failed there will be no more.
  FlightRecord failed = asked(0, 13, two);
  failed.over = true;
  CHECK(said({failed, asked(1, 39, four)}) ==
        "rank 1 did all_reduce #2, but rank 0 has not come to it");
  // Clocks of other nodes may differ by a second.
  late = asked(0, 13, two, "there");
  late.written = 60;
  CHECK(said({late, asked(1, 39, four)}).empty());
  late.written = 1'000'000'060;
  CHECK(said({late, asked(1, 39, four)}) ==
        "rank 1 did all_reduce #2, but rank 0 has not come to it");
  // Other calls are other calls, whenever they were made.
  CHECK(said({asked(0, 13, {"all_reduce", "broadcast"}), asked(1, 39, four)}) ==
        "rank 0 is in broadcast #1, but rank 1 did barrier #1");
}
