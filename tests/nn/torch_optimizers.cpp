// SPDX-License-Identifier: Apache-2.0
// Writes what every optimizer makes of four parameters in two groups in 20 steps, in f64, and its
// state by names, each under the expression that makes it in PyTorch: for torch_optimizers.py.
// usage: torch_optimizers FOLDER
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/nn/nn.h>

#include <cstdio>

using namespace peal;

namespace {

constexpr int steps = 20;
// The fourth is a group of its own; the first and the last are the two groups of who wants
// matrices.
const std::vector<Shape> shapes{{3, 4}, {5}, {2, 3, 2}, {4}, {5, 2}};

class Writer {
 public:
  Writer() {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      start_.push_back(randn(shapes[i], DType::f64));
      tensors_.emplace_back(concat("start.", i), start_[i]);
      for (int t = 0; t < steps; ++t) {
        // One gradient is missing in between, some elements are 0, and sizes differ.
        Tensor g = randn(shapes[i], DType::f64) * (1.0 + t % 3);
        g = where(gt(randn(shapes[i], DType::f64), 1.0), 0.0, g);
        gradients_.push_back(g);
        tensors_.emplace_back(concat("grad.", i, ".", t), g);
      }
    }
  }

  template <class O, class Options>
  void run(const std::string& torch, Options options, bool matrices = false) {
    std::vector<Tensor> p;
    for (const Tensor& start : start_) p.push_back(start.clone().set_requires_grad());
    Options other = options;
    other.lr = 0.005;
    std::vector<Tensor> first{p[0]}, second{p[4]};
    if (!matrices) first = {p[0], p[1], p[2]}, second = {p[3]};
    O optimizer({{first, options}, {second, other}});
    for (int t = 0; t < steps; ++t) {
      for (std::size_t i = 0; i < p.size(); ++i) {
        p[i].zero_grad();
        if (i == 1 && t == 3) continue;
        p[i].grad_slot().accumulate(gradients_[i * steps + static_cast<std::size_t>(t)].clone());
      }
      if (t == 10) {
        for (std::size_t g = 0; g < 2; ++g) optimizer.set_lr(optimizer.lr(g) * 0.5, g);
      }
      optimizer.step();
    }
    const std::string number = std::to_string(expressions_.size());
    expressions_[number] = torch;
    for (std::size_t i = 0; i < p.size(); ++i) {
      tensors_.emplace_back(concat("after.", number, ".", i), p[i].detach());
    }
    for (const auto& [name, tensor] : optimizer.state_dict()) {
      if (name.starts_with("groups.") || name.ends_with(".step")) continue;
      if (name.ends_with("_now")) continue;  // what PyTorch has not
      tensors_.emplace_back(concat("state.", number, ".", name), tensor.clone());
    }
  }

  // Rosenbrock's valley beside a bowl, for optimizers that ask for the loss themselves.
  void run_lbfgs(const std::string& torch, const nn::LBFGSOptions& options) {
    const Tensor x = Tensor::from<double>({-1.2, 1}, {2}).set_requires_grad();
    const Tensor y = Tensor::from<double>({0.5, -1, 2}, {3, 1}).set_requires_grad();
    nn::LBFGS optimizer({x, y}, options);
    std::vector<double> losses;
    for (int t = 0; t < 6; ++t) {
      const Tensor loss = optimizer.step([&] {
        optimizer.zero_grad();
        const Tensor a = select(x, 0, 0), b = select(x, 0, 1);
        const Tensor valley = 10.0 * pow(b - a * a, 2) + pow(1.0 - a, 2);
        Tensor loss = valley + sum(pow(y - 1.0, 2)) + 0.1 * pow(sum(y), 4);
        if (options.maximize) loss = -loss;
        loss.backward();
        return loss;
      });
      losses.push_back(loss.item<double>());
    }
    const std::string number = std::to_string(expressions_.size());
    expressions_[number] = torch;
    tensors_.emplace_back("after." + number + ".0", x.detach());
    tensors_.emplace_back("after." + number + ".1", y.detach());
    tensors_.emplace_back("losses." + number, Tensor::from(losses, {6}));
    tensors_.emplace_back(
        "counts." + number,
        Tensor::from<std::int64_t>({optimizer.iterations(), optimizer.evaluations()}, {2}));
  }

  void save(const std::filesystem::path& path) const {
    save_safetensors(path, tensors_, expressions_);
  }

