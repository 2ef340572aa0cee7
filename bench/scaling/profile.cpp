// SPDX-License-Identifier: Apache-2.0
#include <peal/bench/clock.h>
#include <peal/bench/scaling/profile.h>
#include <peal/nn/nn.h>
#include <peal/nn/parallel/ddp.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <fstream>
#include <utility>

namespace peal::bench {

double Profile::bytes() const {
  double all = 0;
  for (const nn::ParameterSpec& each : parameters) {
    all += static_cast<double>(each.shape.numel()) * static_cast<double>(size_of(each.dtype));
  }
  return all;
}

Profile measure_profile(const std::string& name, const Model& model, std::int64_t batch,
                        int steps) {
  manual_seed(0);
  Job work = model.make(batch, Device{});
  nn::DistributedDataParallel ddp(work.module, comm::ProcessGroup::alone(), {.measure_every = 1});
  work.module = ddp;
  nn::SGD optimizer(ddp.parameters(), {.lr = 1e-3});
  std::vector<nn::StepProfile> all;
  for (int i = 0; i <= steps; ++i) {
    const Clock before;
    optimizer.zero_grad();
    Tensor loss = work.loss();
    const double forward = before.since_start().wall;
    loss.backward();
    const Clock after;
    optimizer.step();
    nn::StepProfile times = nn::profile_of(ddp.get_ddp_logging_data(), after.since_start().wall);
    // What the wrapper counts to backward begins with the loss.
    const double lost = std::max(0.0, forward - times.before);
    times.before += lost;
    times.backward -= lost;
    for (double& time : times.ready) time -= lost;
    if (i > 0) all.push_back(std::move(times));
  }
  const auto quickest = std::ranges::min_element(all, {}, &nn::StepProfile::step);
  Profile found{.model = name, .batch = batch, .times = *quickest, .parameters = {}};
  for (const auto& [key, tensor] : ddp.named_parameters()) {
    found.parameters.push_back({key, tensor.shape(), tensor.dtype(), tensor.requires_grad()});
  }
  return found;
}

void save_profile(const std::string& path, const Profile& profile) {
  // To a microsecond.
  const auto rounded = [](double seconds) { return std::round(seconds * 1e6) / 1e6; };
  std::ofstream file(path);
  file << nlohmann::json{{"model", profile.model},
                         {"batch", profile.batch},
                         {"before", rounded(profile.times.before)},
                         {"backward", rounded(profile.times.backward)},
                         {"after", rounded(profile.times.after)}}
              .dump();
  file.seekp(-1, std::ios::cur);
  file << ",\n\"parameters\": [";
  for (std::size_t p = 0; p < profile.parameters.size(); ++p) {
    const nn::ParameterSpec& each = profile.parameters[p];
    file << (p == 0 ? "\n" : ",\n")
         << nlohmann::json{each.name, each.shape.numel(), rounded(profile.times.ready[p])}.dump();
  }
  file << "]}\n";
  PEAL_CHECK(file.flush().good(), "cannot write ", path);
}

Profile load_profile(const std::string& path) {
  std::ifstream file(path);
  PEAL_CHECK(file.good(), "cannot read ", path, "; bench/scaling/scaling writes such a file");
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    Profile profile{.model = json.at("model"),
                    .batch = json.at("batch"),
                    .times = {.before = json.at("before"),
                              .backward = json.at("backward"),
                              .after = json.at("after"),
                              .ready = {}},
                    .parameters = {}};
    for (const auto& each : json.at("parameters")) {
      const std::int64_t elements = each.at(1);
      PEAL_CHECK(elements > 0, "expected elements, got ", elements);
      profile.parameters.push_back({each.at(0).get<std::string>(), {elements}});
      profile.times.ready.push_back(each.at(2).get<double>());
    }
    PEAL_CHECK(!profile.parameters.empty() && profile.times.backward > 0, "it has no step");
    return profile;
  } catch (const std::exception& error) {
    fail(concat(path, ": not a profile that bench/scaling/scaling wrote: ", error.what()));
  }
}

}  // namespace peal::bench
