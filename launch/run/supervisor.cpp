// SPDX-License-Identifier: Apache-2.0
#include <peal/launch/process_end.h>
#include <peal/launch/run/supervisor.h>

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <optional>
#include <utility>

namespace peal::launch {
namespace {

// abort() is how a program ends that nobody catches an Error in, and SIGPIPE tells that nobody
// reads it: either may well be since another rank has failed, as an exit code.
bool is_struck(int status) {
  return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGPIPE;
}

}  // namespace

Supervisor::Supervisor(Signals& signals, const Patience& patience, std::string host, int orders)
    : signals_(signals),
      patience_(patience),
      host_(std::move(host)),
      is_agent_(orders >= 0),
      orders_(orders),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO) {}

Supervisor::~Supervisor() {
  if (!all_over()) send(SIGKILL, true);
  orphans_.end({}, [] { return false; });
}

bool Supervisor::all_over() const {
  return std::ranges::all_of(members_, [](const Member& member) { return member.over; });
}

void Supervisor::say(const std::string& text) { err_.add(name_ + ": " + text + "\n"); }

void Supervisor::start(const std::string& name, Command command, const std::string& tag) {
  std::optional<Pipe> out, err;
  const bool by_lines = !tag.empty() || is_agent_;
  if (by_lines) {
    command.out = out.emplace().write.fd();
    command.err = err.emplace().write.fd();
  }
  members_.push_back({.name = name, .process = launch::start(command, signals_.before())});
  warden_.guard(members_.back().process);
  if (!by_lines) return;
  lines_.emplace_back(std::move(out->read), is_agent_ ? print_mark + tag : tag, out_);
  lines_.emplace_back(std::move(err->read), tag, err_);
}

void Supervisor::send(int signal, bool to_group) {
  if (signal == SIGTERM && std::exchange(sent_term_, true)) return;
  for (Member& member : members_) {
    if (member.over) continue;
    if (member.agent && stage_ != Stage::cut) {
      order(member, signal);
    } else {
      kill(to_group ? -member.process : member.process, signal);
    }
  }
}

void Supervisor::enter(Stage stage) {
  stage_ = stage;
  waits_ = patience();
  deadline_ = Clock::now() + waits_;
  if (stage == Stage::terminated) {
    send(SIGTERM, true);
    send(SIGCONT, true);  // a stopped one hears nothing else
  } else if (stage == Stage::killed || stage == Stage::cut) {
    send(SIGKILL, true);
  }
}

bool Supervisor::has_agents() const { return std::ranges::any_of(members_, &Member::agent); }

// A SIGKILL needs no second one, but where it is an agent's to send.
bool Supervisor::is_last() const {
  return stage_ == Stage::cut || (stage_ == Stage::killed && !has_agents());
}

// The kernel may be seconds about a killed process's memory, and about its GPU's; an agent waits as
// long for it, and says then what it leaves, which may take the way here long. Who ends for a
// signal, and not since another failed, may be about to save.
std::chrono::nanoseconds Supervisor::patience() const {
  const bool saves = outcome_.signal == SIGTERM && outcome_.code == 0;
  if (stage_ == Stage::terminated && saves) return patience_.term;
  if (stage_ < Stage::killed) return patience_.grace;
  const auto kernel = std::max<std::chrono::nanoseconds>(patience_.grace, std::chrono::seconds(5));
  return is_last() ? kernel : kernel + std::chrono::seconds(10);
}

void Supervisor::next_stage() {
  const double seconds = std::chrono::duration<double>(waits_).count();
  std::string names;
  for (const Member& member : members_) {
    if (member.over) continue;
    names += (names.empty() ? "" : ", ") + member.name;
    if (is_last()) names += concat(" (host ", host_, ", process ", member.process, ")");
  }
  if (is_last()) {
    say(fmt::format(
        "{} still there {:g} s after SIGKILL: left behind; ps says what holds it (D: the "
        "kernel, for a device or a file system; t: a debugger)",
        names, seconds));
    outcome_.stuck = true;
    if (is_agent_) out_.add(stuck_record());
    if (outcome_.code == 0) outcome_.code = 128 + SIGKILL;
    return;
  }
  const Stage next = static_cast<Stage>(static_cast<int>(stage_) + 1);
  say(fmt::format("{} still there {:g} s later: {}", names, seconds,
                  next == Stage::terminated ? "SIGTERM" : "SIGKILL"));
  enter(next);
}