 private:
  std::vector<Tensor> start_, gradients_;
  NamedTensors tensors_;
  Metadata expressions_;
};

void write_first(Writer& write) {
  write.run<nn::SGD>("SGD(g, 0.1, maximize=True)", nn::SGDOptions{.lr = 0.1, .maximize = true});
  write.run<nn::SGD>("SGD(g, 0.1, 0.9, weight_decay=0.1, nesterov=True)",
                     nn::SGDOptions{0.1, 0.9, 0, 0.1, true});
  write.run<nn::Adam>("Adam(g, 0.1, amsgrad=True)", nn::AdamOptions{.lr = 0.1, .amsgrad = true});
  write.run<nn::Adam>("Adam(g, 0.1, (0.8, 0.9), 1e-3, 0.1, amsgrad=True, maximize=True)",
                      nn::AdamOptions{0.1, 0.8, 0.9, 1e-3, 0.1, true, true});
  write.run<nn::Adam>("Adam(g, 0.1, weight_decay=0.1, maximize=True)",
                      nn::AdamOptions{.lr = 0.1, .weight_decay = 0.1, .maximize = true});
  write.run<nn::AdamW>("AdamW(g)", nn::AdamWOptions{});
  write.run<nn::AdamW>("AdamW(g, 0.1, (0.8, 0.9), 1e-3, 0.2, amsgrad=True)",
                       nn::AdamWOptions{0.1, 0.8, 0.9, 1e-3, 0.2, true});
}

void write_rules(Writer& write) {
  write.run<nn::RMSprop>("RMSprop(g)", nn::RMSpropOptions{});
  write.run<nn::RMSprop>("RMSprop(g, 0.1, 0.9, 1e-3, 0.1)",
                         nn::RMSpropOptions{0.1, 0.9, 1e-3, 0.1});
  write.run<nn::RMSprop>("RMSprop(g, 0.1, centered=True)",
                         nn::RMSpropOptions{.lr = 0.1, .centered = true});
  write.run<nn::RMSprop>("RMSprop(g, 0.1, momentum=0.9)",
                         nn::RMSpropOptions{.lr = 0.1, .momentum = 0.9});
  write.run<nn::RMSprop>("RMSprop(g, 0.1, 0.9, 1e-3, 0.1, 0.8, True, maximize=True)",
                         nn::RMSpropOptions{0.1, 0.9, 1e-3, 0.1, 0.8, true, true});
  write.run<nn::Adagrad>("Adagrad(g)", nn::AdagradOptions{});
  write.run<nn::Adagrad>("Adagrad(g, 0.1, 0.05, 0.1, 0.5, 1e-3, maximize=True)",
                         nn::AdagradOptions{0.1, 0.05, 0.1, 0.5, 1e-3, true});
  write.run<nn::Adadelta>("Adadelta(g)", nn::AdadeltaOptions{});
  write.run<nn::Adadelta>("Adadelta(g, 0.5, 0.8, 1e-3, 0.1, maximize=True)",
                          nn::AdadeltaOptions{0.5, 0.8, 1e-3, 0.1, true});
  write.run<nn::Adamax>("Adamax(g)", nn::AdamaxOptions{});
  write.run<nn::Adamax>("Adamax(g, 0.1, (0.8, 0.9), 1e-3, 0.1, maximize=True)",
                        nn::AdamaxOptions{0.1, 0.8, 0.9, 1e-3, 0.1, true});
  write.run<nn::NAdam>("NAdam(g)", nn::NAdamOptions{});
  write.run<nn::NAdam>("NAdam(g, 0.1, (0.8, 0.9), 1e-3, 0.1, 0.1)",
                       nn::NAdamOptions{0.1, 0.8, 0.9, 1e-3, 0.1, 0.1});
  write.run<nn::NAdam>(
      "NAdam(g, 0.1, (0.8, 0.9), 1e-3, 0.1, 0.1, decoupled_weight_decay=True, maximize=True)",
      nn::NAdamOptions{0.1, 0.8, 0.9, 1e-3, 0.1, 0.1, true, true});
  write.run<nn::RAdam>("RAdam(g)", nn::RAdamOptions{});
  write.run<nn::RAdam>("RAdam(g, 0.1, (0.8, 0.9), 1e-3, 0.1)",
                       nn::RAdamOptions{0.1, 0.8, 0.9, 1e-3, 0.1});
  write.run<nn::RAdam>(
      "RAdam(g, 0.1, (0.8, 0.9), 1e-3, 0.1, decoupled_weight_decay=True, maximize=True)",
      nn::RAdamOptions{0.1, 0.8, 0.9, 1e-3, 0.1, true, true});
  write.run<nn::Lion>("Lion(g, 1e-4, 0.9, 0.99, 0.0)", nn::LionOptions{});
  write.run<nn::Lion>("Lion(g, 0.1, 0.8, 0.9, 0.3)", nn::LionOptions{0.1, 0.8, 0.9, 0.3});
}

