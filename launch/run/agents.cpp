// SPDX-License-Identifier: Apache-2.0
// What a supervisor does with agents, and what it does as one.
#include <peal/launch/process_end.h>
#include <peal/launch/run/supervisor.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

namespace peal::launch {
namespace {

constexpr std::string_view failure = "failed ", stuck = "stuck", done = "done";

}  // namespace

std::string failure_record(int status, std::string what) {
  std::ranges::replace(what, '\n', ' ');  // it is one line
  return concat(record_mark, failure, status, " ", what, "\n");
}

std::string stuck_record() { return concat(record_mark, stuck, "\n"); }

std::string done_record() { return concat(record_mark, done, "\n"); }

void Supervisor::start_agent(const std::string& name, int ranks, Command command,
                             const std::string& plan) {
  Pipe orders, out, err;
  command.in = orders.read.fd();
  command.out = out.write.fd();
  command.err = err.write.fd();
  const std::size_t place = members_.size();
  members_.push_back({.name = name,
                      .process = launch::start(command, signals_.before()),
                      .agent = true,
                      .ranks = ranks,
                      .orders = std::move(orders.write)});
  lines_.emplace_back(std::move(out.read), "", out_);
  lines_.back().set_record([this, place](auto record) { hear_record(members_[place], record); });
  lines_.emplace_back(std::move(err.read), "", err_);
  orders.read.close();  // or it would seem to be read after the agent's end
  Member& member = members_[place];
  fcntl(member.orders.fd(), F_SETFL, O_NONBLOCK);  // it may be long in coming
  member.unsaid = plan;
  say_rest(member);
}

// As much as there is room for. Who does not read any more has ended, and that is seen otherwise.
void Supervisor::say_rest(Member& member) {
  std::string& text = member.unsaid;
  while (!text.empty()) {
    const ssize_t written = write(member.orders.fd(), text.data(), text.size());
    if (written < 0 && errno == EAGAIN) return;
    text.erase(0, written > 0 ? static_cast<std::size_t>(written) : text.size());
  }
}

void Supervisor::order(Member& member, int signal) {
  if (signal == SIGKILL) return member.orders.close();
  member.unsaid += static_cast<char>(signal);
  say_rest(member);
}

// Those of a peal-run on another host, which keeps the time.
void Supervisor::read_orders() {
  unsigned char signal = 0;
  if (read(orders_, &signal, 1) != 1) {
    orders_ = -1;
    if (stage_ < Stage::killed) return enter(Stage::cut);
    stage_ = Stage::cut;  // with the deadline of those that are killed already
    return;
  }
  const bool ends = signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGCONT;
  if (ends) {
    hurried_ = hurried_ || all_over();  // as in hear()
    ordered_ = ordered_ || outcome_.signal == 0;
    shall_end(signal);
  }
  send(signal, ends || signal == SIGCONT);
}

void Supervisor::hear_record(Member& member, std::string_view record) {
  member.answers = true;
  member.done = member.done || record == done;
  stuck_elsewhere_ = stuck_elsewhere_ || record == stuck;
  if (!record.starts_with(failure)) return;
  record.remove_prefix(failure.size());
  int status = 0;
  const char* const end = record.data() + record.size();
  const auto [stop, problem] = std::from_chars(record.data(), end, status);
  if (problem != std::errc{} || status == 0 || stop == end || *stop != ' ') return;  // none of ours
  member.told = true;
  failed(member, status, std::string(stop + 1, end));
}

// It has told what happened to its ranks, unless it was never there, or is so no more: that may
// well look like success (an exit code of 0, of what should have started it).
void Supervisor::agent_ended(Member& member) {
  // No more than a pipe holds: who has its end too may write for ever.
  for (Lines& lines : lines_) {
    for (int reads = 0; reads < Lines::reads_of_a_pipe && lines.read_some(); ++reads) continue;
  }
  if (member.done && (member.told || member.status == 0)) return;
  failed(member, member.status == 0 ? W_EXITCODE(255, 0) : member.status,
         concat(member.name,
                member.answers ? " was lost: the connection "
                               : " could not be reached, or has no peal-run of this path: what "
                                 "should start it there ",
                process_end(member.status)),
         member.ranks, !member.done);
}

}  // namespace peal::launch
