// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel functions and layers against one process: values, gradients, random numbers,
// norms, and what is refused.
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/grad.h>
#include <peal/nn/optim/muon.h>
#include <peal/nn/parallel/tensor/regions.h>
#include <peal/nn/weight_norm.h>
#include <peal/tests/errors.h>

#include <limits>

#include "tensor_parallel_ranks.h"

using namespace peal;
using namespace peal::testing;

namespace {

// Twelve features to 24 and back, whole or cut.
struct TwoLayers : nn::Module {
  nn::Linear fc1 = add("fc1", nn::Linear(even, 24));
  nn::Linear fc2 = add("fc2", nn::Linear(24, even));
  Tensor forward(const Tensor& x) override { return fc2(tanh(fc1(x))); }
};

}  // namespace

TEST_CASE("gradients of the regions are those of central differences") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [](const Group& group, int rank) {
      const Tensor own = full({}, 0.5 + rank, DType::f64);  // each rank computes something else
      const auto whole = [&](const Tensors& x) {
        const Tensor in = nn::copy_to_tensor_parallel_region(x[0], group);
        return nn::reduce_from_tensor_parallel_region(tanh(in * own), group);
      };
      CHECK(test::gradient_error(whole, {spread_out({2, 3}, 1)}) < 1e-8);
      for (const int dim : {0, 1, -1}) {
        const Shape shape = dim == 0 ? Shape{even, 2} : Shape{2, even};
        const auto features = [&](const Tensors& x) {
          const Tensor mine = nn::scatter_to_tensor_parallel_region(x[0], group, dim);
          return nn::gather_from_tensor_parallel_region(tanh(mine * own), group, dim);
        };
        CHECK(test::gradient_error(features, {spread_out(shape, 2)}) < 1e-8);
        const auto sequence = [&](const Tensors& x) {
          const Tensor mine = nn::scatter_to_tensor_parallel_region(x[0], group, dim);
          const Tensor all = nn::all_gather_sequence(mine, group, dim);
          const Tensor sums = nn::reduce_scatter_sequence(tanh(all * own), group, dim);
          return nn::gather_from_tensor_parallel_region(sums, group, dim);
        };
        CHECK(test::gradient_error(sequence, {spread_out(shape, 3)}) < 1e-8);
      }
    });
  }
}

TEST_CASE("gradients of gradients go through the regions") {
  ranks(3, [](const Group& group, int rank) {
    const auto second = [](const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
      const Tensor slope = autograd::grad({sum(f(x))}, {x}, {.create_graph = true})[0];
      return autograd::grad({sum(slope * slope)}, {x})[0];
    };
    const Tensor x = spread_out({4}, 1);
    x.set_requires_grad();
    const Tensor cut = second(x, [&](const Tensor& in) {
      const Tensor mine = nn::copy_to_tensor_parallel_region(in, group) * (1.0 + rank);
      return nn::reduce_from_tensor_parallel_region(mine * mine * mine, group);
    });
    const Tensor one = second(x, [](const Tensor& in) { return in * in * in * (1.0 + 8 + 27); });
    CHECK(far(cut, one) < 1e-9);
  });
}

TEST_CASE("a column and a row layer are two linear layers, and draw as they do") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [world](const Group& group, int rank) {
      TwoLayers plain;
      const auto after = context().generator.offset;
      manual_seed(1);
      nn::ColumnParallelLinear up(even, 24, group);
      nn::RowParallelLinear down(24, even, group);
      CHECK(context().generator.offset == after);
      for (nn::Module each : {nn::Module(plain), nn::Module(up), nn::Module(down)}) {
        each.to(DType::f64);
      }
      const Tensor x = spread_out({5, even}, 4), same = x.clone(), g = spread_out({5, even}, 5);
      x.set_requires_grad();
      same.set_requires_grad();
      const Tensor y = plain(x), z = down(tanh(up(same)));
      CHECK(far(y.detach(), z.detach()) < 1e-12);
      y.backward(g);
      z.backward(g);
      CHECK(far(gradient_of(x), gradient_of(same)) < 1e-12);
      const auto part = [&](const Tensor& whole, const nn::Cut& cut) {
        return nn::part_of(whole, cut, rank, world);
      };
      CHECK(far(gradient_of(up.weight), part(gradient_of(plain.fc1.weight), *up.cut_of("weight"))) <
            1e-12);
      CHECK(far(gradient_of(up.bias), part(gradient_of(plain.fc1.bias), *up.cut_of("bias"))) <
            1e-12);
      CHECK(far(gradient_of(down.weight),
                part(gradient_of(plain.fc2.weight), *down.cut_of("weight"))) < 1e-12);
      CHECK(far(gradient_of(down.bias), gradient_of(plain.fc2.bias)) < 1e-12);
    });
  }
}