void write_made_of_operations(Writer& write) {
  write.run<nn::Adafactor>("Adafactor(g)", nn::AdafactorOptions{});
  write.run<nn::Adafactor>("Adafactor(g, 0.3, -0.5, (1e-3, 0.1), 1.5, 0.1, maximize=True)",
                           nn::AdafactorOptions{0.3, -0.5, 1e-3, 0.1, 1.5, 0.1, true});
  write.run<nn::LAMB>("LAMB(g, 1e-3, 0.9, 0.999, 1e-6, 1e-2)", nn::LAMBOptions{});
  write.run<nn::LAMB>("LAMB(g, 0.1, 0.8, 0.9, 1e-3, 0.0)",
                      nn::LAMBOptions{0.1, 0.8, 0.9, 1e-3, 0.0});
  write.run<nn::LARS>("LARS(g, 1e-3, 0.9, 0.0, 1e-3, 1e-8, False)", nn::LARSOptions{});
  write.run<nn::LARS>("LARS(g, 0.5, 0.9, 0.1, 0.02, 1e-3, True)",
                      nn::LARSOptions{0.5, 0.9, 0.1, 0.02, 1e-3, true});
  write.run<nn::LARS>("LARS(g, 0.5, 0.0, 0.1, 0.02, 1e-3, False)",
                      nn::LARSOptions{0.5, 0, 0.1, 0.02, 1e-3});
  write.run<nn::ASGD>("ASGD(g)", nn::ASGDOptions{});
  write.run<nn::ASGD>("ASGD(g, 0.1, 0.1, 0.6, 5, 0.1, maximize=True)",
                      nn::ASGDOptions{0.1, 0.1, 0.6, 5, 0.1, true});
  write.run<nn::Rprop>("Rprop(g)", nn::RpropOptions{});
  write.run<nn::Rprop>("Rprop(g, 0.1, (0.4, 1.5), (1e-2, 0.3), maximize=True)",
                       nn::RpropOptions{0.1, 0.4, 1.5, 1e-2, 0.3, true});
  write.run<nn::Muon>("Muon(m)", nn::MuonOptions{}, true);
  write.run<nn::Muon>(
      "Muon(m, 0.1, 0.2, 0.8, False, (3, -3, 1), 1e-3, 3, 'match_rms_adamw')",
      nn::MuonOptions{0.1, 0.2, 0.8, false, 3, -3, 1, 1e-3, 3, nn::MuonRate::match_rms_adamw},
      true);
  write.run<nn::Muon>("Muon(m, adjust_lr_fn='spectral_unclamped')",
                      nn::MuonOptions{.adjust_lr_fn = nn::MuonRate::spectral_unclamped}, true);
  write.run_lbfgs("LBFGS(p, 0.1, 6)", {.lr = 0.1, .max_iter = 6});
  write.run_lbfgs("LBFGS(p, line_search_fn='strong_wolfe')", {.strong_wolfe = true});
  write.run_lbfgs("LBFGS(p, 0.7, 7, 9, 1e-3, 1e-5, 2, 'strong_wolfe')",
                  {0.7, 7, 9, 1e-3, 1e-5, 2, true});
  write.run_lbfgs("LBFGS(p, 1e-3, 5, 4, line_search_fn='strong_wolfe')",
                  {.lr = 1e-3, .max_iter = 5, .max_eval = 4, .strong_wolfe = true});
  write.run_lbfgs("LBFGS(p, 0.05, 4, maximize=True)",
                  {.lr = 0.05, .max_iter = 4, .maximize = true});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    manual_seed(1);
    Writer write;
    write_first(write);
    write_rules(write);
    write_made_of_operations(write);
    write.save(std::filesystem::path(argv[1]) / "optimizers.safetensors");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
