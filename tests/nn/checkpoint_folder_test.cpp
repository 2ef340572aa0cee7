// SPDX-License-Identifier: Apache-2.0
// Folders of checkpoints and saving in the background: the newest that is whole is found whatever
// happened to the others, a killed save costs nothing but itself, and what is written is the state
// as it was when it was saved.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>
#include <peal/tests/errors.h>
#include <peal/tests/folder.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace peal;
using namespace peal::testing;

namespace {

// So many floats in several tensors, all of one value.
struct State {
  NamedTensors tensors;

  explicit State(std::int64_t floats = 6, int count = 2) {
    for (int i = 0; i < count; ++i)
      tensors.emplace_back(concat("t", i), Tensor::zeros({floats / count}));
  }
  void fill(std::int64_t value) {
    for (const auto& [name, tensor] : tensors) fill_(tensor, static_cast<double>(value));
  }
  NamedTensors state_dict() const { return tensors; }
  void load_state_dict(const NamedTensors& state) {
    for (std::size_t i = 0; i < state.size(); ++i) tensors.at(i) = state[i];
  }
};

void save(nn::CheckpointFolder& folder, std::int64_t step) {
  State state;
  state.fill(step);
  nn::save(folder.next(step), {{"state", state}}, {{"step", std::to_string(step)}});
  folder.remove_old();
}

// The step of a checkpoint all of whose elements are that step.
std::int64_t step_of(const std::filesystem::path& path) {
  State state;
  const std::int64_t step = std::stoll(nn::load(path, {{"state", state}}).metadata.at("step"));
  for (const auto& [name, tensor] : state.tensors) {
    for (const float value : tensor.to_vector<float>()) REQUIRE(value == static_cast<float>(step));
  }
  return step;
}

std::vector<std::string> names_in(const nn::CheckpointFolder& folder) {
  std::vector<std::string> names;
  for (const auto& path : folder.files()) names.push_back(path.filename().string());
  return names;
}

void flip(const std::filesystem::path& path, std::int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-from_end, std::ios::end);
  file.put(byte);
}

}  // namespace

TEST_CASE("the newest checkpoints stay, by when they were written") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path / "a" / "run", 2);
  CHECK(run.files().empty());
  CHECK(!run.latest());
  for (const std::int64_t step : {9, 10, 11}) save(run, step);
  CHECK(names_in(run) == std::vector<std::string>{"checkpoint-3-step-11.safetensors",
                                                  "checkpoint-2-step-10.safetensors"});
  CHECK(step_of(run.latest().value()) == 11);
  save(run, 4);  // a run that went back
  CHECK(step_of(run.latest().value()) == 4);
  CHECK(names_in(run).size() == 2);
  for (int step = 0; step < 8; ++step) save(run, step);
  CHECK(names_in(run)[0] == "checkpoint-12-step-7.safetensors");  // after 9, not after 1
  for (const std::string name : {"checkpoint-13.safetensors", "checkpoint-x-step-1.safetensors",
                                 "checkpoint-13-step-1.safetensors.txt", "checkpoint.words"}) {
    std::ofstream(run.path() / name) << "others' files stay";
  }
  save(run, 8);
  CHECK(names_in(run)[0] == "checkpoint-13-step-8.safetensors");
  CHECK(std::distance(std::filesystem::directory_iterator(run.path()), {}) == 2 + 4);
  check_has(error_of([] { nn::CheckpointFolder("run", 0); }),
            "checkpoints in run: expected to keep at least 1 of them, got 0");
}

TEST_CASE("a checkpoint that is not whole is passed over, and named") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 9);
  for (int step = 1; step <= 5; ++step) save(run, step);
  const auto files = run.files();
  flip(files[0], 3);
  std::filesystem::resize_file(files[1], std::filesystem::file_size(files[1]) - 1);
  std::ofstream(files[2], std::ios::trunc) << "another program's";
  nn::save_model(files[3], nn::Linear(2, 2));
  std::optional<std::filesystem::path> found;
  const std::string said = stderr_of([&] { found = run.latest(); });
  REQUIRE(found);
  CHECK(step_of(*found) == 1);
  for (int i = 0; i < 4; ++i) check_has(said, files[static_cast<std::size_t>(i)].string());
  check_has(said, "expected the checksum crc32:");
  check_has(said, "truncated or damaged; copy it again or name another");
  check_has(said, "this is a model, not a checkpoint");

  save_safetensors(files[4], {}, {{"peal.parts", "state"}});
  std::string message;
  stderr_of([&] { message = error_of([&] { run.latest(); }); });
  check_has(message, "checkpoints in " + folder.path.string() +
                         ": none of the 5 is whole; bring one back, or begin anew in another");
  check_has(message, "it has no checksum that could say it is whole");
  save(run, 6);
  CHECK(step_of(run.latest().value()) == 6);
}

