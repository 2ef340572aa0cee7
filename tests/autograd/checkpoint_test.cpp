// SPDX-License-Identifier: Apache-2.0
// Checkpointed functions: the outputs and gradients of the same function without it, bit for bit.
#include <peal/autograd/autocast.h>
#include <peal/autograd/checkpoint.h>
#include <peal/autograd/grad.h>
#include <peal/autograd/grad_slot.h>
#include <peal/autograd/ops/ops.h>
#include <peal/autograd/tape.h>
#include <peal/tests/errors.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace peal;
using testing::error_of;

namespace {

using Values = std::vector<float>;

// Whole numbers, whose sums are exact in any order.
Tensor leaf(const Shape& shape, double scale = 2) {
  return round(randn(shape) * scale).set_requires_grad();
}

// What f(x) and its gradients are with respect to `leaves`, which begin without.
template <class F>
std::vector<Values> results(const F& f, const Tensors& leaves) {
  manual_seed(3);
  for (const Tensor& leaf : leaves) leaf.zero_grad();
  const Tensor y = f();
  sum(y * y).backward();
  std::vector<Values> all{y.to_vector<float>()};
  for (const Tensor& leaf : leaves) {
    all.push_back(leaf.grad().defined() ? leaf.grad().to_vector<float>() : Values());
  }
  all.push_back(rand({2}).to_vector<float>());  // what is drawn next
  return all;
}

const auto once = [](const auto& f, const auto&... x) { return f(x...); };
const auto anew = [](const auto& f, const auto&... x) { return checkpoint(f, x...); };

}  // namespace

TEST_CASE("a checkpointed function has the values, gradients and random numbers of itself") {
  const Tensor x = leaf({4, 3}), w = leaf({3, 5}), v = leaf({5, 2});
  const auto block = [&](const Tensor& in) {
    return matmul(dropout(relu(matmul(in, w)), .5, true), v);
  };
  const auto model = [&](const auto& run) {
    return [&block, &x, &w, run] {
      return run(block, x * 2) + run(block, tanh(matmul(x, w))[{Slice(), Slice(0, 3)}]);
    };
  };
  CHECK(results(model(once), {x, w, v}) == results(model(anew), {x, w, v}));
}

TEST_CASE("what goes in may want no gradient, be undefined, come twice, and come out again") {
  const Tensor x = round(randn({2, 3})), w = leaf({2, 3}), u = leaf({2, 3});
  const auto f = [&](const Tensor& a, const Tensor& b, const Tensor& none, const Tensor& index) {
    CHECK(!none.defined());
    return Tensors{a * b * w, index + 1, a, Tensor()};
  };
  const auto g = [&](const auto& run) {
    return [&, run] {
      const Tensors ys = run(f, x, w, Tensor(), Tensor::zeros({2}, DType::i64));
      const Tensors zs = run(f, u, u, Tensor(), Tensor::zeros({2}, DType::i64));
      CHECK(ys.size() == 4);
      CHECK(ys[1].dtype() == DType::i64);
      CHECK(!ys[1].requires_grad());
      CHECK(!ys[2].requires_grad());
      CHECK(zs[2].requires_grad());
      CHECK(!ys[3].defined());
      return ys[0] + zs[0] + zs[2];
    };
  };
  CHECK(results(g(once), {w, u}) == results(g(anew), {w, u}));
}

TEST_CASE("several outputs, of which backward needs one, and results that are captured") {
  const Tensor w = leaf({3}), u = leaf({3});
  const auto g = [&](const auto& run) {
    return [&, run] {
      const Tensor outside = w * u;  // used inside and outside
      const Tensors ys = run(
          [=](const Tensor& a) {
            return Tensors{a * outside, a * 2, a * u};
          },
          w);
      return ys[0] * outside + ys[2];
    };
  };
  CHECK(results(g(once), {w, u}) == results(g(anew), {w, u}));
}

