// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cores.h>
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/launch/tools/peal/build.h>
#include <peal/launch/tools/peal/config.h>
#include <peal/launch/tools/peal/environment_report.h>

#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <vector>

namespace peal::launch {
namespace {

using Text = std::string;

Text gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / (1 << 30)); }

// What stands behind `name` and a colon in the first line that begins so.
Text field_of(const char* file, const Text& name) {
  std::ifstream lines(file);
  for (Text line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (!line.starts_with(name) || colon == line.npos) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return "";
}

Text first_line_of_file(const Text& file) {
  std::ifstream lines(file);
  Text line;
  std::getline(lines, line);
  return line;
}

Text first_line_of_command(const char* command) {
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command, "r"), close);
  char line[200] = {};
  if (pipe == nullptr || std::fgets(line, sizeof line, pipe.get()) == nullptr) return "none";
  Text text = line;
  text.erase(text.find_last_not_of("\r\n ") + 1);
  return text;
}

Text memory() {
  const auto kilobytes = [](const char* name) {
    return std::atof(field_of("/proc/meminfo", name).c_str()) * 1024;
  };
  return concat(gibibytes(kilobytes("MemTotal")), ", ", gibibytes(kilobytes("MemAvailable")),
                " of it available");
}

// A container sees its own cgroup as the root, others one below it.
Text cgroup_limit(const char* name) {
  const Text group = field_of("/proc/self/cgroup", "0::");
  const Text below = group.empty() ? "" : group.substr(group.find('/') + 1);
  Text limit = first_line_of_file(concat("/sys/fs/cgroup/", below, "/", name));
  if (limit.empty()) limit = first_line_of_file(concat("/sys/fs/cgroup/", name));
  return limit.empty() ? "unknown" : limit;
}

Text memory_limit() {
  const Text limit = cgroup_limit("memory.max");
  return limit.find_first_not_of("0123456789") == limit.npos ? gibibytes(std::atof(limit.c_str()))
                                                             : limit;
}

Text shared_memory() {
  struct statvfs disk {};
  if (statvfs("/dev/shm", &disk) != 0) return "there is no /dev/shm";
  const auto unit = static_cast<double>(disk.f_frsize);
  return concat(gibibytes(static_cast<double>(disk.f_blocks) * unit), ", ",
                gibibytes(static_cast<double>(disk.f_bavail) * unit), " of it free");
}

Text level_name(cpu::Level level) {
  return level == cpu::Level::avx512 ? "avx512" : level == cpu::Level::avx2 ? "avx2" : "baseline";
}

Text cpu_level() {
  Text text = level_name(cpu::best_level());
  try {
    if (cpu::current_level() != cpu::best_level()) {
      text += concat(", and PEAL_CPU_LEVEL asks for ", level_name(cpu::current_level()));
    }
  } catch (const Error& error) {
    text += concat("; ", error.what());
  }
  return text;
}

Text cores() {
  const auto allowed = allowed_cpus(), all = allowed_cpus(1);
  const int quota = cpu_quota();
  return concat(
      count_cores(allowed), " of ", count_cores(all.empty() ? allowed : all), " (cpus ",
      cpu_list(allowed), "), ",
      quota == std::numeric_limits<int>::max() ? Text("no quota") : concat("a quota of ", quota));
}

Text kernel() {
  utsname name{};
  return uname(&name) != 0 ? "unknown"
                           : concat(name.sysname, " ", name.release, ", ", name.machine);
}

Text devices() {
  const int count = device_count(DeviceType::cuda);
  Text text = concat(count, count == 1 ? " GPU" : " GPUs");
  for (int index = 0; index < count; ++index) {
    const DeviceDescription one = describe({DeviceType::cuda, index});
    text +=
        concat("; cuda:", index, ": ", one.name, ", ", gibibytes(static_cast<double>(one.memory)));
  }
  return text;
}

bool concerns_peal(const Text& name) {
  for (const char* const begin : {"PEAL_", "OMP_", "NCCL_", "MASTER_", "TORCHELASTIC_"}) {
    if (name.starts_with(begin)) return true;
  }
  return name == "CUDA_VISIBLE_DEVICES" || name == "RANK" || name == "WORLD_SIZE" ||
         name == "LOCAL_RANK" || name == "LOCAL_WORLD_SIZE";
}

Text variables() {
  std::vector<Text> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    Text text = *entry;
    const Text name = text.substr(0, text.find('='));
    if (!concerns_peal(name)) continue;
    all.push_back(name.ends_with("SECRET") ? name + "=(not shown)" : text);
  }
  std::ranges::sort(all);
  Text text;
  for (const Text& each : all) text += (text.empty() ? "" : " ") + each;
  return text.empty() ? "none" : text;
}

Text config() {
  try {
    const FoundConfig found = find_config("");
    if (!found.path) {
      const auto path = config_path();
      return path ? concat("none at ", path->string()) : "none";
    }
    Text text = found.path->string() + ":";
    for (const ConfigField& field : config_fields()) {
      text += concat(" ", field.key, "=", text_of(found.config, field));
    }
    return text;
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

Text environment_report() {
  Text text;
  const auto line = [&text](const char* name, const Text& value) {
    text += fmt::format("{:<14} {}\n", concat(name, ":"), value);
  };
  line("peal", concat(build::version, ", commit ", build::commit()));
  line("compiler", concat(build::compiler, ", ", build::type));
  line("built with", build::options);
  line("system", kernel());
  const Text model = field_of("/proc/cpuinfo", "model name");
  line("CPU", model.empty() ? "unknown" : model);
  line("CPU level", cpu_level());
  line("cores", cores());
  line("memory", memory());
  line("cgroup", concat("memory.max ", memory_limit(), ", cpu.max ", cgroup_limit("cpu.max"),
                        ", pids.max ", cgroup_limit("pids.max")));
  line("/dev/shm", shared_memory());
  line("MPI found", first_line_of_command("mpirun --version 2>/dev/null </dev/null"));
  line("devices", devices());
  line("variables", variables());
  line("config file", config());
  return text;
}

}  // namespace peal::launch