TEST_CASE("one that cannot be read now is not passed over, and not removed") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 2);
  save(run, 1);
  const auto loop = folder.path / "checkpoint-2-step-2.safetensors";
  std::filesystem::create_symlink(loop.filename(), loop);  // as EACCES or EIO are, also for root
  const std::string message = error_of([&] { run.latest(); });
  check_has(message, "checkpoints in " + folder.path.string() +
                         ": whether the newest of them is whole cannot be told: safetensors " +
                         loop.string() + ": cannot open: Too many levels");
  check_has(message, "let this process read it, or move it away to go on from an older one");
  const std::string said = stderr_of([&] { save(run, 3); });
  CHECK(step_of(run.latest().value()) == 3);
  CHECK(run.files().size() == 3);
  check_has(said,
            "does not count as kept, for whether it is whole cannot be told now: safetensors " +
                loop.string());
  CHECK(std::filesystem::is_symlink(loop));
}

TEST_CASE("what killed saves of other hosts left goes where nobody else saves") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 2);
  for (int step = 1; step <= 2; ++step) save(run, step);
  // Hosts' names have dots, and may be gone by now.
  for (const std::string host : {"pod-7f", "node.of.a.cluster"})
    std::ofstream(folder.path / ("checkpoint-3-step-9.safetensors." + host + ".12.0.tmp"))
        << "half";
  const std::vector<std::string> others{"checkpoint.words.pod-7f.12.0.tmp",
                                        "checkpoint-3-step-9.safetensors..12.0.tmp",
                                        "checkpoint-3-step-9.safetensors.pod-7f.0.tmp"};
  for (const std::string& name : others) std::ofstream(folder.path / name) << "others'";
  run.remove_old();
  CHECK(folder.entries() == 2 + 2 + others.size());
  run.remove_old(true);
  CHECK(folder.entries() == 2 + others.size());
  for (const std::string& name : others) CHECK(std::filesystem::exists(folder.path / name));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need more than a limit
TEST_CASE("no memory for the newest is no reason to go on from an older one") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 2);
  save(run, 1);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const State large(1 << 24, 1);  // stays, so that another one needs as much memory again
    nn::save(run.next(2), {{"state", large}});
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit;
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + (1 << 25));
    ::setrlimit(RLIMIT_AS, &limit);
    const std::string message = error_of([&] { run.latest(); });
    const bool right = contains(message, "whether the newest of them is whole cannot be told: ") &&
                       contains(message, "tensor 'state.t0': allocator: the system has no ");
    if (!right) [[maybe_unused]]
      const auto told = ::write(2, message.data(), message.size());
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(run.latest().value() == run.files()[0]);
  CHECK(run.files().size() == 2);
}
#endif

TEST_CASE("one that is not whole does not count as kept") {
  const Folder folder;
  nn::CheckpointFolder before(folder.path, 2), run(folder.path, 2);
  for (int step = 1; step <= 2; ++step) save(before, step);
  const auto broken = before.files()[0], whole = before.files()[1];
  flip(broken, 3);
  const std::string said = stderr_of([&] { save(run, 3); });
  check_has(said, "a checkpoint does not count as kept, for it is not whole: safetensors " +
                      broken.string());
  CHECK(run.files().size() == 3);
  CHECK(step_of(whole) == 1);
  std::filesystem::remove(run.files()[0]);  // the last whole one is what the run goes on from
  stderr_of([&] { CHECK(step_of(run.latest().value()) == 1); });
  CHECK(stderr_of([&] {
          for (int step = 4; step <= 5; ++step) save(run, step);
        }).empty());  // it was read once
  CHECK(names_in(run) == std::vector<std::string>{"checkpoint-4-step-5.safetensors",
                                                  "checkpoint-3-step-4.safetensors"});
}

TEST_CASE("a damaged checkpoint loads nothing") {
  const Folder folder;
  const auto path = folder.path / "c";
  nn::Linear net(2, 2);
  nn::SGD optimizer(net.parameters(), {.lr = 0.5});
  nn::save(path, {{"model", net}, {"optimizer", optimizer}});
  flip(path, 1);
  const Tensor weight = net.weight.detach();
  fill_(weight, 7.0);
  const std::string message = error_of([&] {
    nn::load(path, {{"model", net}, {"optimizer", optimizer}});
  });
  check_has(message, "safetensors " + path.string() + ": expected the checksum crc32:");
  check_has(error_of([&] { nn::load_model(path, net); }), "expected the checksum crc32:");
  CHECK(net.weight.to_vector<float>() == std::vector<float>(4, 7));
}

