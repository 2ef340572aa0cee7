// SPDX-License-Identifier: Apache-2.0
// peal-test: a rank of `peal test`. With the argument "collectives" it checks those alone, over
// whatever the ranks were started by.
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/terminated.h>
#include <peal/launch/tools/test/checks.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace peal::launch {
namespace {

void say(const Job& job, const std::string& line) {
  if (!job.is_main()) return;
  std::puts(line.c_str());
  std::fflush(stdout);  // at once, where it goes to a file
}

void run(Job& job, const Check& check) {
  try {
    const std::string seen = check.run(job);
    job.group().barrier().wait();
    say(job, concat("ok  ", check.name, ": ", seen));
  } catch (const Terminated&) {
    throw;  // an end that was asked for is none that a check has found
  } catch (const std::exception& error) {
    throw Error(concat("peal test: ", check.name, ": ", error.what()));
  }
}

// Where a training would be: as it was told, else on GPUs where every rank sees one.
Device device_of(Job& job) {
  const char* const said = std::getenv("PEAL_DEVICE");
  if (said != nullptr && *said != 0) return job.device(said);
  const bool sees = device_count(DeviceType::cuda) > 0;
  const auto all = job.group().all_gather_object(sees ? "yes" : "no");
  return std::ranges::count(all, "no") == 0 ? job.device("cuda") : Device{};
}

bool on_one_node(const Job& job) {
  const auto& nodes = job.group().nodes().node;
  return std::ranges::all_of(nodes, [&](int node) { return node == nodes[0]; });
}

// `device`: where a training is, too.
std::vector<Check> checks(const Job& job, Device device) {
  std::vector<Check> all;
  for (Check& check : collectives_over_each(job)) {
    check.name = "collectives " + check.name;
    all.push_back(std::move(check));
  }
  if (device.type != DeviceType::cpu) {
    all.push_back({concat("collectives of ", device.type == DeviceType::cuda ? "GPUs" : "devices",
                          " over ", job.group().transport(device)),
                   [=](Job& ranks) { return check_collectives(ranks.group(), device); }});
  }
  all.push_back({"samplers", check_samplers});
  for (const char* const strategy : {"ddp", "zero1", "zero2", "fsdp"}) {
    all.push_back({concat("training by ", strategy),
                   [=](Job& ranks) { return check_training(ranks, strategy, device); }});
  }
  if (on_one_node(job)) all.push_back({"resuming", check_resume});
  return all;
}

}  // namespace
}  // namespace peal::launch

int main(int argc, char** argv) {
  using namespace peal;
  using namespace peal::launch;
  const bool only_collectives = argc > 1 && std::string_view(argv[1]) == "collectives";
  return run_main([&](Job& job) {
    if (only_collectives) {
      return run(job, {concat("collectives over ", job.group().transport()),
                       [](Job& ranks) { return check_collectives(ranks.group()); }});
    }
    const Device device = device_of(job);
    for (const Check& check : checks(job, device)) run(job, check);
    if (!on_one_node(job))
      say(job, "--  resuming: not tried, ranks of several nodes may share no folder");
  });
}
