// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/comm/transport/tcp/addresses.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace peal::comm {
namespace {

struct Address {
  std::string text{};
  std::array<unsigned char, 16> bytes{};
  std::size_t bits = 0;  // of its family, 0 where it is none
  std::size_t net = 0;   // bits of its net
};

std::size_t ones_in(const void* bytes, std::size_t count) {
  std::size_t ones = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned char byte = static_cast<const unsigned char*>(bytes)[i];
    ones += static_cast<std::size_t>(std::popcount(byte));
  }
  return ones;
}

Address address_in(const std::string& said) {
  const auto slash = said.find('/');
  Address address{.text = said.substr(0, slash)};
  if (inet_pton(AF_INET, address.text.c_str(), address.bytes.data()) == 1) {
    address.bits = 32;
  } else if (inet_pton(AF_INET6, address.text.c_str(), address.bytes.data()) == 1) {
    address.bits = 128;
  }
  if (slash != std::string::npos) {
    std::from_chars(said.data() + slash + 1, said.data() + said.size(), address.net);
  }
  return address;
}

bool same_net(const Address& own, const Address& other) {
  if (own.bits != other.bits || own.net == 0 || own.net > own.bits) return false;
  for (std::size_t bit = 0; bit < own.net; ++bit) {
    const unsigned mask = 0x80U >> bit % 8;
    if (((own.bytes[bit / 8] ^ other.bytes[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> own_addresses() {
  const char* const wanted = std::getenv("PEAL_SOCKET_IFNAME");
  const std::string_view device = wanted == nullptr ? "" : wanted;
  ifaddrs* all = nullptr;
  PEAL_CHECK(getifaddrs(&all) == 0,
             "[tcp] the system names no network devices: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> listed(all, freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_netmask == nullptr) continue;
    const bool loopback = (each->ifa_flags & IFF_LOOPBACK) != 0;
    if ((each->ifa_flags & IFF_UP) == 0 || (device.empty() ? loopback : device != each->ifa_name)) {
      continue;
    }
    char text[INET6_ADDRSTRLEN] = {};
    if (each->ifa_addr->sa_family == AF_INET) {
      const auto* const at = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
      const auto* const mask = reinterpret_cast<const sockaddr_in*>(each->ifa_netmask);
      inet_ntop(AF_INET, &at->sin_addr, text, sizeof text);
      found.push_back(concat(std::string_view(text), "/", ones_in(&mask->sin_addr, 4)));
    } else if (each->ifa_addr->sa_family == AF_INET6) {
      const auto* const at = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
      const auto* const mask = reinterpret_cast<const sockaddr_in6*>(each->ifa_netmask);
      if (IN6_IS_ADDR_LINKLOCAL(&at->sin6_addr)) continue;  // it needs the device's name as well
      inet_ntop(AF_INET6, &at->sin6_addr, text, sizeof text);
      found.push_back(concat(std::string_view(text), "/", ones_in(&mask->sin6_addr, 16)));
    }
  }
  PEAL_CHECK(device.empty() || !found.empty(), "PEAL_SOCKET_IFNAME: no device '", device,
             "' here is up and has an address (ip address lists them)");
  return found;
}

std::vector<std::string> in_order(const std::vector<std::string>& theirs,
                                  const std::vector<std::string>& own) {
  std::vector<Address> mine;
  for (const std::string& each : own) mine.push_back(address_in(each));
  const auto distance = [&](const std::string& address) {
    const Address other = address_in(address);
    if (std::ranges::any_of(mine, [&](const Address& a) { return a.text == other.text; })) {
      return 2;
    }
    return std::ranges::any_of(mine, [&](const Address& a) { return same_net(a, other); }) ? 0 : 1;
  };
  std::vector<std::string> ordered = theirs;
  std::ranges::stable_sort(ordered, {}, distance);
  for (std::string& each : ordered) each.resize(std::min(each.find('/'), each.size()));
  return ordered;
}

}  // namespace peal::comm