TEST_CASE("what is written in the background is the state as it was") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 2);
  State state(1 << 16, 8);
  {
    nn::BackgroundSave saving;
    for (std::int64_t step = 1; step <= 5; ++step) {
      state.fill(step);
      saving.save(run.next(step),
                  nn::snapshot({{"state", state}}, {{"step", std::to_string(step)}}),
                  [&] { run.remove_old(); });
      state.fill(-1);  // the next step, while that is written
      if (step % 2 == 0) saving.wait();
    }
  }  // waits
  State loaded(1 << 16, 8);
  const auto last = run.latest().value();
  CHECK(nn::load(last, {{"state", loaded}}).metadata.at("step") == "5");
  for (const auto& [name, tensor] : loaded.tensors)
    CHECK(tensor.to_vector<float>() == std::vector<float>(1 << 13, 5));
  CHECK(run.files().size() == 2);
}

TEST_CASE("what goes wrong in the background is told once, and costs nothing that was there") {
  const Folder folder;
  const auto path = folder.path / "c";
  State state(1 << 16);
  nn::save(path, {{"state", state}}, {{"step", "0"}});
  const std::string old = content_of(path);
  nn::BackgroundSave saving;
  const auto old_action = ::signal(SIGXFSZ, SIG_IGN);
  rlimit limit;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{100000, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  bool then = false;
  const auto save_now = [&] {
    saving.save(path, nn::snapshot({{"state", state}}), [&] { then = true; });
  };
  save_now();
  const std::string at_next_save = error_of(save_now);
  CHECK(error_of([&] { saving.wait(); }) == "nothing");  // nothing was begun
  save_now();
  const std::string at_wait = error_of([&] { saving.wait(); });
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::signal(SIGXFSZ, old_action);
  for (const std::string& message : {at_next_save, at_wait}) {
    check_has(message, "save " + path.string() + ": writing failed after 100000 bytes");
    check_has(message, "what was at that path before is untouched");
  }
  CHECK(!then);
  CHECK(content_of(path) == old);
  CHECK(folder.entries() == 1);
  save_now();
  saving.wait();
  CHECK(then);
}

// A program that saves step after step, and says after each on which step it is safe.
[[noreturn]] void save_until_killed(const std::filesystem::path& path, std::int64_t step, int out) {
  nn::CheckpointFolder run(path, 2);
  State state(40000, 40);
  nn::BackgroundSave saving;
  for (;; ++step) {
    state.fill(step);
    saving.save(run.next(step), nn::snapshot({{"state", state}}, {{"step", std::to_string(step)}}),
                [&] { run.remove_old(); });
    saving.wait();
    [[maybe_unused]] const auto written = ::write(out, &step, sizeof step);
  }
}

TEST_CASE("saves that are killed at any moment lose nothing, and leave nothing half") {
  const Folder folder;
  nn::CheckpointFolder run(folder.path, 2);
  std::mt19937 random(5);
  std::int64_t safe = 0;
  for (int round = 0; round < 200; ++round) {
    std::array<int, 2> ends;
    REQUIRE(::pipe(ends.data()) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(ends[0]);
      save_until_killed(folder.path, safe + 1, ends[1]);
    }
    ::close(ends[1]);
    // After the first of its saves, so that each round gets on, and somewhere in the next ones.
    REQUIRE(::read(ends[0], &safe, sizeof safe) == sizeof safe);
    ::usleep(static_cast<useconds_t>(random() % 6000));
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(ends[0], &safe, sizeof safe) == sizeof safe) {
    }
    ::close(ends[0]);
    INFO("round ", round, ", safe: ", safe);
    std::optional<std::filesystem::path> found;
    CHECK(stderr_of([&] { found = run.latest(); }).empty());  // none is half
    REQUIRE(found);
    State state(40000, 40);
    const auto step = std::stoll(nn::load(*found, {{"state", state}}).metadata.at("step"));
    CHECK(step >= safe);
    CHECK(step <= safe + 1);
    for (const auto& [name, tensor] : state.tensors)
      CHECK(tensor.to_vector<float>() == std::vector<float>(1000, static_cast<float>(step)));
    CHECK(run.files().size() <= 3);  // the third, where it was killed before it removed the oldest
    safe = step;
  }
  save(run, 1);
  CHECK(folder.entries() == 2);  // what the killed ones left is gone
}
