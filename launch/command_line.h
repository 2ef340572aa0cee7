// SPDX-License-Identifier: Apache-2.0
// The command line of a program: options with defaults, checks and help, read into variables. CLI11
// does the work, in one source, so that a program which has options compiles in a second and not in
// twenty.
//
//   int epochs = 1;
//   launch::CommandLine line("Trains a network.");
//   line.option("--epochs", &epochs, "how often the training set is gone through").positive();
//   if (const auto status = line.parse(argc, argv)) return *status;
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace peal::launch {

// Asks a program for its words, for the completion of a shell: lines of "COMMAND: WORDS", the first
// without a command, for what stands before one; a word is a command, or an option with the values
// that it may have, --bind-to=core,none.
inline constexpr const char* list_words_option = "--list-words";

class CommandLine {
 public:
  // What an option is read into. It holds the default, which the help shows where it is above 0, or
  // is text; an optional one stays empty where the option is not given. A bool is true where its
  // option stands alone, or what follows: --shuffle, --shuffle false.
  using Value = std::variant<int*, std::int64_t*, std::uint64_t*, double*, bool*,
                             std::optional<std::int64_t>*, std::optional<double>*,
                             std::optional<bool>*, std::string*, std::vector<std::string>*>;

  class Option {
   public:
    // What parse() refuses, with a line on stderr that says what is allowed: the option left out; a
    // number that is not above 0, below 0, or not between the two, which are allowed themselves;
    // another word; a path where no file is. Bounds are in the option's unit.
    Option& required();
    Option& positive();
    Option& not_negative();
    Option& between(double least, double most);
    Option& one_of(const std::vector<std::string>& words);
    Option& existing_file();
    // It may be given several times, and the last one counts (getopt).
    Option& last_counts();
    // Where it is not given, the variable's value is read like it, if there is one.
    Option& environment(const std::string& name);
    // A heading of the help.
    Option& group(const std::string& title);

   private:
    friend class CommandLine;
    explicit Option(void* option) : option_(option) {}
    void* option_;
  };

  // `what` the program does, for --help.
  explicit CommandLine(const std::string& what);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // "--name", or "name" for one that is told by its place. REQUIRES: the variable outlives parse().
  Option option(const std::string& name, Value value, const std::string& what = "");
  void flag(const std::string& name, bool* value, const std::string& what);
  // A command of its own with options of its own (git log): `run` is called in parse() where it is
  // asked for. With one of these, a command has to be named. Owned by this.
  CommandLine& command(const std::string& name, const std::string& what, std::function<void()> run,
                       const std::string& group = "");

  // Reads the arguments. Where list_words_option is all that there is, it prints what could stand
  // in its place, and that is all. Nothing, and the program goes on; or the status that it has to
  // end with, after --help (0) or a mistake, which was printed: of an option that there is not,
  // with the nearest.
  std::optional<int> parse(int argc, char** argv);

 private:
  struct Parser;
  explicit CommandLine(std::unique_ptr<Parser> parser);

  std::unique_ptr<Parser> parser_;
};

}  // namespace peal::launch
