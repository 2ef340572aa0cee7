// SPDX-License-Identifier: Apache-2.0
// Where the time of a bucket goes, from times by hand; and what training notes, through a file and
// back.
#include <peal/comm/record/trace_file.h>
#include <peal/comm/record/training_steps.h>

#include <doctest/doctest.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <fstream>
#include <string>
#include <vector>

using namespace peal;
using namespace peal::comm;
using peal::testing::contains;
using peal::testing::error_of;

namespace {

const Span from{self, Buffer::in, 0, 8}, to{self, Buffer::out, 0, 8},
    shared{self, Buffer::room, 0, 8};

// Two ranks and a step of one bucket; rank 1 comes 2 us later to its collective.
std::string file_of(int rank) {
  const int late = rank * 2000;
  const auto at = [&](int nanoseconds) { return std::to_string(100'000 + nanoseconds); };
  return "peal-trace 1\nrun 7\nrank " + std::to_string(rank) + " of 2\nclock one\ngroup 5 0 1\n" +
         "operation 5 9 77 4 " + at(2000 + late) + " " + at(9000) +
         " ring all_reduce #9 (avg of 8 f32; step 3, bucket 0: w)\n" + "step 0 0 send " +
         std::to_string(1 - rank) + " 8 out 0 in 0 " + at(2500 + late) + " " + at(2500 + late) +
         " " + at(8000) + "\n" + "op forward 0 " + at(0) + " " + at(500) + " matmul\n" +
         "op backward 0 " + at(600) + " " + at(1900) + " matmul\n" + "training 11 3 " + at(0) +
         " " + at(500) + " " + at(3000 + late) + " " + at(9500) + "\n" + "bucket 11 3 0 32 " +
         at(1000) + " " + at(1500 + late) + " 0 w 0 step 3, bucket 0: w\n" + "dropped 0\nend\n";
}

}  // namespace

TEST_CASE("the phases of a bucket add up") {
  CollectiveTime one{.begin = 3, .first = 4, .end = 10};
  one.count(copy(shared, from), 4, 5);
  one.count(copy(to, shared), 8, 10);
  one.count(copy(to, from), 5, 8);  // of a sum: its first operand
  one.count(recv(1, to), 5, 8);
  CHECK(one.copied_in == 1);
  CHECK(one.copied_out == 2);
  // A hook computes from 2 to 3 and from 13 to 14, and has a second collective between.
  const CollectiveTime two{.begin = 11, .first = 11.5, .end = 13};
  const BucketPhases all = phases({.ready = 1, .sent = 2, .over = 14, .collectives = {one, two}});
  CHECK(all.queue == 1 + 1 + 0.5);
  CHECK(all.copy_in == 1 + 1);
  CHECK(all.copy_out == 2 + 1 + 1);
  CHECK(all.transfer == 3 + 1.5);
  CHECK(all.all() == 13);
  CHECK(phases({.ready = 1, .sent = 2}).all() == 1);  // nothing was sent
}

TEST_CASE("what training noted is read, and who was last") {
  const peal::testing::Folder folder;
  for (const int rank : {0, 1}) {
    std::ofstream(folder.path / ("rank-" + std::to_string(rank) + ".trace")) << file_of(rank);
  }
  const MeasuredRun run = read_measured(folder.path);
  const auto steps = training_steps(run);
  REQUIRE(steps.size() == 1);
  const TrainingStep& step = steps[0];
  CHECK(step.step == 3);
  CHECK(&median_step(steps) == &step);
  CHECK(step.end() - step.begin() == doctest::Approx(9.5e-6));
  CHECK(step.last_rank(0) == 1);
  REQUIRE(step.ranks.size() == 2);
  for (const StepRank& rank : step.ranks) {
    const double late = rank.rank * 2e-6;
    REQUIRE(rank.ops.size() == 2);
    CHECK_FALSE(rank.ops[0].backward);
    CHECK(rank.ops[1].backward);
    CHECK(rank.exposed() == doctest::Approx(6.5e-6 - late));
    REQUIRE(rank.buckets.size() == 1);
    const StepBucket& bucket = rank.buckets[0];
    CHECK(bucket.bytes == 32);
    CHECK(bucket.held_by == "w");
    CHECK(bucket.phases.queue == doctest::Approx(1.5e-6 + late));
    CHECK(bucket.phases.copy_in == 0);
    CHECK(bucket.slowest == doctest::Approx(2e-6 - late));
    CHECK(bucket.wire() == doctest::Approx(4.5e-6));
    CHECK(bucket.end() == doctest::Approx(bucket.begin() + 8e-6));
  }
  const StepPicture drawn = picture(step);
  REQUIRE(drawn.panels.size() == 2);
  REQUIRE(drawn.panels[0].lanes.size() == 2);
  CHECK(drawn.panels[0].lanes[1].note == "32 B, last w");
  const std::string svg_text = svg(drawn, "a step & more");
  for (const char* said : {"a step &amp; more", "waits for gradients", ">bucket 0</text>",
                           "waits for the slowest rank, 2.0 us", "wire, 4.5 us"}) {
    CHECK_MESSAGE(svg_text.find(said) != std::string::npos, said);
  }
}

TEST_CASE("a note that is damaged is an error with its line") {
  const peal::testing::Folder folder;
  const std::string path = folder.path / "rank-0.trace";
  const auto fails = [&](const std::string& line) {
    std::ofstream(path) << "peal-trace 1\nrun 1\nrank 0 of 1\nclock c\n"
                        << line << "\ndropped 0\nend\n";
    return error_of([&] { read_trace_file(path); });
  };
  CHECK(contains(fails("op sideways 0 1 2 matmul"),
                 ":5: expected forward or backward, got 'sideways'"));
  CHECK(contains(fails("op forward 0 1"), ":5: a word is missing"));
  CHECK(contains(fails("training 1 2 3 4 5"), ":5: a word is missing"));
  CHECK(contains(fails("bucket 1 2 -3 4 5 6 7 w - label"), ":5: expected a number of at least 0"));
  CHECK(contains(fails("bucket 1 2 3 4 5 6 7 w 0 label"), ":5: expected a number of at least 0"));
  CHECK(contains(fails("bucket 1 2 3 4 5 6 7 w step 3"), "got 'step'"));
}