TEST_CASE("each alone gathers its output, or cuts its input") {
  ranks(3, [](const Group& group, int) {
    nn::Linear plain(even, 6);
    const nn::Module whole = plain;
    nn::ColumnParallelLinear column(plain, group, {.gather_output = true});
    nn::RowParallelLinear row(plain, group, {.input_is_parallel = false});
    for (const bool rows : {false, true}) {
      nn::Module layer = rows ? nn::Module(row) : nn::Module(column);
      const Tensor x = test::normal<float>({2, even}, 4), same = x.clone();
      x.set_requires_grad();
      same.set_requires_grad();
      const Tensor y = plain(x), z = layer(same);
      CHECK(far(y.detach(), z.detach()) < 1e-5);
      sum(y * y).backward();
      sum(z * z).backward();
      CHECK(far(gradient_of(x), gradient_of(same)) < 1e-4);
    }
  });
}

TEST_CASE("a row layer gives the type that a linear layer does") {
  two([](const Group& group, int) {
    for (const bool sequence : {false, true}) {
      nn::Linear plain(even, 6);
      nn::RowParallelLinear row(plain, group,
                                {.input_is_parallel = false, .sequence_parallel = sequence});
      const Autocast lower(DType::bf16);
      const Tensor x = test::normal<float>({2, 2, even}, 4), y = row(x);
      CHECK(y.dtype() == plain(x).dtype());
      sum(y).backward();
      CHECK(row.bias.grad().dtype() == DType::f32);
    }
  });
}

TEST_CASE("an embedding cut by rows is the whole one, its padding and its errors too") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [world](const Group& group, int rank) {
      nn::Embedding plain(even, 3, {.padding_idx = -2});
      manual_seed(1);
      nn::VocabParallelEmbedding cut(even, 3, group, {}, {.padding_idx = -2});
      const Tensor index = Tensor::from(std::vector<std::int64_t>{0, 11, 10, 5, 5, 3}, {2, 3});
      const Tensor y = plain(index), z = cut(index);
      CHECK(far(y.detach(), z.detach()) == 0);
      const Tensor g = test::normal<float>({2, 3, 3}, 5);
      y.backward(g);
      z.backward(g);
      const nn::Cut rows = *cut.cut_of("weight");
      CHECK(far(gradient_of(cut.weight),
                nn::part_of(gradient_of(plain.weight), rows, rank, world)) == 0);
      check_has(error_of([&] { cut(full({1}, 12, DType::i64)); }),
                "VocabParallelEmbedding: index 12 is not one of 12 rows");
    });
  }
}

TEST_CASE("cross entropy of logits of which each rank has a part is that of all") {
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [world](const Group& group, int rank) {
      const Tensor target = Tensor::from(std::vector<std::int64_t>{0, 11, -100, 4, 7, 2}, {2, 3});
      for (const Reduction reduction : {Reduction::none, Reduction::mean, Reduction::sum}) {
        for (const double smoothing : {0.0, 0.1}) {
          const Tensor logits = spread_out({2, 3, even}, 6) * 30;
          const Tensor rows = reshape(logits, {6, even}).detach(),
                       mine = nn::part_of(logits, {logits.shape(), 2}, rank, world);
          rows.set_requires_grad();
          mine.set_requires_grad();
          const CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smoothing};
          const Tensor one = cross_entropy(rows, reshape(target, {6}), options),
                       cut = nn::vocab_parallel_cross_entropy(mine, target, group, options);
          CHECK(far(flatten(one.detach()), flatten(cut.detach())) < 1e-12);
          sum(one).backward();
          sum(cut).backward();
          const Tensor whole = reshape(gradient_of(rows), {2, 3, even});
          CHECK(far(gradient_of(mine), nn::part_of(whole, {whole.shape(), 2}, rank, world)) <
                1e-12);
        }
      }
      const Tensor few = nn::part_of(arange(even, DType::f64), {{even}, 0}, rank, world);
      check_has(
          error_of([&] { nn::vocab_parallel_cross_entropy(few, full({}, 12, DType::i64), group); }),
          "target 12 is not one of 12 classes");
    });
  }
}

