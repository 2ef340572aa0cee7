// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/run/part.h>
#include <peal/launch/run/remote.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

// Of this process, for the ranks of other hosts: what peal, its libraries and the search for the
// program go by, and what the user names.
std::vector<std::string> exported(const std::vector<std::string>& wanted) {
  std::vector<std::string> all;
  for (const std::string& entry : own_environment()) {
    const std::string name = entry.substr(0, entry.find('='));
    const bool ours = std::ranges::any_of(
        std::initializer_list<std::string_view>{"PEAL_", "OMP_", "NCCL_", "CUDA_"},
        [&](std::string_view begin) { return name.starts_with(begin); });
    if (ours || name == "PATH" || name == "LD_LIBRARY_PATH" || std::ranges::count(wanted, name) > 0)
      all.push_back(entry);
  }
  for (const std::string& entry : wanted) {
    if (entry.find('=') != entry.npos) all.push_back(entry);
  }
  return all;
}

// A peal-run there: here without a remote shell, where this is that host.
std::vector<std::string> command(const std::string& host, const std::string& rsh) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  if (host == "localhost" || host == host_name()) return {self, agent_option};
  std::vector<std::string> words;
  std::istringstream all(rsh);
  for (std::string word; all >> word;) words.push_back(word);
  PEAL_CHECK(!words.empty(), "--rsh is empty");
  words.insert(words.end(), {host, shell_word(self) + " " + agent_option});
  return words;
}

std::string ranks(const Share& share) {
  if (share.count == 1) return concat("rank ", share.first);
  return concat("ranks ", share.first, " to ", share.first + share.count - 1);
}

// The plan, of the length that stands before it; what follows is for the supervisor.
std::string read_plan() {
  std::string length, plan;
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) == 1 && byte != '\n' && length.size() < 12) length += byte;
  const auto expected = static_cast<std::size_t>(std::atoi(length.c_str()));
  plan.resize(expected);
  for (std::size_t at = 0; at < expected;) {
    const ssize_t got = read(STDIN_FILENO, plan.data() + at, expected - at);
    PEAL_CHECK(got > 0, "the plan of the job ended early");
    at += static_cast<std::size_t>(got);
  }
  return plan;
}

// Before there is a supervisor.
void tell(const std::string& record) {
  std::fputs(record.c_str(), stdout);
  std::fflush(stdout);
}

void enter(const Part& part) {
  for (const std::string& entry : part.exported) {
    const std::size_t end = entry.find('=');
    setenv(entry.substr(0, end).c_str(), entry.c_str() + end + 1, 1);
  }
  PEAL_CHECK(chdir(part.folder.c_str()) == 0, "no folder ", part.folder, " (", std::strerror(errno),
             "): peal-run starts ranks in the folder it is started in");
}

}  // namespace

Outcome run_on_hosts(const Options& options, const Attempt& attempt, const std::vector<Host>& hosts,
                     const std::vector<Share>& shares, Signals& signals) {
  Supervisor supervisor(signals, patience_of(options.grace, options.term_grace), host_name());
  supervisor.set_name(options.name);
  for (const Share& share : shares) {
    const std::string& host = hosts[static_cast<std::size_t>(share.host)].name;
    const std::string plan = encode({.attempt = attempt,
                                     .first = share.first,
                                     .count = share.count,
                                     .tag = options.tag,
                                     .bind = options.bind,
                                     .grace = options.grace,
                                     .term_grace = options.term_grace,
                                     .program = options.program,
                                     .host = host,
                                     .folder = std::filesystem::current_path(),
                                     .exported = exported(options.exported)});
    supervisor.start_agent(concat("host ", host, " (", ranks(share), ")"), share.count,
                           {.words = command(host, options.rsh), .environment = own_environment()},
                           concat(plan.size(), "\n", plan));
  }
  return supervisor.run();
}

int run_as_agent() {
  Part part;
  try {
    part = decode(read_plan());
    tell(concat(record_mark, "here\n"));
    enter(part);
    Signals signals;
    Supervisor supervisor(signals, patience_of(part.grace, part.term_grace), part.host,
                          STDIN_FILENO);
    return run_part(part, supervisor, false).code;
  } catch (const std::exception& error) {
    const auto* const cannot_start = dynamic_cast<const CannotStart*>(&error);
    const int code = cannot_start == nullptr ? 2 : cannot_start->code;
    tell(failure_record(W_EXITCODE(code, 0), concat("host ", part.host, ": ", error.what())) +
         done_record());
    return code;
  }
}

}  // namespace peal::launch
