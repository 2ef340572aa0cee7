// SPDX-License-Identifier: Apache-2.0
// PEAL_TRACE over threads: what four ranks did is in their files, on one clock and with every
// message matched; clocks that differ are brought together; and what cannot be written or read is
// an error that says so. No check depends on how long anything takes.
#include <peal/autograd/core/error.h>
#include <peal/comm/algorithms/table.h>
#include <peal/comm/group/agree.h>
#include <peal/comm/record/measured_run.h>
#include <peal/comm/start/threads.h>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::content_of;
using peal::testing::error_of;
namespace fs = std::filesystem;

namespace {

struct Folder : peal::testing::Folder {
  std::string file(int rank) const { return path / ("rank-" + std::to_string(rank) + ".trace"); }
};

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

ProcessGroup::Options traced(const fs::path& folder) {
  ProcessGroup::Options options;
  options.algorithms = "all_reduce=ring";
  options.trace = folder;
  return options;
}

constexpr int world = 4;
constexpr std::int64_t count = 10;

// Collectives of all and of some, a message, and one that runs while another does.
void some_work(const ProcessGroup& group) {
  const Tensor a = Tensor::zeros({count}), b = Tensor::zeros({3});
  const Work first = group.all_reduce(a, ReduceOp::sum, "bucket 0");
  const Work second = group.broadcast(b, 1);
  second.wait();
  first.wait();
  const auto pair = group.split(group.rank() / 2);
  pair.all_reduce(a).wait();
  if (group.rank() == 0) group.send(b, 3, 7).wait();
  if (group.rank() == 3) group.recv(b, 0, 7).wait();
  group.barrier().wait();
}

void some_work_of_two(const ProcessGroup& group) {
  group.all_reduce(Tensor::zeros({count})).wait();
}

const MeasuredCollective& named(const std::vector<MeasuredCollective>& all, const char* text,
                                std::size_t ranks) {
  const auto found = std::ranges::find_if(all, [&](const MeasuredCollective& one) {
    return one.parts.size() == ranks && one.first().text.find(text) != std::string::npos;
  });
  PEAL_CHECK(found != all.end(), "no collective ", text);
  return *found;
}

// The file as a clock of its own would have written it: `ahead` nanoseconds before rank 0's, as
// bounds say that are `width` to either side and `wrong` beside the truth.
void skew(const std::string& path, std::int64_t ahead, std::int64_t width, std::int64_t wrong) {
  std::istringstream old(content_of(path));
  std::string fresh;
  for (std::string line; std::getline(old, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    std::vector<std::string> parts{what};
    for (std::string word; words >> word;) parts.push_back(word);
    const auto shift = [&](std::size_t i) {
      if (parts[i] != "0") parts[i] = std::to_string(std::stoll(parts[i]) + ahead);
    };
    if (what == "clock") parts[1] = "another";
    if (what == "bounds") {
      shift(1);
      parts[2] = std::to_string(-ahead + wrong - width);
      parts[3] = std::to_string(-ahead + wrong + width);
    }
    if (what == "operation") shift(5), shift(6);
    if (what == "step") shift(10), shift(11), shift(12);
    if (what == "op") shift(3), shift(4);
    for (std::size_t i = 0; i < parts.size(); ++i) fresh += (i == 0 ? "" : " ") + parts[i];
    fresh += "\n";
  }
  write_text(path, fresh);
}

}  // namespace

TEST_CASE("four ranks leave what they did") {
  const Folder folder;
  run_ranks(world, traced(folder.path / "deep"), some_work);
  const MeasuredRun run = read_measured(folder.path / "deep");
  CHECK(run.world == world);
  CHECK(run.dropped == 0);
  CHECK(run.impossible == 0);
  CHECK(run.uncertainty == 0);  // threads share their clock
  for (const MeasuredPart& part : run.parts) {
    CHECK(part.ended());
    for (const MeasuredStep& s : part.steps) {
      CHECK(s.times.begin <= s.times.moves);
      CHECK(s.times.moves <= s.times.end);
      CHECK(s.times.end <= part.end);
      CHECK((s.times.message >= 0) == (s.step.peer != nobody));
    }
  }

  const auto all = collectives(run);
  const MeasuredCollective& ring = named(all, "(sum of 10 f32; bucket 0)", 4);
  CHECK(ring.first().algorithm == "ring");
  CHECK(ring.bytes == 2 * count * 4 * (world - 1));
  const std::int64_t counts[] = {count};
  const Topology nodes = single_node(world);
  const auto ran = programs(ring);
  for (int r = 0; r < world; ++r) {
    CHECK(ran[static_cast<std::size_t>(r)].rounds ==
          plan(*find(Collective::all_reduce, "ring"),
               {Collective::all_reduce, r, world, 0, counts, nodes})
              .rounds);
  }
  CHECK(named(all, "root 1", 4).parts[2]->text.starts_with("broadcast #"));
  CHECK(named(all, "sum of 10 f32)", 2).parts.size() == 2);  // in a pair

  // Both sides of the one message that is no collective.
  int sides = 0;
  for (const MeasuredPart& part : run.parts) {
    if (part.algorithm != "message") continue;
    CHECK(part.text ==
          (part.rank == 0 ? "send to rank 3 (3 f32, tag 7)" : "recv from rank 0 (3 f32, tag 7)"));
    ++sides;
  }
  CHECK(sides == 2);
}

// All ranks read one clock here, so that they differ by 0 is what the bounds must allow.
TEST_CASE("the bounds of the clocks hold the truth") {
  const Folder folder;
  run_ranks(world, traced(folder.path), some_work);
  for (int r = 0; r < world; ++r) {
    std::istringstream lines(content_of(folder.file(r)));
    int bounds = 0;
    for (std::string line; std::getline(lines, line);) {
      long long at = 0, low = 1, high = -1;
      if (std::sscanf(line.c_str(), "bounds %lld %lld %lld", &at, &low, &high) != 3) continue;
      CHECK(low <= 0);
      CHECK(high >= 0);
      ++bounds;
    }
    CHECK(bounds == (r == 0 ? 0 : 2));  // at the start and at the end
  }
}

TEST_CASE("clocks that differ are brought together") {
  const Folder folder;
  run_ranks(world, traced(folder.path), some_work);
  const auto before = read_measured(folder.path);
  constexpr std::int64_t second = 1'000'000'000;
  skew(folder.file(1), 5 * second, 250, 0);
  skew(folder.file(2), 5 * second, 400, 0);  // of the same clock: the narrower bounds serve both
  const auto after = read_measured(folder.path);
  CHECK(after.uncertainty == doctest::Approx(250e-9));
  CHECK(after.impossible == 0);
  CHECK(after.messages == before.messages);
  REQUIRE(after.parts.size() == before.parts.size());
  // The middle of the bounds is the truth here, so all is as before but for rounding.
  CHECK(std::abs(after.parts.back().end - before.parts.back().end) < 1e-6);
  skew(folder.file(1), 0, 250, second);  // bounds that lie
  skew(folder.file(2), 0, 250, second);
  CHECK(read_measured(folder.path).impossible > 0.9);
}

TEST_CASE("the run is drawn, and its JSON is JSON") {
  const Folder folder;
  run_ranks(world, traced(folder.path), some_work);
  const auto run = read_measured(folder.path);
  const auto json = nlohmann::json::parse(chrome_trace(timeline(run)));
  std::int64_t begun = 0, starts = 0, ends = 0;
  for (const auto& event : json.at("traceEvents")) {
    begun += event.at("ph") == "b";
    starts += event.at("ph") == "s";
    ends += event.at("ph") == "f";
  }
  CHECK(begun == static_cast<std::int64_t>(run.parts.size()));
  CHECK(starts == run.messages);
  CHECK(ends == run.messages);

  const auto all = collectives(run);
  const Timeline ring = timeline(named(all, "bucket 0", 4));
  const std::string picture = svg({{"model", &ring}, {"measured", &ring}}, "a < b");
  CHECK(contains(picture, "a &lt; b"));
  CHECK(contains(picture, ">measured</text>"));
  CHECK(nlohmann::json::parse(chrome_trace({{"model", &ring}, {"measured", &ring}})).is_object());
}

TEST_CASE("a run that failed shows what ranks waited for") {
  const Folder folder;
  CHECK(contains(error_of([&] {
                   run_ranks(2, traced(folder.path), [](const ProcessGroup& group) {
                     group.barrier().wait();  // else rank 0 could still be comparing clocks
                     if (group.rank() == 1) throw Error("rank 1 has had enough");
                     group.barrier().wait();
                   });
                 }),
                 "rank 1 has had enough"));
  const auto run = read_measured(folder.path);
  const auto waits =
      std::ranges::find_if(run.parts, [](const auto& part) { return !part.ended(); });
  REQUIRE(waits != run.parts.end());
  CHECK(waits->rank == 0);
  CHECK(waits->text.starts_with("barrier #"));
  CHECK(nlohmann::json::parse(chrome_trace(timeline(run))).is_object());
}

TEST_CASE("a failure while a group is made, or while files are written, leaves files to read") {
  const Folder folder;
  CHECK(contains(error_of([&] {
                   run_ranks(2, traced(folder.path), [](const ProcessGroup& group) {
                     if (group.rank() == 0) (void)group.new_group({0, 1});
                     agree(group, "", "0 1",
                           "");  // rank 1's part in rank 0's new_group(), but for its end
                     throw Error("rank 1 makes no group");
                   });
                 }),
                 "rank 1 makes no group"));
  CHECK(read_measured(folder.path).world == 2);

  std::atomic<bool> writes{false};
  const std::string said = error_of([&] {
    run_ranks(2, traced(folder.path), [&](const ProcessGroup& group) {
      some_work_of_two(group);
      while (group.rank() == 1 && !writes) std::this_thread::yield();
      if (group.rank() == 1) throw Error("rank 1 writes nothing");
      writes = true;
      group.write_trace();
    });
  });
  CHECK(contains(said, "rank 1 writes nothing"));
  CHECK(read_measured(folder.path).parts.size() >= 2);
}

TEST_CASE("of several worlds in a process the first is recorded") {
  const Folder folder;
  run_ranks(2, traced(folder.path), [&](const ProcessGroup& group) {
    some_work_of_two(group);
    if (group.rank() == 0) {
      run_ranks(2, traced(folder.path), some_work_of_two);
      CHECK(content_of(folder.file(0)).empty());
    }
    group.barrier().wait();
  });
  CHECK(contains(content_of(folder.file(0)), "barrier #"));
}

TEST_CASE(
    "names and labels that are no words are read as they were written, but for their spaces") {
  const Folder folder;
  run_ranks(2, traced(folder.path), [](const ProcessGroup& group) {
    const Tensor data = Tensor::zeros({2});
    group.all_reduce(data, ReduceOp::sum, "two\nlines").wait();
    for (const char* name : {"", "of my own"}) {
      const auto plan = std::make_shared<const Plan>(
          Program{.scratch = 0, .rounds = {{copy(out({0, 2}), in({0, 2}))}}}, name);
      group.run(Collective::all_reduce, plan, data, data).wait();
    }
  });
  const auto run = read_measured(folder.path);
  const auto all = collectives(run);
  CHECK(named(all, "two lines", 2).bytes > 0);
  const auto by = [&](const char* name) {
    return std::ranges::count(run.parts, name, &MeasuredPart::algorithm);
  };
  CHECK(by("unnamed") == 2);
  CHECK(by("of_my_own") == 2);
}

TEST_CASE("what cannot be written is an error at once, or at the end") {
  const Folder folder;
  write_text(folder.path / "plain", "a file");
  bool ran = false;
  const std::string at_once = error_of([&] {
    run_ranks(2, traced(folder.path / "plain" / "folder"),
              [&](const ProcessGroup&) { ran = true; });
  });
  CHECK(!ran);
  CHECK(contains(at_once, "PEAL_TRACE: cannot write "));
  CHECK(contains(at_once, "/plain/folder/rank-"));
  CHECK(contains(at_once, "Not a directory"));

  fs::create_symlink("/dev/full", folder.file(1));  // a disk without room
  const std::string at_end = error_of([&] { run_ranks(2, traced(folder.path), some_work_of_two); });
  CHECK(contains(at_end, folder.file(1) + ": No space left on device"));
}

TEST_CASE("what cannot be read is an error that names the place") {
  const Folder folder;
  CHECK(contains(error_of([&] { read_measured(folder.path); }), "cannot read " + folder.file(0)));
  run_ranks(2, traced(folder.path), some_work_of_two);
  const std::string good = content_of(folder.file(1));
  const auto with = [&](const std::string& text) {
    write_text(folder.file(1), text);
    return error_of([&] { read_measured(folder.path); });
  };
  CHECK(with(good) == "nothing");
  CHECK(contains(with(good.substr(0, good.rfind("end"))), "cut short after line"));
  CHECK(contains(with("hello"), "not a trace of this version"));
  CHECK(contains(with(""), "is empty; its rank was killed"));
  CHECK(contains(with("peal-trace 1\nrun 1\nrank 1 of 2\nend\n"), "is of another run than"));
  CHECK(contains(with("peal-trace 1\nrank x of 2\nend\n"), "rank-1.trace:2: expected a number"));
  CHECK(contains(with("peal-trace 1\nrank 1 of 2\nstep 0 0 send\nend\n"),
                 "a step before all operations"));
  CHECK(contains(with("peal-trace 1\nrank 1 of 2\ngroup 0 0 7\nend\n"), "expected a number"));
  CHECK(contains(with("peal-trace 1\nnoise\nend\n"), "does not know 'noise'"));
}