TEST_CASE("rows that pad a vocabulary are in no loss and get no gradient") {
  constexpr std::int64_t classes = 10;
  for (const int world : {1, 2, 3, 4, 8}) {  // the last three of eight have padding alone
    CAPTURE(world);
    ranks(world, [=](const Group& group, int rank) {
      const std::int64_t rows = world == 8 ? 16 : even;
      const Tensor target = Tensor::from(std::vector<std::int64_t>{0, 9, -100, 4, 7, 2}, {2, 3});
      const Tensor padded = spread_out({2, 3, rows}, 6) * 30;
      for (const double smoothing : {0.0, 0.1}) {
        const Tensor plain = reshape(narrow(padded, 2, 0, classes), {6, classes}).detach().clone(),
                     mine = nn::part_of(padded, {padded.shape(), 2}, rank, world);
        plain.set_requires_grad();
        mine.set_requires_grad();
        const CrossEntropyOptions options{.label_smoothing = smoothing};
        const Tensor one = cross_entropy(plain, reshape(target, {6}), options),
                     cut = nn::vocab_parallel_cross_entropy(mine, target, group, options, classes);
        CHECK(far(one.detach(), cut.detach()) < 1e-12);
        one.backward();
        cut.backward();
        const Tensor none = Tensor::zeros({2, 3, rows - classes}, DType::f64),
                     whole = cat({reshape(gradient_of(plain), {2, 3, classes}), none}, 2);
        CHECK(far(gradient_of(mine), nn::part_of(whole, {whole.shape(), 2}, rank, world)) < 1e-12);
      }
      const Tensor some = nn::part_of(padded, {padded.shape(), 2}, rank, world);
      const auto told = [&](std::int64_t count) {
        return error_of([&] { nn::vocab_parallel_cross_entropy(some, target, group, {}, count); });
      };
      check_has(told(0), concat("expected from 1 to ", rows, " classes"));
      check_has(told(rows + 1), concat("got ", rows + 1));
      check_has(told(9), "target 9 is not one of 9 classes");
    });
  }
}

TEST_CASE("label smoothing is over the whole vocabulary") {
  ranks(2, [](const Group& group, int rank) {
    const Tensor logits = Tensor::from(std::vector<double>{0.0 + 2 * rank, 1.0 + 2 * rank}, {1, 2});
    const Tensor loss = nn::vocab_parallel_cross_entropy(logits, full({1}, 1, DType::i64), group,
                                                         {.label_smoothing = 0.1});
    // log(1 + e + e^2 + e^3) - (0.9 x 1 + 0.1 x 1.5); of a rank's own part alone it would be other
    // means.
    CHECK(std::abs(loss.item<double>() - 2.390189698) < 1e-8);
    // Megatron-LM gives the 0.1 to the other classes alone, which is 4 / 3 of it here; of a rank's
    // own part alone it has 2.540190 and 2.140190.
    const Tensor others = nn::vocab_parallel_cross_entropy(logits, full({1}, 1, DType::i64), group,
                                                           {.label_smoothing = 0.1 * 4 / 3});
    CHECK(std::abs(others.item<double>() - 2.373523031) < 1e-8);
  });
}

