// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/command_line.h>
#include <peal/launch/run/options.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace peal::launch {
namespace {

constexpr const char* what =
    " [options] PROGRAM [arguments]\n\n"
    "Starts PROGRAM as the ranks of a job, on this machine or several, without MPI, and watches "
    "over "
    "them.\n"
    "The exit status is that of the first rank that fails: its exit code, or 128 and its signal.";

// Nobody is there to be asked for a password; and a connection that users share is theirs to end.
// A host that is gone says nothing: it is asked every 5 s, and lost when it owes three answers.
constexpr const char* ssh =
    "ssh -T -S none -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
    "-o ServerAliveCountMax=3";

// Those without a value.
constexpr std::string_view flags[] = {"-h", "--help", "--tag", "--elastic", "--keep-survivors"};

// How many of the arguments are peal-run's own.
std::size_t own(const std::vector<std::string>& arguments) {
  std::size_t at = 0;
  while (at < arguments.size() && arguments[at].size() > 1 && arguments[at][0] == '-') {
    const std::string& word = arguments[at];
    if (word == "--") break;
    const bool whole = std::ranges::count(flags, word) > 0 || word.find('=') != word.npos ||
                       (word[1] != '-' && word.size() > 2 && word != "-np");  // -n4
    at += whole ? 1 : 2;
  }
  return std::min(at, arguments.size());
}

int mistake(const std::string& name, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
  return 2;
}

// Other hosts cannot get what is not here.
void warn_of_missing(const Options& options) {
  for (const std::string& name : options.exported) {
    if (name.find('=') == name.npos && std::getenv(name.c_str()) == nullptr)
      std::fprintf(stderr, "%s: -x %s: there is no such variable here, to hand on\n",
                   options.name.c_str(), name.c_str());
  }
}

// What is left of the command line, and what is wrong with it.
std::string take_program(Options& options, std::vector<std::string> rest, const Caller& caller) {
  const bool ended = !rest.empty() && rest[0] == "--";
  if (ended) rest.erase(rest.begin());
  if (!caller.program.empty()) {
    options.program = {caller.program};
    return rest.empty() ? "" : concat("what is '", rest[0], "'? it takes options alone");
  }
  options.program = std::move(rest);
  if (!options.program.empty()) return "";
  return concat("which program? usage: ", caller.name, " [-n RANKS] [options] PROGRAM [arguments]");
}

}  // namespace

std::variant<Options, int> parse_options(const std::vector<std::string>& arguments,
                                         const Caller& caller) {
  Options options;
  options.name = caller.name;
  std::string bind = "core", hosts;
  options.rsh = ssh;
  CommandLine line(caller.name + (caller.what.empty() ? what : caller.what));
  line.option("-n,--np", &options.ranks, "ranks (1, or as many as --hosts have room for)")
      .positive();
  line.option("--gpus", &options.gpus,
              "the GPUs that they may use, as 0,1 (CUDA_VISIBLE_DEVICES); rank i of a machine "
              "takes the i-th");
  line.flag("--tag", &options.tag, "print whole lines, each with its rank before it: [2] ...");
  line.option("--bind-to", &bind,
              "core: each rank may use its even share of the cores, where there is one for each; "
              "none: all")
      .one_of({"core", "none"});
  line.option("--grace", &options.grace,
              "seconds that ranks have to end by themselves when one has failed, before SIGTERM, "
              "and from there to SIGKILL")
      .not_negative();
  line.option(
          "--term-grace", &options.term_grace,
          "seconds that ranks have after a SIGTERM to peal-run, to save and end, before SIGKILL")
      .not_negative();
  line.option("--max-restarts", &options.max_restarts,
              "how often all ranks are started again when one has failed")
      .not_negative();
  line.flag("--elastic", &options.elastic,
            "start again without the ranks that have failed, as long as --min-ranks are left; on "
            "this machine without their --gpus, too");
  line.option("--min-ranks", &options.min_ranks, "the fewest ranks to go on with").positive();
  line.flag("--keep-survivors", &options.keep_survivors,
            "leave the ranks alone that are left when one has failed, for a program that goes on "
            "with them (Job::shrink); the exit status is 0 if one of them ends well. On this "
            "machine");
  line.option("--hosts", &hosts,
              "hosts to start on, each with how many ranks, as a,b:2 (1 where it does not say): "
              "filled in this order");
  line.option("--rsh", &options.rsh,
              "what runs a command on another host, whose name and the command are added");
  line.option("-x", &options.exported,
              "NAME or NAME=VALUE: a variable that other hosts get too; PATH, LD_LIBRARY_PATH, and "
              "what begins with PEAL_, OMP_, NCCL_ or CUDA_ they get anyway");
  line.option("--master-addr", &options.address,
              "an address of the first host that the others reach (its name)");
  line.option("--master-port", &options.port, "where rank 0 listens (0: a free port)")
      .between(0, 65535);
  if (caller.fill_in) {
    line.option("--config", &options.config,
                "file of what is not said here, as `peal config` writes it (PEAL_CONFIG, or the "
                "user's own); none: there is none");
  }

  const std::size_t count = own(arguments);
  std::vector<std::string> ours(arguments.begin(),
                                arguments.begin() + static_cast<std::ptrdiff_t>(count));
  ours.insert(ours.begin(), caller.name);
  std::ranges::replace(ours, "-np", "--np");  // mpirun's
  std::vector<char*> words;
  for (std::string& word : ours) words.push_back(word.data());
  if (const auto status = line.parse(static_cast<int>(words.size()), words.data())) {
    return *status == 0 ? 0 : 2;
  }
  options.bind = bind == "core";
  const std::string unclear = take_program(
      options, {arguments.begin() + static_cast<std::ptrdiff_t>(count), arguments.end()}, caller);
  if (!unclear.empty()) return mistake(options.name, unclear);
  if (!hosts.empty()) options.hosts = parse_hosts(hosts);
  if (caller.fill_in) caller.fill_in(options);
  warn_of_missing(options);
  const int room = slots(options.hosts);
  if (options.ranks == 0) options.ranks = std::max(room, 1);
  if (room > 0 && options.ranks > room) {
    return mistake(options.name, "-n is " + std::to_string(options.ranks) +
                                     ", and --hosts has room for " + std::to_string(room) +
                                     "; say how many a host takes, as a:4");
  }
  if (options.min_ranks > options.ranks) {
    return mistake(options.name, "--min-ranks is " + std::to_string(options.min_ranks) +
                                     ", and -n " + std::to_string(options.ranks));
  }
  if (options.keep_survivors && !options.hosts.empty()) {
    return mistake(options.name,
                   "--keep-survivors is for one machine, and there are --hosts; --max-restarts "
                   "and --elastic start such a job again");
  }
  if (options.elastic && options.max_restarts == 0) {
    options.max_restarts = options.ranks - options.min_ranks;  // each loses a rank at least
  }
  return options;
}

}  // namespace peal::launch
