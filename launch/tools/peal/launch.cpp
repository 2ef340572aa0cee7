// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/log.h>
#include <peal/launch/run/part.h>
#include <peal/launch/run/start.h>
#include <peal/launch/tools/peal/build.h>
#include <peal/launch/tools/peal/config.h>
#include <peal/launch/tools/peal/launch.h>
#include <peal/launch/tools/peal/ranks_folder.h>

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

namespace peal::launch {
namespace {

void offer(const char* name, const std::string& value) { setenv(name, value.c_str(), 0); }

std::vector<Host> hosts_of(const Config& config) {
  std::vector<Host> hosts;
  if (config.hosts.empty()) return hosts;
  hosts = parse_hosts(config.hosts);
  for (Host& host : hosts) host.slots = config.ranks_per_node;
  return hosts;
}

// How the file stood when it was read.
class Defaults {
 public:
  void fill_in(Options& options) {
    found_ = find_config(options.config);
    const bool here = options.hosts.empty();
    if (!found_.path) return use_all_devices(options, here);
    const Config& config = found_.config;
    if (here) options.hosts = hosts_of(config);
    if (here && !config.hosts.empty()) check_fit(options);
    if (here && options.ranks == 0) options.ranks = config.ranks_per_node * config.nodes;
    if (options.gpus.empty()) options.gpus = config.gpus;
    offer("PEAL_DEVICE", config.device);
    offer("PEAL_PRECISION", config.precision);
  }

  void announce(const Options& options) const {
    log_info(options.name, ": ", options.ranks, options.ranks == 1 ? " rank" : " ranks",
             place_of(options), "; device ", said("PEAL_DEVICE"), which_gpus(options),
             ", precision ", said("PEAL_PRECISION"), "; ",
             found_.path ? found_.path->string() : "no config file");
  }

 private:
  // Hosts that no command line has named, by which these would be explained.
  void check_fit(const Options& options) const {
    const int room = slots(options.hosts);
    PEAL_CHECK(options.ranks <= room, found_.path->string(), ": nodes and ranks_per_node are for ",
               room, " ranks, and -n is ", options.ranks, "; make ranks_per_node larger there");
    PEAL_CHECK(!options.keep_survivors, found_.path->string(), ": hosts are ", found_.config.hosts,
               ", and --keep-survivors is for one machine; --config none starts on this one");
  }

  // Where nothing is said there is a rank for each.
  static void use_all_devices(Options& options, bool here) {
    int devices = device_count(DeviceType::cuda);
    if (devices == 0 || !here) return;
    const auto named = std::ranges::count(options.gpus, ',') + 1;
    if (!options.gpus.empty()) devices = static_cast<int>(named);
    if (options.ranks == 0) options.ranks = devices;
    offer("PEAL_DEVICE", "cuda");
  }

  static std::string said(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : "as the program says";
  }

  static std::string which_gpus(const Options& options) {
    if (!options.gpus.empty()) return " (GPUs " + options.gpus + ")";
    const int devices = device_count(DeviceType::cuda);
    return devices == 0 ? "" : concat(" (", devices, " here)");
  }

  static std::string place_of(const Options& options) {
    std::string text;
    for (const Host& host : options.hosts) {
      text += concat(text.empty() ? " on " : ", ", host.name, ":", host.slots);
    }
    if (!text.empty()) return text;
    const int cores = std::min(count_cores(allowed_cpus()), cpu_quota());
    const int each = options.bind ? cores / options.ranks : 0;
    return each > 0 ? concat(" on this machine, ", each, " of its ", cores, " cores each")
                    : concat(" on this machine, which share its ", cores, " cores");
  }

  FoundConfig found_;
};

int start(const std::vector<std::string>& arguments, Caller caller,
          const std::function<void(const Options&)>& started = {}) {
  Defaults defaults;
  caller.fill_in = [&](Options& options) { defaults.fill_in(options); };
  caller.announce = [&](const Options& options) {
    defaults.announce(options);
    if (started) started(options);
  };
  return start_ranks(arguments, caller);
}

// Ranks that mpirun starts, for which alone that is. The exit status; what goes wrong is said.
int collectives_over_mpi(const Options& options) {
  std::fflush(stdout);
  if (std::system("command -v mpirun >/dev/null") != 0) {
    fmt::print("--  collectives over mpi: not tried, no mpirun is found\n");
    return 0;
  }
  const OpenFile nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Signals signals;
  Supervisor supervisor(signals, patience_of(options.grace, options.term_grace), host_name());
  supervisor.set_name("peal test");
  // Ranks that have met have deadlines, but an mpirun that does not start them has none.
  Command command{
      .words = {"timeout", "-k", "10", "600", own_folder() + "/peal-mpirun", "-n",
                std::to_string(options.ranks), own_folder() + "/peal-test", "collectives"},
      .environment = own_environment(),
      .in = nothing.fd()};
  supervisor.start("collectives over mpi", std::move(command), "");
  const Outcome outcome = supervisor.run();
  if (outcome.code == 124 && outcome.signal == 0) {
    fmt::print(stderr,
               "peal test: mpirun has not ended within 600 s; try it by itself: mpirun -n {} "
               "true\n",
               options.ranks);
  }
  return outcome.code;
}

}  // namespace

int launch_command(const std::vector<std::string>& arguments) {
  return start(arguments, {.name = "peal launch"});
}

int test_command(const std::vector<std::string>& arguments) {
  Caller caller{.name = "peal test",
                .program = own_folder() + "/peal-test",
                .what =
                    " [options]\n\nStarts ranks as `peal launch` does, and checks on them that "
                    "collectives, samplers, training and resuming are right.\nThe exit status is "
                    "0 where all is well, 1 where a check fails, which is then said, and else "
                    "`peal launch`'s."};
  Options used;  // without ranks: none were started
  std::optional<RanksFolder> folder;
  int status = start(arguments, caller, [&](const Options& options) {
    PEAL_CHECK(options.max_restarts == 0 && !options.elastic && !options.keep_survivors,
               "what fails is to be seen: --max-restarts, --elastic and --keep-survivors are for "
               "`peal launch`");
    used = options;
    if (used.hosts.empty()) folder.emplace();
    offer("PEAL_LOG", "warning");  // a line of each check is enough
    offer("PEAL_PROGRESS", "none");
  });
  folder.reset();
  if (status != 0 || used.ranks == 0) return status;
  if (used.hosts.empty() && build::has_mpi) status = collectives_over_mpi(used);
  if (status != 0) return status;
  fmt::print("Test is a success! You are ready for your distributed training!\n");
  return 0;
}

std::string own_folder() { return std::filesystem::read_symlink("/proc/self/exe").parent_path(); }

}  // namespace peal::launch
