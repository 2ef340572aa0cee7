// SPDX-License-Identifier: Apache-2.0
// peal-schedule choices: by which algorithms collectives run where the user says nothing.
#include <fmt/core.h>
#include <peal/autograd/core/error.h>
#include <peal/comm/group/defaults.h>
#include <peal/comm/group/tuning.h>
#include <peal/launch/tools/schedule/commands.h>

#include <limits>
#include <string>
#include <vector>

namespace peal::launch {
namespace {

// "slots to 32767 B, then direct_slices"
std::string text_of(const comm::Rules& rules, comm::Collective what) {
  std::string text;
  for (const comm::Rules::Rule& rule : rules.all()) {
    if (rule.what != what) continue;
    if (!text.empty()) text += ", then ";
    text += rule.name();
    if (rule.last != std::numeric_limits<std::int64_t>::max()) {
      text += " to " + bytes_text(rule.last);
    }
  }
  return text;
}

void print(const std::string& title, const comm::Rules& rules) {
  if (rules.all().empty()) return;
  fmt::print("{}\n", title);
  for (const comm::Collective what : comm::all_collectives) {
    const std::string text = text_of(rules, what);
    if (!text.empty()) fmt::print("  {:<15} {}\n", name(what), text);
  }
}

}  // namespace

int choices(const ChoicesOptions& options) {
  if (options.file.empty()) {
    const std::string who =
        concat(options.ranks, " ranks, ", options.nodes, options.nodes == 1 ? " node" : " nodes",
               options.crowded ? ", fewer cores" : "");
    if (options.nodes == 1) {
      print(who + ", in memory that they share",
            comm::default_rules(options.ranks, 1, true, options.crowded));
    }
    print(who + ", by messages",
          comm::default_rules(options.ranks, options.nodes, false, options.crowded));
    return 0;
  }
  const std::string read = comm::read_tuning(options.file);
  PEAL_CHECK(!read.empty(), "choices: ", options.file, " is no tuning file for this machine");
  const auto tuning = comm::Tuning::parse(read.substr(read.find('\n') + 1));
  fmt::print("measured on {}\n", tuning.machine);
  for (const comm::Tuning::Group& group : tuning.groups) {
    const std::string who =
        concat(group.ranks, " ranks, ", group.nodes,
               group.nodes == 1 ? " node, over " : " nodes, over ", group.transport);
    print(who + ", in memory that they share", group.shared);
    print(who + ", by messages", group.messages);
  }
  return 0;
}

}  // namespace peal::launch
