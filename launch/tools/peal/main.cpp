// SPDX-License-Identifier: Apache-2.0
// peal: the one command, whose first word says what it does (git, accelerate). What needs little is
// here; the rest are programs beside it, peal-NAME, so that none waits for what it does not need.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/command_line.h>
#include <peal/launch/run/remote.h>
#include <peal/launch/tools/peal/ask.h>
#include <peal/launch/tools/peal/build.h>
#include <peal/launch/tools/peal/completion.h>
#include <peal/launch/tools/peal/environment_report.h>
#include <peal/launch/tools/peal/launch.h>

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace peal::launch {
namespace {

using Words = std::vector<std::string>;

struct Command {
  std::string name, what;
  std::function<int(const Words&)> run;  // of the words behind it
};
const std::vector<Command>& commands();

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Command& command : commands()) all.push_back(command.name);
  return all;
}

// With what main() would have.
template <class F>
int with_argv(const std::string& name, Words words, F f) {
  words.insert(words.begin(), "peal " + name);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  const int count = static_cast<int>(argv.size());
  argv.push_back(nullptr);
  return f(count, argv.data());
}

int env_command(int argc, char** argv) {
  CommandLine line(
      "peal env\n\nPrints what a bug report needs: the build, the machine, what is set.");
  if (const auto status = line.parse(argc, argv)) return *status == 0 ? 0 : 2;
  fmt::print("{}", environment_report());
  return 0;
}

int completion_command(int argc, char** argv) {
  std::string shell = "bash";
  CommandLine line(
      "peal completion [SHELL]\n\nPrints what completes peal's words there: source <(peal "
      "completion "
      "bash)");
  line.option("shell", &shell, "which").one_of({"bash", "zsh"});
  if (const auto status = line.parse(argc, argv)) return *status == 0 ? 0 : 2;
  fmt::print("{}", completion(shell, names()));
  return 0;
}

// The tool takes this process's place.
int tool(const std::string& name, const Words& words) {
  const std::string file = own_folder() + "/peal-" + name;
  return with_argv(name, words, [&](int, char** argv) {
    execv(file.c_str(), argv);
    fail(concat("cannot start ", file, ": ", std::strerror(errno),
                "; it is installed beside peal (in a build: cmake --build, with PEAL_TOOLS)"));
    return 2;
  });
}

const std::vector<Command>& commands() {
  const auto beside = [](const char* name) {
    return [name](const Words& words) { return tool(name, words); };
  };
  static const std::vector<Command> all{
      {"launch", "starts a program as the ranks of a job (peal-run)", launch_command},
      {"config", "asks how, and writes it to a file for launch",
       [](const Words& words) { return with_argv("config", words, config_command); }},
      {"env", "prints what a bug report needs",
       [](const Words& words) { return with_argv("env", words, env_command); }},
      {"test", "checks that ranks train rightly on this machine", test_command},
      {"estimate-memory", "what a model takes, on one rank or shared out over several",
       beside("estimate-memory")},
      {"schedule", "the schedules of collectives: verified, drawn, simulated (peal-schedule)",
       beside("schedule")},
      {"completion", "prints a script that completes these words in bash or zsh",
       [](const Words& words) { return with_argv("completion", words, completion_command); }}};
  return all;
}

void print_help() {
  fmt::print("usage: peal COMMAND [options]\n\n");
  for (const Command& command : commands()) {
    fmt::print("  {:<16} {}\n", command.name, command.what);
  }
  fmt::print("\npeal COMMAND --help says more of each. peal --version prints the version.\n");
}

int run(const Words& words) {
  if (words.empty()) {
    print_help();
    return 2;
  }
  const std::string& name = words[0];
  if (name == "-h" || name == "--help" || name == "help") {
    print_help();
    return 0;
  }
  if (name == "--version") {
    fmt::print("peal {}\n", build::version);
    return 0;
  }
  if (name == agent_option) return launch_command(words);  // a launch's part on another host
  for (const Command& command : commands()) {
    if (command.name == name) return command.run({words.begin() + 1, words.end()});
  }
  fail(concat("there is no command '", name, "'", did_you_mean(name, names()),
              " (peal --help lists them)"));
}

}  // namespace
}  // namespace peal::launch

int main(int argc, char** argv) {
  try {
    return peal::launch::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    fmt::print(stderr, "peal{}{}: {}\n", argc > 1 ? " " : "", argc > 1 ? argv[1] : "",
               error.what());
    return 2;
  }
}
