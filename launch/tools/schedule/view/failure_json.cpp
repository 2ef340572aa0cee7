// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/tensor.h>
#include <peal/comm/start/processes.h>
#include <peal/comm/store/file_store.h>
#include <peal/launch/tools/schedule/view/failure_json.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace peal::launch {

using nlohmann::json;

namespace {

using namespace std::chrono_literals;

constexpr int most_ranks = 8;
constexpr std::int64_t most_deadline_ms = 60'000;
constexpr std::int64_t c10d_ms = 600'000;  // torch.distributed's default for NCCL

std::int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / 1ns;  // one clock for all processes
}

// What happens to a rank, a line each, in a file that outlives it.
class Diary {
 public:
  explicit Diary(const std::filesystem::path& path) : file_(path) {}
  void write(const char* what, const std::string& text) {
    file_ << json{now(), what, text}.dump() << std::endl;
  }

 private:
  std::ofstream file_;
};

struct Act {
  const comm::ProcessGroup& group;
  bool victim;
  Diary& diary;

  void fails(const std::string& text) const {
    if (victim) diary.write("fails", text);
  }
  void call(const std::string& text, const std::function<comm::Work()>& f) const {
    diary.write("call", text);
    f().wait();
    diary.write("done", text);
  }
  void all_reduce(std::int64_t count) const {
    const Tensor data = Tensor::zeros({count});
    call(fmt::format("all_reduce of {}", count), [&] { return group.all_reduce(data); });
  }
  void broadcast(int root) const {
    const Tensor data = Tensor::zeros({256});
    call(fmt::format("broadcast from {}", root), [&] { return group.broadcast(data, root); });
  }
};

struct Failure {
  const char *name, *says;
  std::function<void(const Act&)> act;
};

const std::vector<Failure>& failures() {
  static const std::vector<Failure> all{
      {"killed", "Its process gets SIGKILL, as from the kernel where memory has run out.",
       [](const Act& act) {
         act.fails("is killed");
         if (act.victim) ::kill(::getpid(), SIGKILL);
       }},
      {"throws", "It throws an exception of its own between two collectives.",
       [](const Act& act) {
         act.fails("throws");
         PEAL_CHECK(!act.victim, "loss is not a number");
       }},
      {"shape", "Its tensor has an element less than the others'.",
       [](const Act& act) {
         act.fails("has 255 elements");
         act.all_reduce(act.victim ? 255 : 256);
       }},
      {"root", "It names another root.",
       [](const Act& act) {
         act.fails("names root 1");
         act.broadcast(act.victim ? 1 : 0);
       }},
      {"missing", "It leaves out a call, and is in the next one while the others wait in this.",
       [](const Act& act) {
         act.fails("leaves out a call");
         if (!act.victim) act.all_reduce(256);
         act.broadcast(0);
       }},
      {"stopped",
       "Its process is stopped (SIGSTOP), or computes for ever: nothing says that it is wrong, so "
       "the others wait until the deadline.",
       [](const Act& act) {
         act.fails("is stopped");
         if (act.victim) ::kill(::getpid(), SIGSTOP);
       }}};
  return all;
}