TEST_CASE("checkpoints in checkpoints, and before one backward, and twice through the same") {
  const Tensor x = leaf({4, 4}), w = leaf({4, 4});
  int runs = 0;
  const auto layer = [&](const Tensor& in) {
    ++runs;
    return dropout(tanh(matmul(in, w)), .25, true);
  };
  const auto nested = [&](const auto& run) {
    return [&, run] {
      return run([&](const Tensor& in) { return run(layer, run(layer, in)); }, run(layer, x));
    };
  };
  const auto expected = results(nested(once), {x, w});
  CHECK(runs == 3);
  CHECK(results(nested(anew), {x, w}) == expected);
  CHECK(runs == 3 + 3 + 1 + 2 + 2);  // forward; of the outer, of those inside of it, of each again

  manual_seed(3);
  x.zero_grad(), w.zero_grad();
  const Tensor y = nested(anew)();
  sum(y * y).backward({}, true);
  const Values first = w.grad().to_vector<float>();
  CHECK(first == expected[2]);
  w.zero_grad();
  sum(y * y).backward();
  CHECK(w.grad().to_vector<float>() == first);
}

TEST_CASE("autocast holds when it is computed anew, and no longer") {
  const Tensor x = leaf({4, 8}), w = leaf({8, 8});
  std::vector<DType> types;
  const auto g = [&](const auto& run) {
    return [&, run] {
      Tensor y;
      {
        const Autocast guard(DType::bf16);
        y = run(
            [&](const Tensor& in) {
              const Tensor product = matmul(in, w);
              types.push_back(product.dtype());
              return product;
            },
            x);
      }
      return y.to(DType::f32);
    };
  };
  CHECK(results(g(once), {x, w}) == results(g(anew), {x, w}));
  CHECK(types == std::vector<DType>(3, DType::bf16));
  CHECK(!context().autocast);
}

TEST_CASE("a leaf is complete once, when all who use it have come, and its hooks see the sum") {
  const Tensor x = leaf({2}), w = full({2}, 3.).set_requires_grad();
  std::string seen;
  const auto note = [&](const char* who, const Tensor& grad) {
    seen += concat(who, grad.to_vector<float>()[0], ";");
  };
  w.grad_slot().add_hook([&](const Tensor& grad) { note("leaf ", grad); });
  w.register_hook([&](const Tensor& grad) { note("hook ", grad); });
  const auto f = [&](const Tensor& in) { return in * w; };
  const Tensor one = ones({2}).set_requires_grad();
  sum(checkpoint(f, checkpoint(f, one))).backward();
  CHECK(seen == "hook 6;leaf 6;");
  CHECK(one.grad().to_vector<float>() == Values{9, 9});
  const auto leaves = leaves_of(std::vector{checkpoint(f, x)});
  CHECK(leaves.size() == 2);
}

TEST_CASE("hooks on tensors inside run in backward") {
  const Tensor w = leaf({2});
  Values seen;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        const Tensor inner = in * 2;
        inner.register_hook([&](const Tensor& grad) {
          seen.push_back(grad.to_vector<float>()[0]);
          return grad * 10;
        });
        return inner * 3;
      },
      w);
  CHECK(seen.empty());
  sum(y).backward();
  CHECK(seen == Values{3});
  CHECK(w.grad().to_vector<float>() == Values{60, 60});
}

TEST_CASE("gradients as values, and of gradients") {
  const Tensor x = full({2}, 2., DType::f64).set_requires_grad();
  const Tensor w = full({2}, 3., DType::f64).set_requires_grad();
  const auto cube = [&](const Tensor& in) { return in * in * in * w; };
  const Tensor scaled = x * 2;
  for (const Tensor& in : {x, scaled}) {
    const auto both = [&](const Tensor& y) {
      const Tensors slopes = autograd::grad({sum(y)}, {in, w}, {.create_graph = true});
      const Tensors second = autograd::grad({sum(slopes[0] * slopes[0]) + sum(slopes[1])}, {x, w},
                                            {.retain_graph = true});
      std::vector<double> all;
      for (const Tensor& each : {slopes[0], slopes[1], second[0], second[1]}) {
        all.push_back(each.detach().to_vector<double>()[0]);
      }
      return all;
    };
    CHECK(both(checkpoint(cube, in)) == both(cube(in)));
  }
  CHECK(!x.grad().defined());
}

TEST_CASE("more tensors than an op has inputs") {
  Tensors ws;
  for (int i = 0; i < 70; ++i) ws.push_back(full({1}, static_cast<double>(i)).set_requires_grad());
  const Tensor x = full({1}, 2.).set_requires_grad();
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        Tensor total = in;
        for (const Tensor& w : ws) total = total + in * w;
        return total;
      },
      x);
  y.backward();
  CHECK(x.grad().item<float>() == 1 + 69 * 70 / 2);
  CHECK(std::all_of(ws.begin(), ws.end(),
                    [](const Tensor& w) { return w.grad().item<float>() == 2; }));
}