TEST_CASE("a norm counts what is cut over ranks, and what all have once") {
  struct Net : nn::Module {
    nn::ColumnParallelLinear fc;
    Tensor scale;
    explicit Net(const Group& group)
        : fc(add("fc", nn::ColumnParallelLinear(1, 8, group, {}, false))),
          scale(add_parameter("scale", ones({1}))) {}
  };
  ranks(4, [](const Group& group, int) {
    for (const double order : {2.0, std::numeric_limits<double>::infinity()}) {
      nn::TensorParallel tp(Net(group), group);
      for (const Tensor& p : tp.parameters()) p.grad_slot().accumulate(ones(p.shape()));
      check_has(error_of([&] { nn::clip_grad_norm_(tp.parameters(), 1.0); }), "piece");
      CHECK(tp.clip_grad_norm_(1.0, order) == (order == 2.0 ? 3.0 : 1.0));  // 8 and 1
      if (order != 2.0) continue;
      for (const Tensor& p : tp.parameters()) {
        for (const float g : p.grad().to_vector<float>()) CHECK(std::abs(g - 1 / 3.0F) < 1e-6F);
      }
    }
    nn::TensorParallel tp(Net(group), group);
    check_has(error_of([&] { const nn::Muon muon({tp.get_parameter("fc.weight")}); }),
              "expected whole parameters");
  });
}

namespace {

// What every rank hears of a plan for TwoLayers that is none; the model is whole afterwards.
void check_refused(int world, const nn::TensorParallelPlan& plan, const std::string& part) {
  CAPTURE(part);
  ranks(world, [&](const Group& group, int) {
    TwoLayers net;
    check_has(error_of([&] { nn::parallelize_module(net, group, plan); }), part);
    CHECK(net.fc1.as<nn::Linear>() != nullptr);
  });
}

}  // namespace

TEST_CASE("plans that cannot be followed are errors on every rank, by layer and numbers") {
  const nn::ColwiseParallel column;
  const nn::RowwiseParallel row;
  check_refused(4, {{"fc1", nn::ColwiseParallel{.parts = 3, .heads = 2}}},
                "ColumnParallelLinear fc1: 2 heads do not divide among 4 tensor-parallel ranks");
  check_refused(2, {{"fc1", nn::ColwiseParallel{.parts = 5}}},
                "ColumnParallelLinear fc1: 24 rows of a weight [24, 12], in 5 parts, do not divide "
                "among 2");
  check_refused(2, {{"fc3", column}},
                "the plan's 'fc3' is no module of the model; the model has: fc1 fc2");
  check_refused(2, {{"fc1", column}, {"*", row}}, "fc1 is named by two entries of the plan");
  struct Odd : nn::Module {
    nn::Linear fc = add("fc", nn::Linear(5, 10));
    nn::Dropout drop = add("drop", nn::Dropout(0.1));
    nn::Linear tied = add("tied", nn::Linear(fc.weight));
  };
  ranks(4, [&](const Group& group, int rank) {
    Odd net;
    const auto told = [&](const nn::TensorParallelPlan& plan) {
      return error_of([&] { nn::parallelize_module(net, group, plan); });
    };
    check_has(told({{"fc", row}}), "RowParallelLinear fc: 5 columns of a weight [10, 5] do not");
    check_has(told({{"fc", column}}),
              "ColumnParallelLinear fc: 10 rows of a weight [10, 5] do not");
    check_has(told({{"drop", row}}), "drop is a peal::nn::Dropout, which RowwiseParallel does not");
    check_has(error_of([&] { nn::RowParallelLinear(5, 10, group); }),
              "RowParallelLinear: 5 columns of a weight [10, 5] do not divide among 4");
    check_has(error_of([&] { nn::VocabParallelEmbedding(50257, 1, group); }),
              "VocabParallelEmbedding: 50257 rows of a weight [50257, 1] do not divide among 4");
    // One rank alone gives another plan.
    TwoLayers other;
    const nn::TensorParallelPlan plan{{rank == 2 ? "fc2" : "fc1", column}};
    check_has(error_of([&] { nn::parallelize_module(other, group, plan); }), "rank 2");
  });
  two([&](const Group& group, int) {
    Odd net;
    check_has(error_of([&] {
                nn::parallelize_module(net, group, {{"fc", column}});
              }),
              "tied.weight is fc.weight, too, which the plan cuts");
    net.fc.add_hook([](nn::Module&, const Tensor&, const Tensor&) { return Tensor(); });
    check_has(error_of([&] {
                nn::parallelize_module(net, group, {{"fc", column}, {"tied", column}});
              }),
              "fc has hooks");
    nn::ModuleDict deep({{"h", nn::ModuleList(TwoLayers(), TwoLayers())}});
    check_has(error_of([&] {
                nn::parallelize_module(deep, group, {{"h.*.fc3", column}});
              }),
              "the plan's 'h.*.fc3' is no module of the model; h.* has: fc1 fc2");
  });
}

