// SPDX-License-Identifier: Apache-2.0
// Supervisor: watches over processes that are one job (mpirun, torchrun's agent). Where one ends
// with a failure, the others are given a moment, in which their collectives fail and they say so,
// then SIGTERM, then SIGKILL, and who is there then still, in the kernel, is left behind; or they
// are left alone, as they go on without it (keep_survivors()). A signal
// that should end this process goes to all of them, and a second SIGINT, or another signal a second
// later, ends them at once; SIGUSR1 and SIGUSR2 go to all as well. SIGTERM goes to nobody twice: a
// training that saves takes the second for impatience (training/termination.h). When all have ended
// so does whatever they have started, and nothing of them remains.
//
// They are ranks, or peal-runs on other hosts (agents), each of which supervises the ranks there:
// it hears signals as bytes on its standard input, whose end ends all, and tells of failures in its
// output (record_mark), and in the end that it has told all: one that ends without that was lost.
// Thread safety: the main thread of a process that has no other.
#pragma once

#include <peal/launch/process_end.h>
#include <peal/launch/run/child.h>
#include <peal/launch/run/orphans.h>
#include <peal/launch/run/output.h>
#include <peal/launch/run/signals.h>
#include <peal/launch/run/warden.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {

// What came of a job.
struct Outcome {
  int code = 0;        // of the first that failed: its exit code, or 128 and its signal
  int signal = 0;      // that came from outside and ended the job
  bool stuck = false;  // one does not end by SIGKILL either: nothing can take its place
  // How many ranks failed by themselves, and not since another had; by process that was started.
  std::vector<int> lost;
  std::vector<bool> lost_hosts;  // by process, too: an agent's, which nothing is heard of any more
};

// How long ranks have to end by themselves.
struct Patience {
  std::chrono::nanoseconds grace;  // from a failure to SIGTERM, and from there to SIGKILL
  std::chrono::nanoseconds term;   // from a SIGTERM that came from outside to SIGKILL
};

// What an agent tells: of a failure, whose `status` is waitpid()'s; that it leaves a rank behind;
// and that it has told all.
std::string failure_record(int status, std::string what);
std::string stuck_record();
std::string done_record();

class Supervisor {
 public:
  // `host` is for people. `orders`: where an agent hears what to do; below 0 for what is none.
  Supervisor(Signals& signals, const Patience& patience, std::string host, int orders = -1);
  ~Supervisor();  // those that still run are ended

  // Of the command, for what it says.
  void set_name(std::string name) { name_ = std::move(name); }
  // `name` is for people. Its output comes by lines with `tag` before them, or as it is where
  // there is no tag. CannotStart.
  void start(const std::string& name, Command command, const std::string& tag);
  // An agent for so many ranks, which reads `plan` first.
  void start_agent(const std::string& name, int ranks, Command command, const std::string& plan);
  // Where a rank fails the others go on for as long as they like, and if one of them ends well, the
  // job has ended well. After a signal that should end the job, what has failed before it counts no
  // more. Before run(); not for agents.
  void keep_survivors() { keeps_survivors_ = true; }
  // Until all have ended.
  Outcome run();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { running, leaving, terminated, killed, cut };
  struct Member {
    std::string name;
    pid_t process;
    bool over = false;
    int status = 0;
    int lost = 0;  // of its ranks
    // Of an agent:
    bool agent = false;
    bool host_lost = false;
    // It is there; it has told of a failure, and all that it had to tell.
    bool answers = false, told = false, done = false;
    int ranks = 1;
    OpenFile orders = {};
    std::string unsaid = {};  // what it has yet to read there
  };

  bool all_over() const;
  void say(const std::string& text);
  void send(int signal, bool to_group);
  void enter(Stage stage);
  bool has_agents() const;
  bool is_last() const;
  std::chrono::nanoseconds patience() const;
  void next_stage();
  void hear(int signal);
  void shall_end(int signal);
  void read_orders();
  static void order(Member& member, int signal);
  static void say_rest(Member& member);
  void hear_record(Member& member, std::string_view record);
  void reap();
  bool ended_by_us() const;
  void forgive();
  bool ended_by_orders() const { return outcome_.signal == 0 || ordered_; }
  void failed(Member& member, int status, const std::string& what, int ranks = 1,
              bool lost = false);
  void agent_ended(Member& member);
  void wait_for_events();
  bool hears_end();
  void pass_output_on();
  void finish_output();

  Signals& signals_;
  Patience patience_;
  std::string host_, name_ = "peal-run";
  const bool is_agent_;
  int orders_;
  Warden warden_;  // before orphans_, of which it is none
  Orphans orphans_;
  Output out_, err_;
  std::vector<Lines> lines_;
  std::vector<Member> members_;
  Stage stage_ = Stage::running;
  bool hurried_ = false;  // somebody wants it to be over, and no rank is left to be told
  bool ordered_ = false;  // the signal that should end all came from the launcher
  bool sent_term_ = false;
  bool keeps_survivors_ = false;
  bool left_well_ = false;                  // one has ended well since another had failed
  bool stuck_elsewhere_ = false;            // an agent has told it
  std::chrono::nanoseconds waits_{};        // from the stage's beginning to deadline_
  Clock::time_point deadline_, signalled_;  // the latter: when the first signal came
  OomKills oom_kills_;
  // Whose rank was the first to fail, by an exit code, while no rank was ended by a signal.
  std::optional<std::size_t> first_exit_;
  Outcome outcome_;
};

}  // namespace peal::launch
