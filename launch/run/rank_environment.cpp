// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/run/child.h>
#include <peal/launch/run/rank_environment.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <random>

namespace peal::launch {
namespace {

// The launcher that counts is the innermost.
constexpr const char* of_other_launchers[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_LOCAL_RANK",
                                              "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE",
                                              "PMIX_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
                                              // torchrun's agent holds the port; here rank 0 does.
                                              "TORCHELASTIC_USE_AGENT_STORE"};

bool is_free(int port) {
  const OpenFile file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return bind(file.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const Attempt& attempt, int rank, int local_rank,
                                          int local_world, bool bound) {
  std::map<std::string, std::string> own{
      {"RANK", concat(rank)},
      {"WORLD_SIZE", concat(attempt.world)},
      {"LOCAL_RANK", concat(local_rank)},
      {"LOCAL_WORLD_SIZE", concat(local_world)},
      {"MASTER_ADDR", attempt.host},
      {"MASTER_PORT", concat(attempt.port)},
      {"TORCHELASTIC_RUN_ID", attempt.run},
      {"TORCHELASTIC_RESTART_COUNT", concat(attempt.restart)},
      {"TORCHELASTIC_MAX_RESTARTS", concat(attempt.max_restarts)},
      {"PEAL_STORE_SECRET", attempt.secret}};
  if (!bound) own["PEAL_BIND_TO"] = "none";
  if (!attempt.gpus.empty()) own["CUDA_VISIBLE_DEVICES"] = attempt.gpus;
  std::vector<std::string> all;
  for (const std::string& entry : inherited) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!own.contains(name) && std::ranges::count(of_other_launchers, name) == 0)
      all.push_back(entry);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

int free_port() {
  int end = 32768;  // where those begin
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> end;
  std::random_device random;
  const int least = end > 20000 ? 10000 : 1024, most = std::max(end - 1, least + 1000);
  std::uniform_int_distribution<int> draw(least, std::min(most, 65535));
  for (int look = 0; look < 1000; ++look) {
    const int port = draw(random);
    if (is_free(port)) return port;
  }
  fail("no free port was found; name one with --master-port");
}

}  // namespace peal::launch
