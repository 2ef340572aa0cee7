// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/atomic_file.h>
#include <peal/autograd/core/device.h>
#include <peal/autograd/core/error.h>
#include <peal/autograd/core/nearest.h>
#include <peal/launch/run/hosts.h>
#include <peal/launch/tools/peal/config.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <system_error>

namespace peal::launch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string one_of(const std::string& value, const std::vector<std::string>& words) {
  if (std::ranges::count(words, value) > 0) return "";
  std::string all = words[0];
  for (std::size_t w = 1; w < words.size(); ++w) {
    all += (w + 1 == words.size() ? " or " : ", ") + words[w];
  }
  return concat("expected ", all, ", got '", value, "'", did_you_mean(value, words));
}

std::string at_least_one(int value) {
  return value >= 1 ? "" : concat("expected 1 or more, got ", value);
}

std::string fault_of_hosts(const Config& config) {
  std::vector<Host> hosts;
  if (!config.hosts.empty()) {
    try {
      hosts = parse_hosts(config.hosts);
    } catch (const Error& error) {
      return error.what();
    }
  }
  if (std::ranges::any_of(hosts, [](const Host& host) { return host.slots > 1; })) {
    return concat("expected names alone, got '", config.hosts,
                  "': ranks_per_node says how many ranks each has");
  }
  const int count = static_cast<int>(hosts.size());
  if (count == config.nodes || (count == 0 && config.nodes == 1)) return "";
  return concat("expected the names of ", config.nodes, " nodes, apart by commas, got ", count);
}

std::string fault_of_device(const Config& config) {
  try {
    parse_device(config.device);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string fault_of_gpus(const Config& config) {
  const std::string& gpus = config.gpus;
  const bool fits =
      gpus.empty() || (gpus.front() != ',' && gpus.back() != ',' && gpus.find(",,") == gpus.npos &&
                       gpus.find_first_of(" \t") == gpus.npos);
  return fits ? "" : concat("expected numbers of GPUs apart by commas, as 0,1, got '", gpus, "'");
}

std::optional<int> number(const std::string& text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  return problem == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

const ConfigField* field_named(const std::string& key) {
  const auto& fields = config_fields();
  const auto found = std::ranges::find(fields, key, &ConfigField::key);
  return found == fields.end() ? nullptr : &*found;
}

std::string set_from_json(Config& config, const ConfigField& field, const Json& value) {
  if (std::holds_alternative<int Config::*>(field.value)) {
    return value.is_number_integer() ? set(config, field, value.dump())
                                     : concat("expected a whole number, got ", value.dump());
  }
  return value.is_string() ? set(config, field, value.get<std::string>())
                           : concat("expected text, got ", value.dump());
}

Json parse(const fs::path& path) {
  std::ifstream file(path);
  PEAL_CHECK(file.is_open(), path.string(),
             ": there is no such file, or it cannot be read; `peal config` writes one");
  try {
    return Json::parse(file);
  } catch (const std::exception& error) {
    fail(concat(path.string(), ": no JSON: ", error.what()));
  }
}

}  // namespace

const std::vector<ConfigField>& config_fields() {
  const auto always = [](const Config&) { return true; };
  static const std::vector<ConfigField> fields{
      {"ranks_per_node", "How many ranks on each node", &Config::ranks_per_node,
       [](const Config& c) { return at_least_one(c.ranks_per_node); }, always},
      {"nodes", "How many nodes (machines)", &Config::nodes,
       [](const Config& c) { return at_least_one(c.nodes); }, always},
      {"hosts", "Their names, apart by commas", &Config::hosts, fault_of_hosts,
       [](const Config& c) { return c.nodes > 1; }},
      {"device", "Which device (cpu, cuda, cuda:N)", &Config::device, fault_of_device, always},
      {"gpus", "Which GPUs of a node, as 0,1 (empty: all)", &Config::gpus, fault_of_gpus,
       [](const Config& c) { return c.device != "cpu"; }},
      {"precision", "Precision (f32, bf16, f16)", &Config::precision,
       [](const Config& c) {
         return one_of(c.precision, {"f32", "bf16", "f16"});
       },
       always},
      {"strategy", "How `peal estimate-memory` shares a model out (ddp, zero1, zero2, fsdp)",
       &Config::strategy,
       [](const Config& c) {
         return one_of(c.strategy, {"ddp", "zero1", "zero2", "fsdp"});
       },
       always}};
  return fields;
}

std::string text_of(const Config& config, const ConfigField& field) {
  return std::visit([&](auto member) { return concat(config.*member); }, field.value);
}

std::string set(Config& config, const ConfigField& field, const std::string& text) {
  Config changed = config;
  if (const auto* const member = std::get_if<int Config::*>(&field.value)) {
    const std::optional<int> value = number(text);
    if (!value) return concat("expected a whole number, got '", text, "'");
    changed.*(*member) = *value;
  } else {
    changed.*std::get<std::string Config::*>(field.value) = text;
  }
  std::string fault = field.fault(changed);
  if (fault.empty()) config = changed;
  return fault;
}

Config config_of_this_machine() {
  Config config;
  if (const int gpus = device_count(DeviceType::cuda); gpus > 0) {
    config.ranks_per_node = gpus;
    config.device = "cuda";
  }
  return config;
}

Config read_config(const fs::path& path) {
  const Json json = parse(path);
  PEAL_CHECK(json.is_object(), path.string(), ": expected an object of JSON, {...}");
  std::vector<std::string> keys;
  for (const ConfigField& field : config_fields()) keys.push_back(field.key);
  for (const auto& [key, value] : json.items()) {
    PEAL_CHECK(field_named(key) != nullptr, path.string(), ": there is no key '", key, "'",
               did_you_mean(key, keys));
  }
  Config config;
  for (const ConfigField& field : config_fields()) {  // in their order, for they go by another
    const auto found = json.find(field.key);
    const std::string fault =
        found == json.end() ? field.fault(config) : set_from_json(config, field, *found);
    PEAL_CHECK(fault.empty(), path.string(), ": ", field.key, ": ", fault);
  }
  return config;
}

void write_config(const fs::path& path, const Config& config) {
  Json json;
  for (const ConfigField& field : config_fields()) {
    std::visit([&](auto member) { json[field.key] = config.*member; }, field.value);
  }
  if (path.has_parent_path()) {
    std::error_code problem;
    fs::create_directories(path.parent_path(), problem);
    PEAL_CHECK(!problem, path.parent_path().string(),
               ": cannot make this folder: ", problem.message());
  }
  const std::string text = json.dump(2) + "\n";
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

std::optional<fs::path> config_path() {
  const auto of = [](const char* value) { return std::string(value != nullptr ? value : ""); };
  const std::string said = of(std::getenv("PEAL_CONFIG"));
  if (said == "none") return std::nullopt;
  if (!said.empty()) return said;
  const std::string base = of(std::getenv("XDG_CONFIG_HOME")), home = of(std::getenv("HOME"));
  if (!base.empty()) return fs::path(base) / "peal" / "config.json";
  if (home.empty()) return std::nullopt;
  return fs::path(home) / ".config" / "peal" / "config.json";
}

FoundConfig find_config(const std::string& said) {
  if (said == "none") return {};
  if (!said.empty()) return {said, read_config(said)};
  const auto path = config_path();
  if (!path) return {};
  const char* const named = std::getenv("PEAL_CONFIG");
  std::error_code none;
  if ((named == nullptr || *named == 0) && !fs::exists(*path, none)) return {};
  return {path, read_config(*path)};
}

}  // namespace peal::launch
