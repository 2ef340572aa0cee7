// SPDX-License-Identifier: Apache-2.0
// peal's side of the exchange with PyTorch (torch_exchange.py is the other): `write FOLDER` leaves
// a checkpoint of BasicNet, a batch, and what the model makes of it, gradients included; `check
// FOLDER` loads the model that PyTorch left there and compares outputs.
#include <peal/autograd/ops/ops.h>
#include <peal/nn/models/basic_net.h>
#include <peal/nn/nn.h>
#include <peal/tests/difference.h>

#include <cmath>
#include <cstdio>
#include <string_view>

using namespace peal;

namespace {

void write(const std::filesystem::path& folder) {
  manual_seed(1);
  nn::BasicNet net;
  nn::AdamW optimizer(net.named_parameters());
  net.eval();
  const Tensor x = randn({4, 1, 28, 28});
  const Tensor target = Tensor::from<std::int64_t>({3, 1, 4, 1}, {4});
  nn::NLLLoss()(net(x), target).backward();
  optimizer.step();
  nn::save(folder / "checkpoint.safetensors", {{"model", net}, {"optimizer", optimizer}},
           {{"epoch", "1"}});

  optimizer.zero_grad();
  const Tensor y = net(x);
  const Tensor loss = nn::NLLLoss()(y, target);
  loss.backward();
  NamedTensors batch{{"x", x}, {"target", target}, {"y", y}, {"loss", loss}};
  for (const auto& [name, parameter] : net.named_parameters()) {
    batch.emplace_back("grad." + name, parameter.grad());
  }
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8,
                            DType::i8, DType::boolean}) {
    const Tensor tensor = Tensor::empty({2, 3}, dtype);  // 0 1 0 1 0 1
    visit(dtype, [&]<class T>() {
      for (int i = 0; i < 6; ++i) tensor.data<T>()[i] = static_cast<T>(static_cast<float>(i % 2));
    });
    batch.emplace_back(concat("types.", dtype), tensor);
  }
  save_safetensors(folder / "batch.safetensors", batch);
}

bool check(const std::filesystem::path& folder) {
  nn::BasicNet net;
  net.eval();
  nn::load_model(folder / "from_torch.safetensors", net);
  Tensor x, expected;
  for (const auto& [name, tensor] : load_safetensors(folder / "torch_batch.safetensors").tensors) {
    (name == "x" ? x : expected) = tensor;
  }
  const auto y = net(x).to_vector<float>(), want = expected.to_vector<float>();
  double worst = 0;
  for (std::size_t i = 0; i < y.size(); ++i)
    worst = testing::larger(worst, std::abs(y[i] - want[i]));
  std::printf("PyTorch's model in peal: outputs differ by at most %.2g\n", worst);
  return y.size() == want.size() && worst < 1e-5;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string_view mode = argv[1];
  try {
    if (mode == "write") write(argv[2]);
    return mode != "check" || check(argv[2]) ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
