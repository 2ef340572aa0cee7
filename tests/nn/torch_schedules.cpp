// SPDX-License-Identifier: Apache-2.0
// Writes learning rates over 20 steps of two groups, each under the expression that makes the
// scheduler in PyTorch, and momentum beside them: for torch_schedules.py. usage: torch_schedules
// FOLDER
#include <peal/autograd/ops/ops.h>
#include <peal/nn/optim/plateau.h>
#include <peal/nn/optim/schedulers.h>
#include <peal/nn/optim/sgd.h>

#include <cmath>
#include <cstdio>
#include <functional>

using namespace peal;

namespace {

using Write = std::function<void(const std::string& name, const nn::Schedule&)>;

std::vector<nn::ParameterGroup<nn::SGDOptions>> two_groups() {
  return {{{ones({1}).set_requires_grad()}, {.lr = 0.4, .momentum = 0.5}},
          {{ones({1}).set_requires_grad()}, {.lr = 0.1, .momentum = 0.5}}};
}

// Rates of both groups in 20 steps, and another setting beside them.
Tensor rates_of(nn::Optimizer& optimizer, nn::LRScheduler& scheduler, const std::string& setting) {
  std::vector<double> rates;
  for (int i = 0; i < 20; ++i) {
    for (const std::size_t group : {0, 1}) {
      rates.push_back(optimizer.lr(group));
      if (!setting.empty()) rates.push_back(optimizer.setting(setting, group));
    }
    if (i + 1 < 20) scheduler.step();
  }
  return Tensor::from(rates, {20, setting.empty() ? 2 : 4});
}

double third(std::int64_t n) { return 1.0 / static_cast<double>(n + 2); }

void write_new_rates(const Write& write) {
  write("ExponentialLR(o, 0.9)", nn::exponential_lr(0.9));
  write("ConstantLR(o, 0.25, 4)", nn::constant_lr(0.25, 4));
  write("ConstantLR(o)", nn::constant_lr());
  write("PolynomialLR(o, 4, 2.0)", nn::polynomial_lr(4, 2));
  write("PolynomialLR(o)", nn::polynomial_lr());
  write("CosineAnnealingWarmRestarts(o, 2, 2)", nn::cosine_annealing_warm_restarts(2, 2));
  write("CosineAnnealingWarmRestarts(o, 3, 1, 0.05)",
        nn::cosine_annealing_warm_restarts(3, 1, 0.05));
  write("MultiplicativeLR(o, lambda n: 1 / (n + 2))", nn::multiplicative_lr(third));
  write("LambdaLR(o, lambda n: 1 / (n + 2))", nn::lambda_lr(third));
  write("LambdaLR(o, lambda n: min((n + 1) / 6, (6 / (n + 1)) ** 0.5))", nn::inverse_sqrt_lr(6));
  write("SequentialLR(o, [ConstantLR(o, 0.1, 3), ExponentialLR(o, 0.9)], [3])",
        nn::sequential({nn::constant_lr(0.1, 3), nn::exponential_lr(0.9)}, {3}));
  write(
      "SequentialLR(o, [LinearLR(o, 0.2, 1.0, 4), StepLR(o, 2), CosineAnnealingLR(o, 8)], [4, 9])",
      nn::sequential({nn::linear_lr(0.2, 1, 4), nn::step_lr(2), nn::cosine_annealing_lr(8)},
                     {4, 9}));
  write("ChainedScheduler([ConstantLR(o, 0.5, 4), ExponentialLR(o, 0.9)])",
        nn::chained({nn::constant_lr(0.5, 4), nn::exponential_lr(0.9)}));
  write("OneCycleLR(o, 2.0, total_steps=20, anneal_strategy='linear', cycle_momentum=False)",
        nn::one_cycle_lr({.max_lr = 2.0, .total_steps = 20, .linear = true}));
  write("OneCycleLR(o, 2.0, total_steps=20, three_phase=True, cycle_momentum=False)",
        nn::one_cycle_lr({.max_lr = 2.0, .total_steps = 20, .three_phase = true}));
  write("CyclicLR(o, 0.1, 0.5, 3, cycle_momentum=False)", nn::cyclic_lr({0.1, 0.5, 3}));
  write("CyclicLR(o, 0.1, 0.5, 3, 5, 'triangular2', cycle_momentum=False)",
        nn::cyclic_lr({0.1, 0.5, 3, 5, nn::Cycle::triangular2}));
  write("CyclicLR(o, 0.1, 0.5, 4, 2, 'exp_range', 0.9, cycle_momentum=False)",
        nn::cyclic_lr({0.1, 0.5, 4, 2, nn::Cycle::exp_range, 0.9}));
}

// The classes, and momentum that goes along.
void write_classes(NamedTensors& all) {
  const auto write = [&](const std::string& name, auto make) {
    nn::SGD optimizer(two_groups());
    auto scheduler = make(optimizer);
    all.emplace_back("momentum " + name, rates_of(optimizer, scheduler, "momentum"));
  };
  using nn::Optimizer;
  write("StepLR(o, 3)", [](Optimizer& o) { return nn::StepLR(o, 3); });
  write("MultiStepLR(o, [2, 5])", [](Optimizer& o) { return nn::MultiStepLR(o, {2, 5}); });
  write("ConstantLR(o)", [](Optimizer& o) { return nn::ConstantLR(o); });
  write("LinearLR(o)", [](Optimizer& o) { return nn::LinearLR(o); });
  write("ExponentialLR(o, 0.8)", [](Optimizer& o) { return nn::ExponentialLR(o, 0.8); });
  write("PolynomialLR(o)", [](Optimizer& o) { return nn::PolynomialLR(o); });
  write("CosineAnnealingLR(o, 7)", [](Optimizer& o) { return nn::CosineAnnealingLR(o, 7); });
  write("CosineAnnealingWarmRestarts(o, 4)",
        [](Optimizer& o) { return nn::CosineAnnealingWarmRestarts(o, 4); });
  write("LambdaLR(o, lambda n: 1 / (n + 2))", [](Optimizer& o) { return nn::LambdaLR(o, third); });
  write("MultiplicativeLR(o, lambda n: 1 / (n + 2))",
        [](Optimizer& o) { return nn::MultiplicativeLR(o, third); });
  write("SequentialLR(o, [LinearLR(o, 0.1, 1, 5), ExponentialLR(o, 0.9)], [5])", [](Optimizer& o) {
    return nn::SequentialLR(o, {nn::linear_lr(0.1, 1, 5), nn::exponential_lr(0.9)}, {5});
  });
  write("ChainedScheduler([StepLR(o, 4), ExponentialLR(o, 0.9)])", [](Optimizer& o) {
    return nn::ChainedScheduler(o, {nn::step_lr(4), nn::exponential_lr(0.9)});
  });
  write("OneCycleLR(o, [2.0, 0.5], total_steps=20)", [](Optimizer& o) {
    return nn::OneCycleLR(o, {2.0, 0.5}, {.max_lr = 0, .total_steps = 20});
  });
  write(
      "OneCycleLR(o, 1.5, 23, pct_start=0.4, three_phase=True, base_momentum=0.7, "
      "max_momentum=0.9)",
      [](Optimizer& o) {
        return nn::OneCycleLR(o, {.max_lr = 1.5,
                                  .total_steps = 23,
                                  .pct_start = 0.4,
                                  .three_phase = true,
                                  .base_momentum = 0.7,
                                  .max_momentum = 0.9});
      });
  write("CyclicLR(o, 0.1, 0.5, 3, 4)", [](Optimizer& o) {
    return nn::CyclicLR(o, {0.1, 0.5, 3, 4});
  });
}

void write_rates(const std::filesystem::path& path) {
  NamedTensors all;
  const auto write = [&](const std::string& name, const nn::Schedule& schedule) {
    nn::SGD optimizer(two_groups());
    nn::LRScheduler scheduler(optimizer, schedule);
    all.emplace_back(name, rates_of(optimizer, scheduler, ""));
  };
  write("StepLR(o, 3, 0.5)", nn::step_lr(3, 0.5));
  write("MultiStepLR(o, [2, 7, 7, 15], 0.3)", nn::multi_step_lr({2, 7, 7, 15}, 0.3));
  write("CosineAnnealingLR(o, 25, 0.01)", nn::cosine_annealing_lr(25, 0.01));
  write("LinearLR(o, 0.25, 0.75, 8)", nn::linear_lr(0.25, 0.75, 8));
  write("LinearLR(o, 0.2, 1.0, 4)", nn::warm_up(5, [](double base, std::int64_t) { return base; }));
  write("LambdaLR(o, lambda n: 0.9 ** n)", [](double base, std::int64_t step) {
    return base * std::pow(0.9, static_cast<double>(step));
  });
  write("OneCycleLR(o, 2.0, total_steps=20, cycle_momentum=False)",
        nn::one_cycle_lr({.max_lr = 2.0, .total_steps = 20}));
  write(
      "OneCycleLR(o, 1.5, total_steps=23, pct_start=0.45, div_factor=10, final_div_factor=50, "
      "cycle_momentum=False)",
      nn::one_cycle_lr({1.5, 23, 0.45, 10, 50}));
  write_new_rates(write);
  write_classes(all);
  const std::vector<double> measures{5, 4,   4,   4.5, 4,   3.9996, 3.999, 4, 4, 4,
                                     4, 3.5, 3.4, 3.6, 3.4, 3.4,    3.4,   9, 9, 9};
  all.emplace_back("measures", Tensor::from(measures, {20}));
  const auto plateau = [&](const char* name, const nn::PlateauOptions& options) {
    nn::SGD optimizer(two_groups());
    nn::ReduceLROnPlateau scheduler(optimizer, options);
    std::vector<double> rates;
    for (const double measure : measures) {
      rates.push_back(optimizer.lr(0));
      rates.push_back(optimizer.lr(1));
      scheduler.step(measure);
    }
    all.emplace_back(name, Tensor::from(rates, {20, 2}));
  };
  plateau("ReduceLROnPlateau(o, patience=2)", {.patience = 2});
  plateau("ReduceLROnPlateau(o, 'max', 0.5, 1)", {.maximize = true, .factor = 0.5, .patience = 1});
  plateau("ReduceLROnPlateau(o, 'min', 0.3, 0, 0.01, 'abs', 2, 0.01)",
          {false, 0.3, 0, 0.01, false, 2, 0.01});
  plateau("ReduceLROnPlateau(o, 'max', 0.9, 3, 0.1, 'abs', 1, 0, 0.02)",
          {true, 0.9, 3, 0.1, false, 1, 0, 0.02});
  save_safetensors(path, all);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    write_rates(std::filesystem::path(argv[1]) / "rates");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
