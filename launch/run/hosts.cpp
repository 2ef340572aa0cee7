// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/run/hosts.h>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>

namespace peal::launch {
namespace {

// An address of IPv6 has colons of its own, so that it stands in brackets.
Host parse_host(std::string_view text) {
  const std::size_t name_ends = text.starts_with('[') ? text.find(']') : 0;
  PEAL_CHECK(name_ends != text.npos, "--hosts: '", text, "' has no ]");
  const std::size_t colon = text.find(':', name_ends);
  Host host{.name = std::string(text.substr(0, colon))};
  if (text.starts_with('[')) host.name = text.substr(1, name_ends - 1);
  if (colon != text.npos) {
    const char* const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data() + colon + 1, end, host.slots);
    PEAL_CHECK(problem == std::errc{} && stop == end && host.slots > 0, "--hosts: '", text,
               "': expected HOST:RANKS, with 1 rank or more");
  }
  // A name with - first would be an option of ssh.
  PEAL_CHECK(!host.name.empty() && host.name[0] != '-', "--hosts: '", text,
             "': expected the name or the address of a host");
  return host;
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const Host host = parse_host(text.substr(0, comma));
    PEAL_CHECK(std::ranges::count(hosts, host.name, &Host::name) == 0, "--hosts: ", host.name,
               " comes twice; say ", host.name, ":2 for two ranks there");
    hosts.push_back(host);
    more = comma != text.npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return hosts;
}

int slots(const std::vector<Host>& hosts) {
  int all = 0;
  for (const Host& host : hosts) all += host.slots;
  return all;
}

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  gethostname(name, HOST_NAME_MAX);
  return name;
}

std::vector<Share> place(int ranks, const std::vector<Host>& hosts) {
  std::vector<Share> shares;
  int first = 0;
  for (int host = 0; host < static_cast<int>(hosts.size()); ++host) {
    const int count = std::min(hosts[static_cast<std::size_t>(host)].slots, ranks - first);
    if (count > 0) shares.push_back({host, first, count});
    first += count;
  }
  return shares;
}

std::string shell_word(std::string_view word) {
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

}  // namespace peal::launch
