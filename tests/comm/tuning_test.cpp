// SPDX-License-Identifier: Apache-2.0
// Tuning files: what is read of good ones and of others, where they are, and that ranks choose by
// rank 0's alone.
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/told_here.h>
#include <peal/comm/group/tuning.h>
#include <peal/comm/start/threads.h>
#include <peal/tests/errors.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <doctest/doctest.h>

using namespace peal;
using namespace peal::comm;
using peal::testing::error_of;

namespace {

// A folder of the test's own, which goes with it.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("tuning_test." + std::to_string(getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& text) const {
    const std::string name = (path / "file").string();
    std::ofstream(name, std::ios::binary) << text;
    return name;
  }
};

// For two ranks that are threads all goes by other algorithms than those that are built in.
Tuning tuning_for_threads() {
  Tuning tuning{this_machine(), {}};
  tuning.put({"threads", 2, 1, Rules("all_reduce=staged_slices/1024:0-4000;ring:4001-max", ""),
              Rules("all_reduce=binomial", "")});
  return tuning;
}

// What a group of so many ranks says that an all_reduce went by, and whether they all say so.
std::string algorithm(int world, const ProcessGroup::Options& options, std::int64_t count,
                      int split_into = 1) {
  std::set<std::string> names;
  std::mutex mutex;
  run_ranks(world, options, [&](const ProcessGroup& all) {
    const ProcessGroup group = split_into == 1 ? all : all.split(all.rank() % split_into);
    const Work work = group.all_reduce(Tensor::zeros({count}));
    work.wait();
    const std::lock_guard lock(mutex);
    names.insert(std::string(work.algorithm()));
  });
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : " ") + name;
  return joined;
}

ProcessGroup::Options with(const std::string& path) {
  ProcessGroup::Options options;
  options.tuning = path;
  return options;
}

// What stderr gets meanwhile.
std::string logged(const Folder& folder, const std::function<void()>& f) {
  const std::string path = (folder.path / "log").string();
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600),
            before = dup(STDERR_FILENO);
  REQUIRE(file >= 0);
  dup2(file, STDERR_FILENO);
  const auto finally = std::shared_ptr<void>(nullptr, [&](void*) {
    dup2(before, STDERR_FILENO);
    close(before);
    close(file);
  });
  forget_told_warnings();
  f();
  std::ifstream log(path);
  return {std::istreambuf_iterator<char>(log), {}};
}

// As a shell would set it, until the end.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* const was = std::getenv(name);
    if ((had_ = was != nullptr)) was_ = was;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { had_ ? setenv(name_, was_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string was_;
};

}  // namespace

TEST_CASE("a tuning file is read as it was written") {
  Tuning tuning = tuning_for_threads();
  tuning.put({"mpi", 16, 2, {}, Rules("all_reduce=hierarchical,barrier=dissemination", "")});
  const Tuning read = Tuning::parse(tuning.text());
  CHECK(read.text() == tuning.text());
  CHECK(read.machine == this_machine());
  REQUIRE(read.groups.size() == 2);
  CHECK(read.groups[1].transport == "mpi");
  CHECK(read.groups[1].ranks == 16);
  CHECK(read.groups[1].nodes == 2);
  CHECK(read.groups[0].shared.text() == "all_reduce=staged_slices/1024:0-4000;ring:4001-max");
}

TEST_CASE("what is measured again takes the place of what was, and nothing else does") {
  Tuning tuning = tuning_for_threads();
  tuning.put({"threads", 2, 1, {}, Rules("all_reduce=ring", "")});
  tuning.put({"threads", 4, 1, {}, Rules("all_reduce=swing", "")});
  REQUIRE(tuning.groups.size() == 2);
  CHECK(tuning.groups[0].shared.text() == "all_reduce=staged_slices/1024:0-4000;ring:4001-max");
  CHECK(tuning.groups[0].messages.text() == "all_reduce=ring");
}

TEST_CASE("a file that is cut off anywhere, or changed anywhere, is refused") {
  const std::string text = tuning_for_threads().text();
  for (std::size_t length = 0; length < text.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(Tuning::parse(text.substr(0, length)), Error);
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    CAPTURE(at);
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK_THROWS_AS(Tuning::parse(changed), Error);
  }
  CHECK(error_of([&] { Tuning::parse(text.substr(0, text.size() / 2)); }) ==
        "its end is missing: it was cut off");
  CHECK_THROWS_AS(Tuning::parse(text + "more\n"), Error);
}