TEST_CASE("the sequence may be the rows of [rows, features]") {
  const nn::TensorParallelPlan plan{
      {"fc1", nn::ColwiseParallel{.sequence_parallel = true, .sequence_dim = 0}},
      {"fc2", nn::RowwiseParallel{.sequence_parallel = true, .sequence_dim = 0}}};
  for (int world = 1; world <= 4; ++world) {
    CAPTURE(world);
    ranks(world, [&](const Group& group, int rank) {
      TwoLayers plain, cut;
      cut.load_state_dict(plain.state_dict());
      nn::TensorParallel tp = nn::parallelize_module(cut, group, plan);
      const auto mine = [&](const Tensor& x) {
        return x.detach().narrow(0, even / world * rank, even / world).clone();
      };
      const Tensor x = test::normal<float>({even, even}, 4), part = mine(x);
      const Tensor g = test::normal<float>({even, even}, 5);
      x.set_requires_grad();
      part.set_requires_grad();
      const Tensor y = plain(x), z = tp(part);
      REQUIRE(z.shape() == Shape{even / world, even});
      CHECK(far(mine(y), z.detach()) < 1e-5);
      y.backward(g);
      z.backward(mine(g));
      CHECK(far(mine(x.grad()), gradient_of(part)) < 1e-5);
      for (const auto& [name, parameter] : plain.named_parameters()) {
        CAPTURE(name);
        const Tensor whole = gradient_of(parameter);
        const auto how = tp.cut_of(name);
        CHECK(far(gradient_of(tp.get_parameter(name)),
                  how ? nn::part_of(whole, *how, rank, world) : whole) < 1e-4);
      }
    });
  }
}

TEST_CASE("a layer that is given other features than its part says whose they may be") {
  two([](const Group& group, int) {
    const nn::ColwiseParallel column;
    const auto told = [&](const nn::TensorParallelPlan& plan) {
      TwoLayers net;
      nn::Module tp = nn::parallelize_module(net, group, plan);
      return error_of([&] { tp(ones({2, even})); });
    };
    check_has(told({{"fc1", column}, {"fc2", column}}),
              "ColumnParallelLinear fc2: expected all 24 features on every rank, got shape [2, "
              "12]; what another ColwiseParallel gives is cut");
    check_has(told({{"fc2", nn::RowwiseParallel{}}}),
              "RowParallelLinear fc2: expected this rank's 12 of 24 features, got shape [2, 24]; "
              "let what gives them all be ColwiseParallel");
    check_has(told({{"fc1", nn::ColwiseParallel{.sequence_parallel = true}}}),
              "ColumnParallelLinear fc1: sequence_dim 1 of shape [2, 12] are its features; of "
              "[rows, features] the sequence is sequence_dim 0");
    nn::VocabParallelEmbedding table(6, 4, group, {.sequence_parallel = true});
    check_has(error_of([&] {
                table(tensor({1, 2}));
              }),
              "VocabParallelEmbedding: sequence_dim 1 of shape [2, 4] are its features");
  });
}

TEST_CASE("a model that is cut in several calls keeps every rank's parts") {
  two([](const Group& group, int) {
    TwoLayers net;
    const NamedTensors start = net.state_dict();
    nn::parallelize_module(net, group, {{"fc1", nn::ColwiseParallel{}}});
    nn::TensorParallel tp = nn::parallelize_module(net, group, {{"fc2", nn::RowwiseParallel{}}});
    CHECK(difference(tp.state_dict(), start) == 0);
  });
}

