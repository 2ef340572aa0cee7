// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/error.h>
#include <peal/launch/training/report.h>

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace peal::launch {

std::string line_of(int epoch, const EpochReport& report) {
  std::string words = fmt::format("epoch {}: loss {:.4f}", epoch + 1, report.loss);
  for (const Value& value : report.metrics) words += ", test " + in_words({value});
  return words + fmt::format(", {:.1f} s, {:.0f} samples/s, communication exposed {:.1f} %",
                             report.seconds, report.samples_per_second, report.exposed * 100);
}

void write_json(const std::string& path, const RunArguments& arguments, int world,
                const Metadata& settings, const std::vector<EpochReport>& epochs) {
  nlohmann::json out(settings_of(arguments, world, settings));
  out["world"] = world;
  out["batch_size"] = arguments.batch_size;
  out["seed"] = arguments.seed;
  for (const EpochReport& epoch : epochs) {
    nlohmann::json row{{"loss", epoch.loss},
                       {"seconds", epoch.seconds},
                       {"samples_per_second", epoch.samples_per_second},
                       {"exposed", epoch.exposed}};
    for (const auto& [name, value] : epoch.metrics) row["test_" + name] = value;
    out["epochs"].push_back(row);
  }
  std::ofstream file(path);
  file << out.dump(2) << '\n';
  PEAL_CHECK(file.flush(), path, ": cannot be written");
}

}  // namespace peal::launch
