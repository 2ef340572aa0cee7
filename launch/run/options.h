// SPDX-License-Identifier: Apache-2.0
// Options of peal-run, and of `peal launch`. They end where the program's name begins; what follows
// is the program's. Thread safety: free functions without state.
#pragma once

#include <peal/launch/run/hosts.h>

#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace peal::launch {

struct Options {
  std::string name = "peal-run";  // whose they are, for messages
  int ranks = 0;                  // on all hosts together
  std::vector<Host> hosts;        // empty: this machine alone
  std::string rsh;  // what starts a command on another host: the words before its name
  std::vector<std::string> exported;  // NAME or NAME=VALUE, for other hosts
  std::string gpus;  // as CUDA_VISIBLE_DEVICES has them; empty: that is not touched
  bool tag = false;
  bool bind = true;
  double grace = 10, term_grace = 30;  // seconds
  int max_restarts = 0;
  bool elastic = false;
  int min_ranks = 1;
  bool keep_survivors = false;
  std::string address;  // of rank 0's host, for the others; empty: its name
  int port = 0;         // 0: a free one
  std::string config;   // a file for what is not said here; only a Caller that fills in has it
  std::vector<std::string> program;
};

// Which command asks.
struct Caller {
  std::string name = "peal-run";
  // Sees what the command line said, and sets what it left as it was: ranks (0), hosts, gpus.
  std::function<void(Options&)> fill_in = {};
  std::function<void(const Options&)> announce = {};  // before the ranks are started
  // Where it always starts the same one, which has no arguments; `what` then is what that does.
  std::string program = {}, what = {};
};

// The options, or the status to end with: after --help, or a mistake, which was printed.
std::variant<Options, int> parse_options(const std::vector<std::string>& arguments,
                                         const Caller& caller = {});

}  // namespace peal::launch