TEST_CASE("a weight of which a rank has a piece is not computed of others") {
  two([](const Group& group, int) {
    TwoLayers net;
    const NamedTensors start = net.state_dict();
    nn::TensorParallel tp = nn::parallelize_module(
        net, group, {{"fc1", nn::ColwiseParallel{}}, {"fc2", nn::RowwiseParallel{}}});
    const std::string column = " [12, 12] of peal::nn::ColumnParallelLinear is this rank's piece";
    check_has(error_of([&] { nn::weight_norm(net.fc1); }), "weight_norm: weight" + column);
    check_has(error_of([&] { nn::weight_norm(tp.child("fc1"), "bias"); }),
              "weight_norm: bias [12]");
    check_has(error_of([&] { nn::spectral_norm(net.fc1); }), "spectral_norm: weight" + column);
    check_has(error_of([&] { nn::spectral_norm(tp.child("fc2")); }),
              "spectral_norm: weight [12, 12] of peal::nn::RowParallelLinear is this rank's piece");
    CHECK(difference(tp.state_dict(), start) == 0);  // as they were
    nn::weight_norm(net.fc2, "bias");                // which is whole
    CHECK(tp.state_dict().size() == start.size() + 1);
    TwoLayers other;
    nn::weight_norm(other.fc1);
    check_has(error_of([&] {
                nn::parallelize_module(other, group, {{"fc1", nn::ColwiseParallel{}}});
              }),
              "fc1 has hooks");
  });
}

TEST_CASE("SequenceParallel is of no module with named or cut ones below it") {
  struct Outer : nn::Module {
    TwoLayers net = add("net", TwoLayers());
  };
  two([](const Group& group, int) {
    Outer outer;
    const nn::ColwiseParallel column;
    check_has(error_of([&] {
                nn::parallelize_module(outer, group,
                                       {{"net", nn::SequenceParallel{}}, {"net.fc1", column}});
              }),
              "net.fc1, which the plan names, is within net, which is SequenceParallel");
    nn::parallelize_module(outer, group, {{"net.fc1", column}});
    check_has(error_of([&] {
                nn::parallelize_module(outer, group, {{"net", nn::SequenceParallel{}}});
              }),
              "net.fc1, which is cut, is within net, which is SequenceParallel");
  });
}

TEST_CASE("ranks in other calls are told whose they are") {
  for (const std::string& message : failures(2, [](const Group&group, int rank) {
         nn::copy_to_tensor_parallel_region(ones({1}), group, "before");  // sends nothing
         nn::reduce_from_tensor_parallel_region(ones({4}), group, rank == 0 ? "fc1" : "fc2");
       })) {
    check_has(message, "fc1, all_reduce");
    check_has(message, "fc2, all_reduce");
  }
}

TEST_CASE("a rank that fails between the layers tells the others") {
  for (const std::string& message : failures(3, [](const Group&group, int rank) {
         nn::ColumnParallelLinear up(even, even, group);
         nn::RowParallelLinear down(even, even, group);
         group.barrier().wait();  // all ranks are there
         const Tensor hidden = up(ones({1, even}));
         PEAL_CHECK(rank != 1, "the hidden layer is too deep");
         sum(down(hidden)).backward();
       })) {
    check_has(message, "the hidden layer is too deep");
  }
}

TEST_CASE("what is computed again in backward sends again, and drops the same") {
  ranks(2, [](const Group& group, int) {
    nn::ColumnParallelLinear up(even, 24, group);
    nn::ParallelDropout drop(0.5, group, -1);
    nn::RowParallelLinear down(24, even, group);
    const auto block = [&](const Tensor& x) { return down(drop(tanh(up(x)))); };
    const Generator before = context().generator;
    std::vector<std::vector<float>> seen[2];
    for (const bool again : {false, true}) {
      context().generator = before;
      const Tensor x = test::normal<float>({3, even}, 4);
      x.set_requires_grad();
      const Tensor y = again ? checkpoint(block, x) : block(x);
      sum(y * y).backward();
      for (const Tensor& each : {y.detach(), x.grad(), up.weight.grad(), down.bias.grad()}) {
        seen[again ? 1 : 0].push_back(each.to_vector<float>());
      }
      up.zero_grad();
      down.zero_grad();
    }
    CHECK(seen[0] == seen[1]);
  });
}