void Supervisor::shall_end(int signal) {
  if (outcome_.signal != 0) return;
  outcome_.signal = signal;
  signalled_ = Clock::now();
  // The job has gone on without those that had failed: what comes of it is up to who is left.
  if (keeps_survivors_ && !all_over()) outcome_.code = 0;
}

void Supervisor::hear(int signal) {
  if (signal == SIGCHLD) return reap();
  if (signal == SIGUSR1 || signal == SIGUSR2) return send(signal, false);
  hurried_ = hurried_ || all_over();  // it is for what they have left behind
  if (outcome_.signal == 0) {
    if (signal == SIGINT && !is_agent_ && !all_over())
      say("interrupted: ends the ranks; another Ctrl-C kills them at once");
    shall_end(signal);
    send(signal, true);
    const Stage next = signal == SIGTERM ? Stage::terminated : Stage::leaving;
    if (stage_ < next) enter(next);
    return;
  }
  // A terminal that closes may send SIGHUP twice, and timeout a signal to a process and to its
  // group.
  const bool is_another = (signal == SIGINT && outcome_.signal == SIGINT) ||
                          Clock::now() - signalled_ >= std::chrono::seconds(1);
  if (is_another && stage_ < Stage::killed) enter(Stage::killed);
}

// Of several at once a signal was sooner: who fails since another is gone needs time to see it.
void Supervisor::reap() {
  std::vector<Member*> ends;
  bool well = false;
  int status = 0;
  for (pid_t process; (process = waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto member = std::ranges::find(members_, process, &Member::process);
    if (member == members_.end() || member->over) continue;  // an orphan
    member->over = true;
    member->status = status;
    if (!member->agent) warden_.forget_if_empty(process);
    if (status != 0 || member->agent) ends.push_back(&*member);
    well = well || status == 0;
  }
  std::ranges::stable_partition(ends,
                                [](const Member* member) { return is_struck(member->status); });
  for (Member* member : ends) {
    if (member->agent) {
      agent_ended(*member);
    } else {
      failed(*member, member->status,
             concat(member->name, " (host ", host_, ", process ", member->process, ") ",
                    process_end(member->status, oom_kills_.since_begin())));
    }
  }
  // Of several at once nobody knows who was first.
  left_well_ = left_well_ || (well && outcome_.code != 0);
}

bool Supervisor::ended_by_us() const { return outcome_.signal != 0 || stage_ > Stage::leaving; }

// The first counts, and others that a signal ends that nobody here has sent, or that are `lost`
// with their host, until this has cut them off. Where there are such, the first one's exit code
// came of theirs: a rank that is killed takes its time, a connection more, and its peers see that.
void Supervisor::failed(Member& member, int status, const std::string& what, int ranks, bool lost) {
  const bool struck = lost || is_struck(status);
  const bool later = outcome_.code != 0 && !struck;
  if (later && !keeps_survivors_) return;
  if (outcome_.code == 0) outcome_.code = exit_code(status);
  if (lost ? outcome_.signal != 0 || stage_ >= Stage::killed : ended_by_us()) return;
  if (struck && first_exit_) --members_[*std::exchange(first_exit_, std::nullopt)].lost;
  if (!later) {
    member.lost = std::min(member.lost + ranks, member.ranks);
    member.host_lost = lost;
    if (!struck && (!member.agent || member.told)) {
      first_exit_ = static_cast<std::size_t>(&member - members_.data());
    }
  }
  if (is_agent_) {
    out_.add(failure_record(status, what));
  } else {
    say(what);
  }
  if (stage_ == Stage::running && !keeps_survivors_) enter(Stage::leaving);
}

// The end of a rank's program is a barrier of all that are left then: one that has ended well, once
// another had failed, tells that the job has.
void Supervisor::forgive() {
  const bool has_failed = outcome_.code != 0 && outcome_.signal == 0 && !outcome_.stuck;
  if (!keeps_survivors_ || !left_well_ || !has_failed) return;
  say("the ranks that were left have ended well: exit status 0");
  outcome_.code = 0;
}

void Supervisor::pass_output_on() {
  for (Lines& lines : lines_) {
    if (lines.to().broken()) {
      lines.end();  // its rank learns it as it would without us: SIGPIPE
    } else if (!lines.to().full()) {
      lines.read_some();
    }
  }
}

// What lies there still. Once a signal comes that should end this process nobody's reading is
// waited for. It is not waited for the ends of the streams: who is no child of anybody here may
// have them too.
void Supervisor::finish_output() {
  while (const std::optional<int> signal = signals_.next()) hear(*signal);
  bool hurried = false;
  const auto hurries = [&] {
    while (const std::optional<int> signal = signals_.next())
      hurried = hurried || (*signal != SIGCHLD && *signal != SIGUSR1 && *signal != SIGUSR2);
    return hurried;
  };
  const auto flush = [&] {
    for (Output* output : {&out_, &err_}) output->flush(signals_.fd(), hurries);
  };
  for (Lines& lines : lines_) {
    for (int reads = 0; reads < Lines::reads_of_a_pipe && lines.read_some(); ++reads) flush();
    lines.end();
  }
  flush();
}

void Supervisor::wait_for_events() {
  std::vector<pollfd> files{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
  for (const Output* output : {&out_, &err_})
    files.push_back({.fd = output->waits() ? output->fd() : -1, .events = POLLOUT, .revents = 0});
  for (const Lines& lines : lines_)
    files.push_back({.fd = lines.to().full() ? -1 : lines.fd(), .events = POLLIN, .revents = 0});
  for (const Member& member : members_)
    files.push_back(
        {.fd = member.unsaid.empty() ? -1 : member.orders.fd(), .events = POLLOUT, .revents = 0});
  files.push_back({.fd = orders_, .events = POLLIN, .revents = 0});
  int milliseconds = -1;
  if (stage_ != Stage::running) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    milliseconds = static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
  }
  if (poll(files.data(), files.size(), milliseconds) <= 0) return;
  if (files[1].revents != 0) out_.write_some();
  if (files[2].revents != 0) err_.write_some();
  for (Member& member : members_) say_rest(member);
  pass_output_on();
  if (files.back().revents != 0) read_orders();
  while (const std::optional<int> signal = signals_.next()) hear(*signal);
}

// While nothing else is to be waited for: whether somebody wants it to be over.
bool Supervisor::hears_end() {
  while (const std::optional<int> signal = signals_.next()) hear(*signal);
  pollfd orders{.fd = orders_, .events = POLLIN, .revents = 0};
  if (poll(&orders, 1, 0) > 0) read_orders();
  return hurried_ || stage_ == Stage::cut;
}

Outcome Supervisor::run() {
  reap();
  while (!all_over() && !outcome_.stuck) {
    wait_for_events();
    if (stage_ != Stage::running && !all_over() && Clock::now() >= deadline_) next_stage();
  }
  outcome_.stuck = outcome_.stuck || stuck_elsewhere_;
  forgive();
  // One that is stuck would be taken for left behind by a rank; the destructor ends those.
  const int left =
      outcome_.stuck ? 0 : orphans_.end(patience_.grace, [this] { return hears_end(); });
  if (left > 0) say(concat("ended ", left, " process", left == 1 ? "" : "es", " left behind"));
  // Who ends this host's part beside the launcher takes the host from the job.
  if (is_agent_ && (outcome_.code == 0 || ended_by_orders())) out_.add(done_record());
  finish_output();
  for (const Member& member : members_) {
    outcome_.lost.push_back(member.lost);
    outcome_.lost_hosts.push_back(member.host_lost);
  }
  return outcome_;
}

}  // namespace peal::launch