TEST_CASE("a file of another version says so first") {
  std::string text = tuning_for_threads().text();
  text.replace(text.find("tuning 1"), 8, "tuning 2");
  CHECK(error_of([&] { Tuning::parse(text); }) ==
        "expected 'peal tuning 1' in the first line, got 'peal tuning 2'");
  CHECK(error_of([] { Tuning::parse(std::string(100'000, '\1') + "\n"); }) ==
        concat("expected 'peal tuning 1' in the first line, got '", std::string(60, '?'), "..'"));
}

TEST_CASE("rules of a file cover all sizes of a collective, in order") {
  const auto refused = [](const char* rules) {
    Tuning tuning{this_machine(), {}};
    tuning.put({"mpi", 2, 1, {}, Rules(rules, "")});
    return error_of([&] { Tuning::parse(tuning.text()); });
  };
  CHECK(refused("all_reduce=ring:0-9;swing:10-max") == "nothing");
  CHECK(refused("all_reduce=swing:10-max;ring:0-9") ==
        "all_reduce: expected a rule for 0 bytes on, got swing:10-9223372036854775807");
  CHECK(refused("all_reduce=ring:0-9;swing:11-max") ==
        "all_reduce: expected a rule for 10 bytes on, got swing:11-9223372036854775807");
  CHECK(refused("all_reduce=ring:0-9;swing:9-max") ==
        "all_reduce: expected a rule for 10 bytes on, got swing:9-9223372036854775807");
  CHECK(refused("all_reduce=ring:0-9") == "all_reduce: no rule for 10 bytes and more");
  CHECK(refused("all_reduce=ring;swing") ==
        "all_reduce: expected a rule for -1 bytes on, got swing:0-9223372036854775807");
}

TEST_CASE("of the groups that were measured the one most alike counts, if any is") {
  Tuning tuning;
  for (const int ranks : {2, 8, 64}) tuning.put({"mpi", ranks, 1, {}, {}});
  tuning.put({"mpi", 32, 4, {}, {}});
  tuning.put({"mpi", 4, 1, {}, {}, true});
  const auto ranks = [&](std::string_view transport, int world, int nodes, bool crowded = false) {
    const Tuning::Group* const group = tuning.nearest(transport, world, nodes, crowded);
    return group == nullptr ? 0 : group->ranks;
  };
  CHECK(ranks("mpi", 2, 1) == 2);
  CHECK(ranks("mpi", 3, 1) == 2);
  CHECK(ranks("mpi", 4, 1) == 2);  // as far from 8, which came later
  CHECK(ranks("mpi", 5, 1) == 8);
  CHECK(ranks("mpi", 16, 1) == 8);
  CHECK(ranks("mpi", 17, 1) == 0);
  CHECK(ranks("mpi", 32, 4) == 32);
  CHECK(ranks("mpi", 40, 5) == 32);
  CHECK(ranks("mpi", 32, 16) == 0);
  CHECK(ranks("mpi", 32, 1) == 64);
  CHECK(ranks("mpi", 2, 2) == 0);
  CHECK(ranks("threads", 2, 1) == 0);
  CHECK(ranks("mpi", 4, 1, true) == 4);
  CHECK(ranks("mpi", 8, 1, true) == 4);
  CHECK(ranks("mpi", 64, 1, true) == 0);
  CHECK(Tuning::parse(tuning.text()).text() == tuning.text());
}

TEST_CASE("ranks choose by a file, sub-groups by their own size, and without one as is built in") {
  const Folder folder;
  Tuning tuning = tuning_for_threads();
  tuning.groups[0].crowded = true;  // of this machine's cores nothing is known here
  tuning.put(tuning_for_threads().groups[0]);
  const std::string path = folder.file(tuning.text());
  CHECK(algorithm(2, with(path), 1000) == "staged_slices");
  CHECK(algorithm(2, with(path), 1001) == "ring");
  CHECK(algorithm(2, {}, 1000) == "slots");
  ProcessGroup::Options by_messages = with(path);
  by_messages.shared_memory = false;
  CHECK(algorithm(2, by_messages, 1001) == "binomial");
  ProcessGroup::Options asked = with(path);
  asked.algorithms = "all_reduce=recursive_doubling";
  CHECK(algorithm(2, asked, 1000) == "recursive_doubling");
  // 4 ranks are near enough, 5 are not.
  CHECK(algorithm(4, with(path), 1001) == "ring");
  CHECK(algorithm(5, with(path), 1000) == "slots");
  CHECK(algorithm(4, with(path), 1001, 2) == "ring");
}

TEST_CASE("files that are no good are passed over, and what is built in serves") {
  const Folder folder;
  const std::string good = tuning_for_threads().text();
  Tuning foreign = tuning_for_threads();
  foreign.machine = "96 cores, of another";
  std::string other_version = good;
  other_version.replace(other_version.find("tuning 1"), 8, "tuning 2");
  for (const std::string& text : {std::string(), good.substr(0, good.size() / 2), foreign.text(),
                                  other_version, std::string(100'000, 'x')}) {
    CAPTURE(text);
    CHECK(read_tuning(folder.file(text)).empty());
    CHECK(algorithm(2, with(folder.file(text)), 1000) == "slots");
  }
  CHECK(read_tuning((folder.path / "none").string()).empty());
  CHECK(read_tuning(folder.path.string()).empty());
  CHECK(read_tuning("/dev/zero").empty());
  CHECK(algorithm(2, with((folder.path / "none").string()), 1000) == "slots");
}

TEST_CASE("a saved file is found where nobody says where") {
  const Folder folder;
  const std::string cache = folder.path.string();
  const Variable off("PEAL_TUNING", nullptr), home("HOME", "/nowhere"),
      place("XDG_CACHE_HOME", cache.c_str());
  const TuningPath found = tuning_path();
  CHECK(found.path.starts_with(cache + "/peal/tuning-"));
  CHECK_FALSE(found.by_user);
  CHECK(ProcessGroup::Options::from_environment().tuning.empty());  // there is none
  save_tuning(found.path, tuning_for_threads());
  CHECK(ProcessGroup::Options::from_environment().tuning == found.path);
  CHECK(algorithm(2, ProcessGroup::Options::from_environment(), 1000) == "staged_slices");
  for (const char* none : {"0", "off", ""}) {
    const Variable said("PEAL_TUNING", none);
    CHECK(ProcessGroup::Options::from_environment().tuning.empty());
    CHECK(tuning_path().path.empty());
  }
  {
    const Variable said("PEAL_TUNING", "/tmp/another");
    CHECK(ProcessGroup::Options::from_environment().tuning == "/tmp/another");
    CHECK(tuning_path().by_user);
  }
  const Variable relative("XDG_CACHE_HOME", "here");  // means nothing, by its own rules
  CHECK(tuning_path().path.starts_with("/nowhere/.cache/peal/tuning-"));
  const Variable homeless("HOME", nullptr);
  CHECK(tuning_path().path.empty());
}

TEST_CASE("who asks is told what runs, and why, once for each kind of call") {
  const Folder folder;
  const std::string path = folder.file(tuning_for_threads().text());
  ProcessGroup::Options options = with(path);
  options.tells_choices = true;
  options.algorithms = "reduce=chain/512";
  const std::string log = logged(folder, [&] {
    run_ranks(2, options, [](const ProcessGroup& group) {
      for (const std::int64_t count : {1000, 1001, 1000, 1001, 500}) {
        group.all_reduce(Tensor::zeros({count})).wait();
      }
      group.reduce(Tensor::zeros({100}, DType::f64)).wait();
      group.broadcast(Tensor::zeros({100}, DType::f64)).wait();
      const Tensor data = Tensor::zeros({3});
      group.run(Collective::all_reduce, "ring", data, data, {3}).wait();
    });
  });
  const std::string who = "[rank 0] [comm] rank 0: ";
  const auto times_told = [&](const std::string& line) {
    std::size_t times = 0;
    for (auto at = log.find(line); at != std::string::npos; at = log.find(line, at + 1)) ++times;
    return times;
  };
  INFO(log);
  CHECK(times_told(who +
                   "all_reduce of 4000 bytes (f32) on 2 ranks that share memory: "
                   "staged_slices in chunks of 1024 bytes (measured on 2 ranks, " +
                   path + ")\n") == 1);
  CHECK(times_told("all_reduce of 4004 bytes") == 0);  // much like it
  CHECK(times_told("all_reduce of 2000 bytes (f32)") == 1);
  CHECK(times_told(who + "reduce of 800 bytes (f64) on 2 ranks that share memory: chain in "
                         "chunks of 512 bytes (PEAL_ALGO)\n") == 1);
  CHECK(times_told("broadcast of 800 bytes (f64) on 2 ranks that share memory: slots (built "
                   "in)\n") == 1);
  CHECK(times_told("all_reduce of 12 bytes (f32) on 2 ranks that share memory: ring (named in "
                   "the call)\n") == 1);
  CHECK(times_told("[rank 1]") == 0);
}

TEST_CASE("PEAL_DEBUG knows algo") {
  {
    const Variable said("PEAL_DEBUG", "algo");
    CHECK(ProcessGroup::Options::from_environment().tells_choices);
  }
  const Variable said("PEAL_DEBUG", "everything");
  CHECK(error_of([] { (void)ProcessGroup::Options::from_environment(); }) ==
        "PEAL_DEBUG: expected algo, got 'everything'");
}
