// SPDX-License-Identifier: Apache-2.0
// Options, flags and commands, read into variables; mistakes end with a status.
#include <doctest/doctest.h>
#include <peal/launch/command_line.h>

#include <cstdlib>
#include <functional>
#include <optional>

using peal::launch::CommandLine;

namespace {

struct Settings {
  int epochs = 1, least = 0;
  std::int64_t batch = 32;
  std::uint64_t seed = 0;
  double lr = 0.1;
  std::string name = "plain", file;
  std::vector<std::string> words;
  bool fast = false, shuffle = false, dear = true;
  std::optional<bool> maybe;
  std::optional<std::int64_t> count;
  std::string ran;
};

// Reads the words; the status, or -1 where the program would go on.
int read(Settings& settings, std::vector<std::string> words) {
  CommandLine line("Reads words.");
  line.option("--epochs", &settings.epochs, "how many").positive();
  line.option("--batch", &settings.batch).between(1, 64).group("Size");
  line.option("--seed", &settings.seed);
  line.option("--lr", &settings.lr).not_negative();
  line.option("--name", &settings.name).one_of({"plain", "fancy"});
  line.option("--file", &settings.file).existing_file();
  line.option("-l,--least", &settings.least).last_counts();
  line.option("words", &settings.words);
  line.flag("--fast", &settings.fast, "sooner");
  line.option("--shuffle", &settings.shuffle);
  line.option("--dear", &settings.dear);
  line.option("--maybe", &settings.maybe);
  line.option("--count", &settings.count);
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return line.parse(static_cast<int>(argv.size()), argv.data()).value_or(-1);
}

int read_command(Settings& settings, std::vector<std::string> words) {
  CommandLine line("Does things.");
  line.command("rest", "nothing", [&] { settings.ran += "rest "; });
  CommandLine& work = line.command("work", "something", [&] { settings.ran += settings.name; });
  work.option("name", &settings.name).required();
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return line.parse(static_cast<int>(argv.size()), argv.data()).value_or(-1);
}

}  // namespace

TEST_CASE("what is given is read, and what is not keeps its default") {
  Settings settings;
  CHECK(read(settings, {"--epochs", "3", "--lr=1e-3", "--seed", "18446744073709551615", "--name",
                        "fancy", "--fast", "one", "two"}) == -1);
  CHECK(settings.epochs == 3);
  CHECK(settings.batch == 32);
  CHECK(settings.lr == 1e-3);
  CHECK(settings.seed == ~std::uint64_t{0});
  CHECK(settings.name == "fancy");
  CHECK(settings.words == std::vector<std::string>{"one", "two"});
  CHECK(settings.fast);
}

TEST_CASE("a bool may stand alone, and what is optional stays empty") {
  Settings settings;
  CHECK(read(settings, {"--shuffle", "--dear", "false"}) == -1);
  CHECK(settings.shuffle);
  CHECK(!settings.dear);
  CHECK(!settings.maybe);
  CHECK(!settings.count);
  CHECK(read(settings, {"--maybe", "--count", "3", "--shuffle=false"}) == -1);
  CHECK(settings.maybe == true);
  CHECK(settings.count == 3);
  CHECK(!settings.shuffle);
  CHECK(read(settings, {"--shuffle", "perhaps"}) > 0);
}

TEST_CASE("what is given twice is a mistake, or the last one counts") {
  Settings settings;
  CHECK(read(settings, {"-l7", "--least=8", "-l", "-9"}) == -1);
  CHECK(settings.least == -9);
  CHECK(read(settings, {"--epochs", "3", "--epochs", "4"}) > 0);
}

TEST_CASE("mistakes end with a status that is not 0, help with 0") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--epochs", "0"},
                                             {"--epochs", "x"},
                                             {"--epochs"},
                                             {"--batch", "65"},
                                             {"--lr", "-1"},
                                             {"--seed", "-1"},
                                             {"--name", "other"},
                                             {"--file", "/nowhere/at/all"},
                                             {"--unknown"}}) {
    Settings settings;
    CAPTURE(words[0]);
    CHECK(read(settings, words) > 0);
  }
  Settings settings;
  CHECK(read(settings, {"--help"}) == 0);
}

TEST_CASE("a command runs with its own options, and one has to be named") {
  Settings settings;
  CHECK(read_command(settings, {"work", "hard"}) == -1);
  CHECK(settings.ran == "hard");
  CHECK(read_command(settings, {"rest"}) == -1);
  CHECK(settings.ran == "hardrest ");
  CHECK(read_command(settings, {}) > 0);
  CHECK(read_command(settings, {"work"}) > 0);
  CHECK(read_command(settings, {"sleep"}) > 0);
  CHECK(settings.ran == "hardrest ");
}

TEST_CASE("an option that is not given takes its variable's value, which is checked like it") {
  std::string kind = "plain";
  const auto read = [&](std::vector<std::string> words) {
    kind = "plain";
    CommandLine line("Reads words.");
    line.option("--kind", &kind).one_of({"plain", "fancy"}).environment("THE_KIND");
    words.insert(words.begin(), "program");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return line.parse(static_cast<int>(argv.size()), argv.data()).value_or(-1);
  };
  CHECK(read({}) == -1);
  CHECK(kind == "plain");
  setenv("THE_KIND", "fancy", 1);
  CHECK(read({}) == -1);
  CHECK(kind == "fancy");
  CHECK(read({"--kind", "plain"}) == -1);
  CHECK(kind == "plain");
  setenv("THE_KIND", "odd", 1);
  CHECK(read({}) > 0);
  unsetenv("THE_KIND");
}

TEST_CASE("who asks for the words gets them, and the program does nothing") {
  Settings settings;
  CHECK(read_command(settings, {"--list-words"}) == 0);
  CHECK(settings.ran.empty());
}
