// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/machine_file.h>
#include <nlohmann/json.hpp>

#include <exception>
#include <fstream>
#include <vector>

namespace peal::launch {
namespace {

nlohmann::json points(const comm::Rate& rate) {
  auto list = nlohmann::json::array();
  for (const auto& point : rate.points()) list.push_back({point.bytes, point.seconds});
  return list;
}

comm::Rate rate(const nlohmann::json& list) {
  std::vector<comm::Rate::Point> points;
  for (const auto& point : list) points.push_back({point.at(0), point.at(1)});
  return comm::Rate(std::move(points));
}

}  // namespace

void save_machine(const std::string& path, const comm::Machine& machine) {
  const nlohmann::json json{
      {"ranks", machine.nodes.node.size()}, {"start", machine.start},
      {"latency", machine.inside.latency},  {"link", points(machine.inside.rate)},
      {"bus", points(machine.bus)},         {"reduce", points(machine.reduce)},
      {"copy", points(machine.copy)}};
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  file.close();
  PEAL_CHECK(!file.fail(), "cannot write ", path);
}

comm::Machine load_machine(const std::string& path) {
  std::ifstream file(path);
  PEAL_CHECK(file.good(), "cannot read ", path, "; bench/calibrate writes such a file");
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    const int ranks = json.at("ranks");
    PEAL_CHECK(ranks >= 1 && ranks <= 1 << 20, "expected 1 to 1048576 ranks, got ", ranks);
    const comm::Link link{json.at("latency"), rate(json.at("link"))};
    return {.nodes = comm::single_node(ranks),
            .inside = link,
            .between = link,
            .bus = rate(json.at("bus")),
            .reduce = rate(json.at("reduce")),
            .copy = rate(json.at("copy")),
            .start = json.at("start"),
            .stragglers = {}};
  } catch (const std::exception& error) {
    fail(concat(path, ": not a machine that bench/calibrate wrote: ", error.what()));
  }
}

}  // namespace peal::launch