TEST_CASE("nothing is recorded where nothing wants a gradient, and nothing is kept of what runs") {
  const Tensor x = randn({2, 2}), w = leaf({2, 2});
  CHECK(!checkpoint([](const Tensor& in) { return in * 2; }, x).requires_grad());
  {
    const NoGrad guard;
    CHECK(!checkpoint([&](const Tensor& in) { return in * w; }, x).requires_grad());
  }
  std::vector<StorageRef> inner;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        const Tensor hidden = exp(in * w);
        inner.push_back(hidden.storage());
        return hidden * hidden;
      },
      x);
  CHECK(inner[0].use_count() == 1);
  sum(y).backward();
  CHECK(inner.size() == 2);
  CHECK(inner[1].use_count() == 1);
}

TEST_CASE("a function of tensors of its own alone does not go before others in backward") {
  const auto made = [](const Tensors&) { return Tensors{ones({2}).set_requires_grad() * 2}; };
  const Tensor y = checkpoint(made, Tensors{})[0];
  CHECK(y.body().node->inputs.size() == 2);  // one, without a node, is next to a leaf
  sum(y).backward();
}

TEST_CASE("statistics of batches move once") {
  // Batches of mean 3: after one step of momentum 0.1 the running mean is 0.3, not 0.57.
  const Tensor x = tensor({{2., 2.}, {4., 4.}}).set_requires_grad();
  const Tensor mean = zeros({2}), variance = ones({2}), means = zeros({2}), variances = ones({2});
  const auto f = [&](const Tensor& in) {
    const Tensor y = batch_norm(in, mean, variance, {}, {}, {.training = true});
    return y + reshape(instance_norm(reshape(in, {1, 2, 2}), means, variances), {2, 2});
  };
  const Tensor y = checkpoint(f, x);
  CHECK(!recomputing());
  const auto before = mean.to_vector<float>(), first = means.to_vector<float>();
  sum(y * y).backward();
  CHECK(mean.to_vector<float>() == Values(2, 0.1f * 3));
  CHECK(mean.to_vector<float>() == before);
  CHECK(means.to_vector<float>() == first);
  CHECK(variance.to_vector<float>() == Values(2, 0.9f + 0.1f * 2));
}

TEST_CASE("a function that gives something else the second time is told by what") {
  const Tensor x = leaf({3, 2}), w = leaf({2});
  int runs = 0;
  const auto told = [&](const std::function<Tensors(const Tensors&)>& f,
                        const CheckpointOptions& options = {}) {
    runs = 0;
    const Tensors ys = checkpoint(f, {x}, options);
    return error_of([&] { sum(ys[0]).backward(); });
  };
  const auto says = [](const std::string& error, const char* what) {
    CAPTURE(error);
    CHECK(error.find(what) != std::string::npos);
  };
  says(told([&](const Tensors& in) { return Tensors{in[0].rows(0, 3 - runs++)}; }),
       "checkpoint: output 0: expected f32 [3, 2], as in forward, got f32 [2, 2] when it was "
       "computed "
       "anew; the function reads what has changed since");
  says(told([&](const Tensors& in) {
         return Tensors(static_cast<std::size_t>(1 + runs++), in[0] * 2);
       }),
       "expected 1 outputs, as in forward, got 2");
  const auto other_way = [&](const Tensors& in) {
    return Tensors{runs++ == 0 ? exp(in[0]) * 2 : log(abs(in[0])) * 2};
  };
  says(told(other_way), "checkpoint: operation 0: expected 'exp', as in forward, got 'abs'");
  CHECK(told(other_way, {.determinism_check = false}) == "nothing");
  says(told([&](const Tensors& in) { return Tensors{in[0] * (runs++ == 0 ? w : leaf({2}))}; }),
       "expected to be made from the same tensors that want a gradient as in forward");
  says(told([&](const Tensors& in) {
         ++runs;
         return Tensors{in[0].detach() * (runs == 1 ? w : w.detach())};
       }),
       "checkpoint: operation 0: expected 'mul', as in forward, got no more");
  const Tensor other = leaf({2});
  const Tensor written = other.detach();
  const Tensor y = checkpoint([&](const Tensor& in) { return in * w; }, written);
  fill_(written, 1);
  says(error_of([&] { sum(y).backward(); }), "has since been written in place");
}
