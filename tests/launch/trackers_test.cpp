// SPDX-License-Identifier: Apache-2.0
// Trackers: where a run's figures go, and what of them is there when it dies.
#include <peal/launch/training/learner/learner.h>
#include <peal/launch/training/learner/recorder.h>
#include <peal/nn/loss.h>
#include <peal/tests/folder.h>

#include "accelerator_ranks.h"
#include "points.h"

using namespace peal;
using namespace peal::testing;

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Notes : launch::Tracker {
  std::string all;
  std::string name() const override { return "notes"; }
  void start(const std::filesystem::path&, const std::string& run, const Metadata&, bool) override {
    all += "start " + run + ";";
  }
  void log(const std::vector<launch::Value>& values, std::optional<std::int64_t> step) override {
    all += concat(values[0].name, " ", values[0].value, " at ", step.value_or(-1), ";");
  }
  void finish() override { all += "finish;"; }
};

}  // namespace

TEST_CASE("what is told on rank 0 is in the files, line by line, and in a tracker of one's own") {
  const Folder folder;
  const std::filesystem::path csv = folder.path / "runs" / "m.csv",
                              jsonl = csv.parent_path() / "m.jsonl";
  std::vector<std::shared_ptr<Notes>> notes{std::make_shared<Notes>(), std::make_shared<Notes>()};
  on_ranks(2, [&](launch::Job& job) {
    launch::Accelerator accelerator(
        job, {.project_dir = (folder.path / "runs").string(),
              .log_with = {"csv", "jsonl", notes[static_cast<std::size_t>(job.rank())]}});
    accelerator.init_trackers("m", {{"lr", "0.1"}, {"model, of", "a \"net\""}});
    const double rank = job.rank();
    accelerator.log({{"loss", 0.5 + rank}}, 1);
    if (job.is_main()) CHECK(text_of(csv) == "step,loss\n1,0.5\n");
    accelerator.log({{"loss", NAN}, {"a,b", 1}}, 2);
    accelerator.log({{"accuracy", 0.25}});
    if (job.is_main()) {  // as they are, before the run has ended
      CHECK(text_of(csv) == "step,loss,\"a,b\",accuracy\n1,0.5,,\n2,nan,1,\n,,,0.25\n");
      CHECK(text_of(jsonl) ==
            "{\"config\":{\"lr\":\"0.1\",\"model, of\":\"a \\\"net\\\"\"}}\n"
            "{\"step\":1,\"loss\":0.5}\n"
            "{\"step\":2,\"loss\":\"nan\",\"a,b\":1.0}\n"
            "{\"accuracy\":0.25}\n");
      CHECK(text_of(csv.parent_path() / "m.config.csv") ==
            "name,value\nlr,0.1\n\"model, of\",\"a \"\"net\"\"\"\n");
    }
    accelerator.end_training();
    return 0;
  });
  CHECK(notes[0]->all == "start m;loss 0.5 at 1;loss nan at 2;accuracy 0.25 at -1;finish;");
  CHECK(notes[1]->all.empty());
}

TEST_CASE(
    "a run that goes on adds to its files, but for a line that was cut; another begins anew") {
  const Folder folder;
  const std::filesystem::path csv = folder.path / "m.csv", jsonl = folder.path / "m.jsonl";
  const auto run = [&](bool goes_on, double loss) {
    on_ranks(1, [&](launch::Job& job) {
      launch::Accelerator accelerator(
          job, {.project_dir = folder.path.string(), .log_with = {"jsonl", "all"}});  // both, once
      accelerator.init_trackers("m", {}, goes_on);
      accelerator.log({{"loss", loss}}, 1);
      return 0;
    });
  };
  run(false, 3);
  std::ofstream(csv, std::ios::app) << "2,0.1234";  // and the power went
  std::ofstream(jsonl, std::ios::app) << "{\"step\":2,\"lo";
  run(true, 2);
  CHECK(text_of(csv) == "step,loss\n1,3\n1,2\n");
  CHECK(text_of(jsonl) == "{\"step\":1,\"loss\":3.0}\n{\"step\":1,\"loss\":2.0}\n");
  run(false, 1);
  CHECK(text_of(csv) == "step,loss\n1,1\n");
  CHECK(text_of(jsonl) == "{\"step\":1,\"loss\":1.0}\n");
}

TEST_CASE("a tracker that is not there, or a file that cannot be, is an Error on all ranks") {
  const auto of = [](const launch::AcceleratorOptions& options, bool starts, const char* run) {
    return failure_of(2, [&](launch::Job& job) {
      launch::Accelerator accelerator(job, options);
      if (starts) accelerator.init_trackers(run);
      accelerator.log({{"loss", 1}});
    });
  };
  CHECK(of({.log_with = {"cvs"}}, true, "m").find("did you mean 'csv'? (there are csv, jsonl;") !=
        std::string::npos);
  CHECK(of({.log_with = {"csv"}}, false, "m").find("call init_trackers() before") !=
        std::string::npos);
  CHECK(of({.log_with = {"csv"}}, true, "a/b").find("expected a name for the run") !=
        std::string::npos);
  CHECK(of({.project_dir = "/proc/none", .log_with = {"csv"}}, true, "m").find("/proc/none") !=
        std::string::npos);
  CHECK(of({}, false, "m") == "no Error");
}

TEST_CASE("the Learner's CSVLogger writes such a file, a row an epoch, anew or further") {
  const Folder folder;
  const std::filesystem::path path = folder.path / "history.csv";
  on_ranks(2, [&](launch::Job& job) {
    for (const bool append : {false, true, false}) {
      nn::Linear net(2, 3);
      data::DataLoader training(std::make_shared<Points>(8),
                                {.batch_size = 2, .shard = job.place()});
      launch::Learner learner(job, {&training}, net,
                              {.loss = nn::CrossEntropyLoss{},
                               .callbacks = {std::make_shared<launch::CSVLogger>(path, append)}});
      learner.fit(2, 0.1);
      if (!job.is_main()) continue;
      const auto lines = launch::whole_lines(path);
      REQUIRE(lines.size() == (append ? 5 : 3));
      CHECK(lines[0] == "epoch,train_loss");
      CHECK(lines[1].starts_with("0,"));
      CHECK(lines.back().starts_with("1,"));
    }
    return 0;
  });
}
