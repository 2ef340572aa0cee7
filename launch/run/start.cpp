// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/rank.h>
#include <peal/launch/run/options.h>
#include <peal/launch/run/part.h>
#include <peal/launch/run/remote.h>
#include <peal/launch/run/start.h>
#include <peal/launch/secret.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

namespace peal::launch {
namespace {

void say(const std::string& name, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
}

// A file that is opened later shall not become a standard stream.
void have_standard_streams() {
  int file;
  do file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) close(file);
}

Outcome run_here(const Options& options, const Attempt& attempt, Signals& signals) {
  const Part part{.attempt = attempt,
                  .count = attempt.world,
                  .tag = options.tag,
                  .bind = options.bind,
                  .grace = options.grace,
                  .term_grace = options.term_grace,
                  .program = options.program};
  Supervisor supervisor(signals, patience_of(options.grace, options.term_grace), host_name());
  supervisor.set_name(options.name);
  if (options.keep_survivors) supervisor.keep_survivors();
  // A terminal speaks to one process group, which is none of theirs: who reads it would be stopped.
  return run_part(part, supervisor, isatty(STDIN_FILENO) == 0);
}

// Where the others find rank 0.
std::string address(const Options& options, const Host& first, bool several) {
  const bool is_the_first = options.hosts.empty() || first.name == options.hosts.front().name;
  if (!options.address.empty() && is_the_first) return options.address;
  const std::string name = first.name.substr(first.name.rfind('@') + 1);  // without ssh's user
  return name == "localhost" && several ? host_name() : name;
}

// --gpus of one machine without those of the ranks that were lost, where each had one of its own.
std::string without_lost(const std::string& gpus, const std::vector<int>& lost) {
  std::vector<std::string> all;
  std::istringstream words(gpus);
  for (std::string word; std::getline(words, word, ',');) all.push_back(word);
  if (all.size() < lost.size()) return gpus;
  std::string left;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank < lost.size() && lost[rank] > 0) continue;
    left += (left.empty() ? "" : ",") + all[rank];
  }
  return left;
}

// Until all went well, or it is not to be tried again.
int run(const Options& options) {
  Signals signals;
  Attempt attempt{
      .run = fresh_secret(), .max_restarts = options.max_restarts, .gpus = options.gpus};
  const bool here = options.hosts.empty();
  std::vector<Host> hosts = here ? std::vector<Host>{{"127.0.0.1", options.ranks}} : options.hosts;
  for (;; ++attempt.restart) {
    attempt.world = std::min(options.ranks, slots(hosts));
    const std::vector<Share> shares = place(attempt.world, hosts);
    const auto host_of = [&](const Share& share) -> Host& {
      return hosts[static_cast<std::size_t>(share.host)];
    };
    attempt.host = address(options, host_of(shares.front()), shares.size() > 1);
    attempt.port = options.port != 0 ? options.port : free_port();
    attempt.secret = fresh_secret();
    const Outcome outcome = here ? run_here(options, attempt, signals)
                                 : run_on_hosts(options, attempt, hosts, shares, signals);
    const bool is_final = outcome.code == 0 || outcome.signal != 0 || outcome.stuck;
    if (is_final || options.max_restarts == 0) return outcome.code;
    if (attempt.restart == options.max_restarts) {
      say(options.name, concat("is not started again: --max-restarts is ", options.max_restarts));
      return outcome.code;
    }
    if (options.elastic) {
      for (std::size_t member = 0; member < outcome.lost.size(); ++member) {
        int& left = host_of(shares[here ? 0 : member]).slots;
        left = outcome.lost_hosts[member] ? 0 : left - outcome.lost[member];
      }
      if (here) attempt.gpus = without_lost(attempt.gpus, outcome.lost);
    }
    const int world = std::min(options.ranks, slots(hosts));
    if (world < options.min_ranks) {
      say(options.name, concat("is not started again: ", world,
                               " ranks are left, and --min-ranks is ", options.min_ranks));
      return outcome.code;
    }
    say(options.name, concat("starts again, ", attempt.restart + 1, " of ", options.max_restarts,
                             ", with ", world, world == 1 ? " rank" : " ranks"));
  }
}

}  // namespace

int start_ranks(const std::vector<std::string>& arguments, const Caller& caller) {
  have_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);  // where it is ignored nobody can be waited for
  try {
    if (arguments.size() == 1 && arguments[0] == agent_option) return run_as_agent();
    const auto parsed = parse_options(arguments, caller);
    if (const int* const status = std::get_if<int>(&parsed)) return *status;
    const Options& options = std::get<Options>(parsed);
    const Rank here = discover([](const char* name) { return std::getenv(name); });
    PEAL_CHECK(here.world == 1, here.launcher, " started ", here.world,
               " processes, and each would start ", options.ranks, " ranks; start ", caller.name,
               " once");
    if (caller.announce) caller.announce(options);
    return run(options);
  } catch (const CannotStart& error) {
    say(caller.name, error.what());
    return error.code;
  } catch (const std::exception& error) {
    say(caller.name, error.what());
    return 2;
  }
}

}  // namespace peal::launch
