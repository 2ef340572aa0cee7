// SPDX-License-Identifier: Apache-2.0
// Config file (Accelerate: default_config.yaml): what `peal launch` takes where its command line
// does not say, in JSON, as `peal config` writes it:
//
//   {"ranks_per_node": 2, "nodes": 1, "hosts": "", "device": "cpu", "gpus": "", "precision":
//   "bf16",
//    "strategy": "ddp"}
//
// What is missing has its default; a key that is not one of these, and a value that makes no sense,
// is an Error. It lies at PEAL_CONFIG, or in $XDG_CONFIG_HOME/peal or ~/.config/peal. Thread
// safety: values, and files that are replaced whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace peal::launch {

struct Config {
  int ranks_per_node = 1, nodes = 1;
  std::string hosts = {};  // names apart by commas; empty: this machine
  std::string device = "cpu";
  std::string gpus = {};  // of each node, as CUDA_VISIBLE_DEVICES has them; empty: all
  std::string precision = "f32";
  std::string strategy = "ddp";
  bool operator==(const Config&) const = default;
};

// One of its values, for who reads, writes or asks. In the order of the questions.
struct ConfigField {
  std::string key, question;
  std::variant<int Config::*, std::string Config::*> value;
  // What is wrong with the value that the config has now, or nothing. It may go by fields above.
  std::function<std::string(const Config&)> fault;
  // Whether it is a question at all, after what was answered above.
  std::function<bool(const Config&)> asked;
};
const std::vector<ConfigField>& config_fields();

std::string text_of(const Config& config, const ConfigField& field);
// Sets it; what is wrong with the text, or nothing. Then the config is as it was.
std::string set(Config& config, const ConfigField& field, const std::string& text);

// What fits this machine: a rank for each of its GPUs, else one on the CPU.
Config config_of_this_machine();

// Errors name the file.
Config read_config(const std::filesystem::path& path);
// Makes the folder, too.
void write_config(const std::filesystem::path& path, const Config& config);

// Where it is or would be; nothing where PEAL_CONFIG is "none", or the user has no home.
std::optional<std::filesystem::path> config_path();

struct FoundConfig {
  std::optional<std::filesystem::path> path;  // none: there is no file
  Config config;
};
// The file that `said` names, or "none"; where it is empty, the one of config_path(), if there is
// one. Error where a file that was named is not there.
FoundConfig find_config(const std::string& said);

}  // namespace peal::launch
