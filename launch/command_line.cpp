// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/nearest.h>
#include <peal/launch/command_line.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <string_view>
#include <type_traits>
#include <utility>

namespace peal::launch {
namespace {

template <class T>
bool worth_showing(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value > 0;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return !value.empty();
  } else {
    return false;
  }
}

CLI::Option& cli(void* option) { return *static_cast<CLI::Option*>(option); }

// A number above 0, or 0 as well. CLI11's own checks say what they take by the largest number that
// there is.
CLI::Validator above(bool zero) {
  const auto check = [zero](std::string& text) {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return "expected a number, got '" + text + "'";
    if (zero ? value >= 0 : value > 0) return std::string();
    return std::string(zero ? "expected 0 or more" : "expected more than 0") + ", got " + text;
  };
  return CLI::Validator(check, zero ? "NONNEGATIVE" : "POSITIVE");
}

// For an option that there is not, the nearest that there is.
std::string nearest_of_app(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::string found;
  for (const std::string& word : app.remaining()) {
    if (word.starts_with("--")) found += did_you_mean(word.substr(0, word.find('=')), names);
  }
  for (const CLI::App* command : app.get_subcommands()) found += nearest_of_app(*command);
  return found;
}

// Of "TEXT:{core,none}", the type of an option that is one of some words.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == type.npos || end == type.npos) return "";
  return "=" + type.substr(begin + 1, end - begin - 1);
}

void list_words(const CLI::App& app, const std::string& path) {
  std::string words;
  for (const CLI::App* command : app.get_subcommands({})) words += " " + command->get_name();
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames()) words += " -" + name + values_of(*option);
    for (const std::string& name : option->get_lnames()) words += " --" + name + values_of(*option);
  }
  std::printf("%s:%s\n", path.c_str(), words.c_str());
  for (const CLI::App* command : app.get_subcommands({})) {
    list_words(*command, path + (path.empty() ? "" : " ") + command->get_name());
  }
}

}  // namespace

struct CommandLine::Parser {
  std::unique_ptr<CLI::App> own;  // null: a command's, which its program owns
  CLI::App& app;
  std::vector<std::unique_ptr<CommandLine>> commands;
};

CommandLine::CommandLine(const std::string& what) {
  auto app = std::make_unique<CLI::App>(what);
  CLI::App& it = *app;
  parser_ = std::unique_ptr<Parser>(new Parser{std::move(app), it, {}});
}

CommandLine::CommandLine(std::unique_ptr<Parser> parser) : parser_(std::move(parser)) {}

CommandLine::~CommandLine() = default;

CommandLine::Option CommandLine::option(const std::string& name, Value value,
                                        const std::string& what) {
  return std::visit(
      [&](auto* variable) {
        CLI::Option* option = parser_->app.add_option(name, *variable, what);
        if (worth_showing(*variable)) option->capture_default_str();
        // CLI11 would take -1 for the largest number.
        if (std::is_same_v<decltype(variable), std::uint64_t*>) {
          option->check(above(true));
        }
        using Type = std::remove_pointer_t<decltype(variable)>;
        if (std::is_same_v<Type, bool> || std::is_same_v<Type, std::optional<bool>>) {
          option->expected(0, 1)->default_str("true");
        }
        return Option(option);
      },
      value);
}

void CommandLine::flag(const std::string& name, bool* value, const std::string& what) {
  parser_->app.add_flag(name, *value, what);
}

CommandLine& CommandLine::command(const std::string& name, const std::string& what,
                                  std::function<void()> run, const std::string& group) {
  parser_->app.require_subcommand(1);
  CLI::App* app = parser_->app.add_subcommand(name, what);
  app->callback(std::move(run));
  if (!group.empty()) app->group(group);
  parser_->commands.emplace_back(
      new CommandLine(std::unique_ptr<Parser>(new Parser{nullptr, *app, {}})));
  return *parser_->commands.back();
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == list_words_option) {
    list_words(parser_->app, "");
    return 0;
  }
  try {
    parser_->app.parse(argc, argv);
  } catch (const CLI::ExtrasError& error) {
    const std::string words = error.what() + nearest_of_app(parser_->app);
    return parser_->app.exit(CLI::ParseError(words, CLI::ExitCodes::ExtrasError));
  } catch (const CLI::ParseError& error) {
    return parser_->app.exit(error);
  }
  return std::nullopt;
}

CommandLine::Option& CommandLine::Option::required() {
  cli(option_).required();
  return *this;
}

CommandLine::Option& CommandLine::Option::positive() {
  cli(option_).check(above(false));
  return *this;
}

CommandLine::Option& CommandLine::Option::not_negative() {
  cli(option_).check(above(true));
  return *this;
}

CommandLine::Option& CommandLine::Option::between(double least, double most) {
  cli(option_).check(CLI::Range(least, most));
  return *this;
}

CommandLine::Option& CommandLine::Option::one_of(const std::vector<std::string>& words) {
  cli(option_).check(CLI::IsMember(words));
  return *this;
}

CommandLine::Option& CommandLine::Option::existing_file() {
  cli(option_).check(CLI::ExistingFile);
  return *this;
}

CommandLine::Option& CommandLine::Option::last_counts() {
  cli(option_).take_last();
  return *this;
}

CommandLine::Option& CommandLine::Option::environment(const std::string& name) {
  cli(option_).envname(name);
  return *this;
}

CommandLine::Option& CommandLine::Option::group(const std::string& title) {
  cli(option_).group(title);
  return *this;
}

}  // namespace peal::launch