class Stage {
 public:
  explicit Stage(const FailureViewOptions& options) : options_(options) {
    std::string name = std::filesystem::temp_directory_path() / "peal-view-XXXXXX";
    PEAL_CHECK(::mkdtemp(name.data()) != nullptr, "view failure: cannot make a folder ", name);
    folder_ = name;
  }
  ~Stage() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  // What each rank has written.
  std::vector<json> play(const Failure& failure) {
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t parent = ::getpid(), child = ::fork();
      if (child < 0) {
        end(ranks);
        fail("view failure: cannot start a process");
      }
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // which one that is stopped hears, too
        if (::getppid() != parent) ::_exit(1);
        quiet(rank);
        in_child(failure, rank);
        ::_exit(0);
      }
      ranks.push_back(child);
    }
    wait(ranks);
    std::vector<json> all;
    for (int rank = 0; rank < options_.ranks; ++rank) all.push_back(read(rank));
    return all;
  }

 private:
  static void end(const std::vector<pid_t>& ranks) {
    for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
    for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  }
  int victim() const { return options_.ranks / 2; }
  std::filesystem::path file(int rank) const { return folder_ / fmt::format("rank-{}", rank); }

  // What it logs is no part of what the tool says.
  void quiet(int rank) const {
    const int log = ::open((file(rank).string() + ".log").c_str(), O_WRONLY | O_CREAT, 0600);
    if (log >= 0) ::dup2(log, 2);
  }

  void in_child(const Failure& failure, int rank) const {
    Diary diary(file(rank));
    try {
      comm::FileStore store(folder_ / "store", rank, options_.ranks, {.deadline = 30s});
      comm::StoreRendezvous ranks(store, rank, options_.ranks);
      const comm::ProcessGroup group = comm::processes_group(
          ranks, {.deadline = std::chrono::milliseconds(options_.deadline_ms)});
      const Act act{group, rank == victim(), diary};
      for (int step = 0; step < 3; ++step) {
        std::this_thread::sleep_for(5ms);  // it computes
        act.all_reduce(256);
      }
      failure.act(act);
      std::this_thread::sleep_for(5ms);
      act.all_reduce(256);
    } catch (const std::exception& error) {
      diary.write("learns", error.what());
    }
    diary.write("ends", "");
  }

  // One that is stopped, or has hung, ends with the others.
  void wait(std::vector<pid_t> ranks) const {
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.deadline_ms) + 30s;
    while (!ranks.empty()) {
      std::erase_if(ranks, [](pid_t rank) { return ::waitpid(rank, nullptr, WNOHANG) == rank; });
      const bool alone = ranks.size() == 1 && stopped(ranks[0]);
      if (alone || std::chrono::steady_clock::now() > limit) {
        for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
      }
      std::this_thread::sleep_for(1ms);
    }
  }
  static bool stopped(pid_t rank) {
    std::ifstream status(fmt::format("/proc/{}/stat", rank));
    std::string number, name, state;
    status >> number >> name >> state;
    return state == "T";
  }

  json read(int rank) const {
    json all = json::array();
    std::ifstream file(this->file(rank));
    for (std::string line; std::getline(file, line);) all.push_back(json::parse(line));
    return all;
  }

  const FailureViewOptions& options_;
  std::filesystem::path folder_;
};

// Times since the victim's failure; the last call before it and all behind it.
json from_failure(std::vector<json> ranks, const FailureViewOptions& options) {
  std::optional<std::int64_t> failed;
  for (const json& rank : ranks) {
    for (const json& one : rank) {
      if (one[1] == "fails") failed = one[0];
    }
  }
  PEAL_CHECK(failed, "view failure: the ranks had not come so far after the deadline of ",
             options.deadline_ms, " ms: give a longer one (--deadline)");
  const std::int64_t zero = *failed;
  json all = json::array();
  for (json& rank : ranks) {
    for (json& one : rank) one[0] = one[0].get<std::int64_t>() - zero;
    all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace

json failure_json(const FailureViewOptions& options) {
  PEAL_CHECK(options.ranks >= 2 && options.ranks <= most_ranks,
             "view failure: --ranks: expected 2 to ", most_ranks, ", got ", options.ranks);
  PEAL_CHECK(options.deadline_ms >= 1 && options.deadline_ms <= most_deadline_ms,
             "view failure: --deadline: expected 1 to ", most_deadline_ms, " ms, got ",
             options.deadline_ms);
  json shown = json::array();
  std::string known;
  for (const Failure& failure : failures()) {
    known += concat(known.empty() ? "" : ", ", failure.name);
    if (options.how != "all" && options.how != failure.name) continue;
    Stage stage(options);
    shown.push_back({{"name", failure.name},
                     {"says", failure.says},
                     {"ranks", from_failure(stage.play(failure), options)}});
  }
  PEAL_CHECK(!shown.empty(), "view failure: --how: expected all or one of ", known, ", got '",
             options.how, "'");
  return {{"kind", "failure"},
          {"title", fmt::format("Failure theatre: {} ranks, of which rank {} fails", options.ranks,
                                options.ranks / 2)},
          {"intro",
           "Each block is a run of this machine that failed while this page was made: who called "
           "what, when each rank knew, and what it then printed. Left and right go from failure to "
           "failure."},
          {"ranks", options.ranks},
          {"victim", options.ranks / 2},
          {"deadline", options.deadline_ms * 1'000'000},
          {"c10d", c10d_ms * 1'000'000},
          {"failures", std::move(shown)}};
}

}  // namespace peal::launch
