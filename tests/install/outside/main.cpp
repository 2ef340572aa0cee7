// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/algorithms/table.h>
#include <peal/comm/draw/draw.h>
#include <peal/comm/simulate/simulate.h>
#include <peal/comm/store/open_store.h>
#include <peal/comm/verify/verify.h>
#include <peal/launch/command_line.h>
#include <peal/launch/training/evaluation.h>
#include <peal/launch/training/trainer/trainer.h>
#include <peal/peal.h>
#if __has_include(<peal/comm/start/mpi.h>)
#include <peal/comm/start/mpi.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Two : peal::data::Dataset {
  std::int64_t size() const override { return 2; }
  peal::data::Batch get(std::span<const std::int64_t>) const override {
    return {peal::Tensor::from(std::vector<float>{1, 0, 0, 1}, {2, 2}),
            peal::Tensor::from(std::vector<std::int64_t>{0, 0}, {2})};
  }
};

// The gradient's hook, the leaves of a result, threads, a store and an evaluation.
void what_programs_reach_for() {
  peal::set_num_threads(1);
  const peal::Tensor x = peal::ones({2}).set_requires_grad();
  int hooked = 0;
  x.grad_slot().add_hook([&hooked](const peal::Tensor&) { ++hooked; });
  const std::vector<peal::Tensor> results{peal::sum(x)};
  const auto leaves = peal::leaves_of(results);
  results[0].backward();
  std::printf("%d thread, %d hook, %zu leaf, defined %d\n", peal::num_threads(), hooked,
              leaves.size(), leaves[0]->defined());

  std::string folder = (std::filesystem::temp_directory_path() / "peal-outside-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return;
  const auto store = peal::comm::open_store("file:" + folder, 0, 1);
  store->set("key", "value");
  peal::nn::Linear same(peal::Tensor::from(std::vector<float>{1, 0, 0, 1}, {2, 2}));
  peal::data::DataLoader loader(std::make_shared<Two>(), {.batch_size = 2});
  std::printf("%s, accuracy %g\n", store->get("key").c_str(),
              peal::launch::accuracy(same, loader, peal::comm::ProcessGroup::alone()));
  std::filesystem::remove_all(folder);
}

}  // namespace

int main() {
  what_programs_reach_for();
  const peal::Tensor x = peal::Tensor::from(std::vector<float>{1, 2, 4}, {3});
  x.set_requires_grad();
  const peal::Tensor loss = peal::sum(x * x);
  loss.backward();
  std::printf("sum %g, gradient", static_cast<double>(loss.item<float>()));
  for (const float value : x.grad().to_vector<float>())
    std::printf(" %g", static_cast<double>(value));
  std::printf("\n");
  try {
    peal::fail(peal::concat("shape of ", x.numel()));
  } catch (const peal::Error& error) {
    std::printf("error: %s\n", error.what());
  }
}
