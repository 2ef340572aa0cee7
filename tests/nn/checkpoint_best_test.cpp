// SPDX-License-Identifier: Apache-2.0
// The best checkpoint of a folder stays beside the newest: by the measure that is named, and also
// where it cannot be read for a while.
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

using namespace peal;
using namespace peal::testing;

namespace {

constexpr const char* accuracy = "highest accuracy";

// The newest, which has the measure of this name; what is old goes.
void save_measured(nn::CheckpointFolder& run, std::int64_t step, std::optional<double> measure,
                   const std::string& name = accuracy) {
  Metadata metadata;
  if (measure) metadata[nn::measure_key] = concat(*measure, " ", name);
  nn::save(run.next(step), {{"net", nn::Linear(1, 1)}}, metadata);
  run.remove_old(false, measure);
}

// Of one digit each, the newest first.
std::string steps_in(const nn::CheckpointFolder& folder) {
  std::string steps;
  for (const auto& path : folder.files()) {
    const std::string name = path.filename();
    steps += name[name.find("step-") + 5];
  }
  return steps;
}

}  // namespace

TEST_CASE("the best stays beside the newest, also of a run that was stopped") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 1, accuracy);
  CHECK(!run.best());
  save_measured(run, 1, -0.25);
  save_measured(run, 2, 0.75);
  CHECK(steps_in(run) == "2");  // the best is the last
  save_measured(run, 3, 0.5);
  save_measured(run, 4, {});
  CHECK(steps_in(run) == "42");
  nn::CheckpointFolder again(folder.path, 1, accuracy);  // knows of no measure before it reads
  save_measured(again, 5, 0.5);
  CHECK(steps_in(run) == "52");
  CHECK(again.best() == run.best());
  save_measured(again, 6, 0.75);
  CHECK(steps_in(run) == "6");  // of equals the newest
  save_measured(again, 7, {});
  const auto cut = again.best().value();
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 1);
  const std::string said = stderr_of([&] { save_measured(again, 8, 0.1); });
  check_has(said, "does not count as kept, for it is not whole: ");
  CHECK(steps_in(run) == "8");
}

TEST_CASE("the best is that of one measure, whatever others a folder has") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 1, accuracy);
  save_measured(run, 1, 0.875);
  save_measured(run, 2, 0.5);
  CHECK(steps_in(run) == "21");
  nn::CheckpointFolder other(folder.path, 1, "lowest error");
  save_measured(other, 3, -0.25, "lowest error");
  save_measured(other, 4, -0.5, "lowest error");
  CHECK(steps_in(other) == "43");
}

TEST_CASE("the best stays where it cannot be read now, and is the best again once it can") {
  const Folder folder;
  nn::CheckpointFolder before(folder.path, 1, accuracy);
  save_measured(before, 1, 0.875);
  const auto best = before.files()[0], away = folder.path / "away";
  std::filesystem::rename(best, away);
  std::filesystem::create_symlink(best.filename(), best);  // a loop, as EIO or no file left to open
  nn::CheckpointFolder run(folder.path, 1, accuracy);      // goes on, and knows nothing yet
  const std::string said = stderr_of([&] {
    for (int step = 2; step <= 4; ++step) save_measured(run, step, 0.5);
  });
  check_has(said, "cannot be told now: safetensors " + best.string());
  CHECK(steps_in(run) == "41");
  std::filesystem::rename(away, best);
  CHECK(stderr_of([&] { save_measured(run, 5, 0.5); }).empty());
  CHECK(steps_in(run) == "51");
  CHECK(run.best() == best);
}
