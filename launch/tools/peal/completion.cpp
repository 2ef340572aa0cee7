// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/command_line.h>
#include <peal/launch/run/hosts.h>
#include <peal/launch/tools/peal/completion.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <sstream>

namespace peal::launch {
namespace {

// The words of a command of the program that this is, and of its own commands.
std::string words_of(const std::string& command) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string asked = shell_word(self) + " " + command + " " + list_words_option;
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(asked.c_str(), "r"), close);
  PEAL_CHECK(pipe != nullptr, "no process for ", asked);
  std::string text;
  char part[4096];
  while (const std::size_t got = std::fread(part, 1, sizeof part, pipe.get())) {
    text.append(part, got);
  }
  return text;
}

// Lines of "PATH: WORDS" become entries of a table of bash.
std::string table(const std::vector<std::string>& commands) {
  std::string all;
  for (const std::string& command : commands) all += command + " ";
  std::string text = concat("  [peal]='", all, "--help --version'\n");
  for (const std::string& command : commands) {
    std::istringstream lines(words_of(command));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t colon = line.find(':');
      if (colon == line.npos || line.find('\'') != line.npos) continue;
      const std::string path = line.substr(0, colon);
      text += concat("  ['peal ", command, path.empty() ? "" : " ", path, "']='",
                     line.substr(colon + 1), "'\n");
    }
  }
  return text;
}

// A word NAME=A,B is an option with these values; where nothing fits, files do.
constexpr const char* function = R"script(
_peal() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path=peal word offered='' at
  [[ $current == '=' ]] && current=''
  [[ $before == '=' ]] && before=${COMP_WORDS[COMP_CWORD-2]}
  for ((at = 1; at < COMP_CWORD; ++at)); do
    word="$path ${COMP_WORDS[at]}"
    if [[ -n ${_peal_words[$word]-} ]]; then path=$word; fi
  done
  for word in ${_peal_words[$path]}; do
    if [[ $word == "$before="* ]]; then
      offered=${word#*=}
      offered=${offered//,/ }
      break
    fi
    offered+=" ${word%%=*}"
  done
  COMPREPLY=($(compgen -W "$offered" -- "$current"))
}
complete -o default -F _peal peal
)script";

}  // namespace

std::string completion(const std::string& shell, const std::vector<std::string>& commands) {
  PEAL_CHECK(shell == "bash" || shell == "zsh", "expected bash or zsh, got '", shell, "'");
  const std::string begin =
      shell == "zsh" ? "autoload -U +X compinit && compinit\n"
                       "autoload -U +X bashcompinit && bashcompinit\ntypeset -A _peal_words\n"
                     : "declare -A _peal_words\n";
  return concat("# Made by `peal completion ", shell, "`: source <(peal completion ", shell, ")\n",
                begin, "_peal_words=(\n", table(commands), ")", function);
}

}  // namespace peal::launch
