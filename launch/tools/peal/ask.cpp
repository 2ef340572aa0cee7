// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/command_line.h>
#include <peal/launch/tools/peal/ask.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;

// Without what people put around a word.
std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
  return begin == line.npos ? "" : line.substr(begin, end - begin + 1);
}

// "none" says that it shall be empty, which an empty answer cannot.
void ask(const ConfigField& field, Config& config, std::istream& in, std::ostream& out) {
  for (;;) {
    const std::string now = text_of(config, field);
    out << field.question << " [" << now << "]: " << std::flush;
    std::string line;
    PEAL_CHECK(std::getline(in, line), "the answers ended at '", field.question,
               "'; nothing was written (--default writes a file without questions)");
    std::string answer = trimmed(line);
    if (answer.empty()) answer = now;
    if (answer == "none") answer = "";
    const std::string fault = set(config, field, answer);
    if (fault.empty()) return;
    out << "  " << fault << "\n";
  }
}

// What a file has already, to start from.
Config before(const fs::path& path) {
  std::error_code none;
  if (!fs::exists(path, none)) return config_of_this_machine();
  try {
    return read_config(path);
  } catch (const Error& error) {
    std::cerr << "peal config: " << error.what() << "; it is written anew\n";
    return config_of_this_machine();
  }
}

void show(const fs::path& path) {
  const Config config = read_config(path);
  std::cout << path.string() << "\n";
  for (const ConfigField& field : config_fields()) {
    std::cout << "  " << field.key << ": " << text_of(config, field) << "\n";
  }
}

}  // namespace

Config ask(Config config, std::istream& in, std::ostream& out) {
  for (const ConfigField& field : config_fields()) {
    if (field.asked(config)) {
      ask(field, config, in, out);
    } else {
      // What an earlier answer left without a question has its default: hosts of one node.
      set(config, field, text_of(Config(), field));
    }
  }
  return config;
}

int config_command(int argc, char** argv) {
  bool is_default = false, only_shows = false, force = false;
  std::string file;
  CommandLine line(
      "peal config [options]\n\nAsks how trainings are started here, and writes the file that "
      "`peal "
      "launch` goes by.\nAn empty answer takes what stands in brackets, and 'none' takes nothing.");
  line.flag("--default", &is_default, "write one for this machine, and ask nothing");
  line.flag("--force", &force, "with --default: replace a file that is there");
  line.flag("--show", &only_shows, "print what the file has, and write nothing");
  line.option("--file", &file, "where it is (PEAL_CONFIG, else the user's own)");
  if (const auto status = line.parse(argc, argv)) return *status == 0 ? 0 : 2;
  const auto found = file.empty() ? config_path() : fs::path(file);
  PEAL_CHECK(found, "there is no place for the file: ",
             std::getenv("PEAL_CONFIG") != nullptr ? "PEAL_CONFIG is none" : "HOME is not set",
             "; name one by --file");
  const fs::path path = *found;
  if (!only_shows) {
    std::error_code none;
    PEAL_CHECK(!is_default || force || !fs::exists(path, none), path.string(),
               " is there already; --force replaces it");
    write_config(path,
                 is_default ? config_of_this_machine() : ask(before(path), std::cin, std::cout));
  }
  show(path);
  return 0;
}

}  // namespace peal::launch
