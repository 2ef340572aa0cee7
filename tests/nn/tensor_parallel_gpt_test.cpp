// SPDX-License-Identifier: Apache-2.0
// A GPT cut by a plan, trained beside one process: alone, with data parallel besides, and with
// sequences cut; and its state, which is the plain model's.
#include <peal/autograd/core/allocator.h>
#include <peal/autograd/core/requested_bytes.h>
#include <peal/comm/group/device_mesh.h>
#include <peal/nn/checkpoint.h>
#include <peal/nn/empty_weights.h>
#include <peal/nn/optim/ema.h>
#include <peal/tests/errors.h>

#include <map>

#include "tensor_parallel_ranks.h"
#include "two_groups.h"

using namespace peal;
using namespace peal::testing;

namespace {

// `gather`: whole logits on every rank, or a loss of each one's part.
void train_cut(const Group& group, bool gather, bool sequence) {
  const Trained& one = by_one_process();
  nn::GPT gpt = fresh(gpt_of_four_heads);
  nn::TensorParallel tp = nn::parallelize_module(gpt, group, plan(gather, sequence));
  CHECK(difference(tp.state_dict(), one.start) == 0);
  nn::AdamW optimizer(tp.named_parameters(), adam);
  for (std::size_t step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const Batch batch = tokens_of(static_cast<int>(step));
    const Tensor loss = gather ? loss_of(tp, batch) : cut_loss(tp, batch, group);
    loss.backward();
    PEAL_CHECK(std::abs(loss.item<double>() - one.losses[step]) < 1e-10, "loss of step ", step);
    PEAL_CHECK(std::abs(tp.clip_grad_norm_(most) - one.norms[step]) < 1e-10, "norm of step ", step);
    optimizer.step();
  }
  check_is_one_process(tp, optimizer);
}

}  // namespace

TEST_CASE("a GPT over 1, 2 and 4 ranks trains as one process") {
  by_one_process();
  for (const int world : {1, 2, 4}) {
    for (const bool gather : {true, false}) {
      CAPTURE(world);
      CAPTURE(gather);
      ranks(world, [&](const Group& group, int) { train_cut(group, gather, false); });
    }
  }
}

TEST_CASE("with the sequence cut between layers, too") {
  by_one_process();
  for (const int world : {2, 4}) {
    CAPTURE(world);
    ranks(world, [&](const Group& group, int) { train_cut(group, world == 2, true); });
  }
}

TEST_CASE("a loss and each gradient of 1, 2, 4 and 8 ranks are one process's") {
  const auto of_eight_heads = +[] { return nn::GPT({16, 16, 8, 2, 8}); };
  nn::GPT whole = fresh(of_eight_heads);
  const Tensor expected = loss_of(whole, tokens_of(0));
  expected.backward();
  for (const int world : {1, 2, 4, 8}) {
    for (const bool sequence : {false, true}) {
      CAPTURE(world);
      CAPTURE(sequence);
      nn::TensorParallelPlan cuts = plan(false, sequence);
      for (auto& [path, style] : cuts) {
        auto* const column = std::get_if<nn::ColwiseParallel>(&style);
        if (column != nullptr && column->heads > 0) column->heads = 8;
      }
      ranks(world, [&](const Group& group, int rank) {
        nn::TensorParallel tp = nn::parallelize_module(fresh(of_eight_heads), group, cuts);
        const Tensor loss = cut_loss(tp, tokens_of(0), group);
        CHECK(far(loss.detach(), expected.detach()) < 1e-12);
        loss.backward();
        for (const auto& [name, parameter] : tp.named_parameters()) {
          const Tensor gradient = gradient_of(whole.get_parameter(name));
          const auto cut = tp.cut_of(name);
          const Tensor mine = cut ? nn::part_of(gradient, *cut, rank, world) : gradient;
          PEAL_CHECK(far(gradient_of(parameter), mine) < 1e-12, name);
        }
      });
    }
  }
}

TEST_CASE("data parallel over one dimension of a mesh and tensor parallel over the other") {
  const Trained& one = by_one_process();
  for (const bool sequence : {false, true}) {
    CAPTURE(sequence);
    ranks(4, [&](const Group& group, int) {
      const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
      nn::TensorParallel tp = nn::parallelize_module(fresh(gpt_of_four_heads), mesh.get_group("tp"),
                                                     plan(true, sequence));
      DDP ddp(tp, mesh.get_group("dp"), {.buckets = apart});
      nn::AdamW optimizer(tp.named_parameters(), adam);
      for (std::size_t step = 0; step < steps; ++step) {
        optimizer.zero_grad();
        const Batch all = tokens_of(static_cast<int>(step));
        loss_of(ddp, rows_of(all, mesh.get_local_rank("dp"), 2)).backward();
        PEAL_CHECK(std::abs(tp.clip_grad_norm_(most) - one.norms[step]) < 1e-10, "step ", step);
        optimizer.step();
      }
      check_is_one_process(tp, optimizer);
    });
  }
}

namespace {

template <class Model>
double fourth_loss(Model& model, nn::AdamW& optimizer) {
  optimizer.zero_grad();
  loss_of(model, tokens_of(3)).backward();
  optimizer.step();
  return loss_of(model, tokens_of(4)).template item<double>();
}

}  // namespace

TEST_CASE("states go from ranks to one process, and to other numbers of ranks") {
  NamedTensors model, moments;  // of two ranks, after three steps
  double loss = 0;              // of them, after the fourth
  ranks(2, [&](const Group& group, int rank) {
    nn::TensorParallel tp = nn::parallelize_module(fresh(gpt_of_four_heads), group, plan(true));
    nn::AdamW optimizer(two_groups(tp.named_parameters(), adam));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      loss_of(tp, tokens_of(step)).backward();
      optimizer.step();
    }
    check_has(error_of([&] { optimizer.state_dict(); }), "optimizer_state_dict()");
    const nn::Part whole{"model", tp}, state{"optimizer", tp.saved(optimizer)};
    for (const nn::Part& part : {whole, state}) part.consolidate_state_dict();
    if (rank == 0) {
      model = copies(whole.state_dict());
      moments = copies(state.state_dict());
    } else {
      check_has(error_of([&] { whole.state_dict(); }), "lies with 2 ranks");
    }
    const double after = fourth_loss(tp, optimizer);
    if (rank == 0) loss = after;
  });
  nn::GPT plain = fresh(gpt_of_four_heads);
  nn::AdamW optimizer(two_groups(plain.named_parameters(), adam));
  plain.load_state_dict(model);
  optimizer.load_state_dict(moments);
  CHECK(std::abs(fourth_loss(plain, optimizer) - loss) < 1e-10);
  ranks(4, [&](const Group& group, int) {
    nn::TensorParallel tp = nn::parallelize_module(gpt_of_four_heads(), group, plan(true));
    tp.to(DType::f64);
    nn::AdamW mine(two_groups(tp.named_parameters(), adam));
    nn::Part{"model", tp}.load_state_dict(model);
    nn::Part{"optimizer", tp.saved(mine)}.load_state_dict(moments);
    CHECK(difference(tp.state_dict(), model) == 0);
    check_has(error_of([&] { mine.state_dict(); }), "optimizer_state_dict()");  // also converted
    PEAL_CHECK(std::abs(fourth_loss(tp, mine) - loss) < 1e-10);
    NamedTensors wrong = model;
    wrong[0].second = wrong[0].second.rows(0, 4);
    check_has(error_of([&] { tp.load_state_dict(wrong); }),
              "transformer.wte.weight: expected [12, 8], got [4, 8]");
    check_has(error_of([&] { tp.load_state_dict({}); }), "missing: transformer.wte.weight");
  });
}

TEST_CASE("a layer costs two all-reduces in forward and two in backward, or as many halves") {
  using comm::Collective;
  const auto of_layers = [](std::int64_t layers, bool sequence) {
    std::map<Collective, std::int64_t> calls;
    ranks(2, [&](const Group& group, int rank) {
      nn::GPT gpt({vocabulary, 8, heads, layers, 8});
      nn::TensorParallel tp = nn::parallelize_module(gpt, group, plan(false, sequence));
      comm::OperationCounters before;
      for (int step = 0; step < 2; ++step) {  // the first has more: ranks agree on what they do
        before = group.counters();
        cut_loss(tp, tokens_of(step), group).backward();
      }
      const comm::OperationCounters made = group.counters() - before;
      if (rank != 0) return;
      for (const Collective what : comm::all_collectives) {
        calls[what] = static_cast<std::int64_t>(made[what].calls);
      }
    });
    return calls;
  };
  for (const bool sequence : {false, true}) {
    const auto two = of_layers(2, sequence), five = of_layers(5, sequence);
    for (const Collective what : comm::all_collectives) {
      CAPTURE(name(what));
      const bool half = what == Collective::all_gather || what == Collective::reduce_scatter;
      int expected = half == sequence ? 4 : 0;
      if (!half && what != Collective::all_reduce) expected = 0;
      // And the gradients of what all have whole: two norms, and the biases of two row layers.
      if (sequence && what == Collective::all_reduce) expected = 6;
      CHECK(five.at(what) - two.at(what) == 3 * expected);
    }
  }
}

TEST_CASE("of a cut model its parts alone are not saved") {
  ranks(2, [](const Group& group, int rank) {
    nn::GPT gpt = gpt_of_four_heads();
    nn::TensorParallel tp = nn::parallelize_module(gpt, group, plan(true));
    const nn::Part parts{"model", gpt}, whole{"model", tp};
    const std::string piece = "transformer.wte.weight [6, 8] is this rank's piece";
    check_has(error_of([&] { nn::snapshot({parts}); }), "snapshot: part 'model': " + piece);
    check_has(error_of([&] { nn::save_model("/none/model", gpt); }), piece);
    check_has(error_of([&] { parts.local_state().save(); }), piece);
    nn::ExponentialMovingAverage averages(tp);
    averages.update();
    check_has(error_of([&] { averages.state_dict(); }), piece + " of a tensor-parallel model");
    averages.swap();
    CHECK(tp.state_dict().size() == gpt.state_dict().size());  // which are the averages
    averages.swap();
    whole.consolidate_state_dict();
    if (rank == 0) CHECK(nn::snapshot({whole}).tensors.size() == tp.named_parameters().size() + 1);
  });
}

TEST_CASE("gradients of norms in cut sequences add up where DDP computes in bf16") {
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    ranks(4, [&](const Group& group, int) {
      const comm::DeviceMesh mesh(group, {2, 2}, {"dp", "tp"});
      const Group over = mesh.get_group("tp");
      nn::TensorParallel tp = nn::parallelize_module(gpt_of_four_heads(), over, plan(true, true));
      DDP ddp(tp, mesh.get_group("dp"),
              {.mixed_precision = {.param_dtype = DType::bf16, .keep_low_precision_grads = keep}});
      for (int step = 0; step < 2; ++step) {
        loss_of(ddp, rows_of(tokens_of(step), mesh.get_local_rank("dp"), 2)).backward();
        for (const auto& [name, parameter] : tp.named_parameters()) {
          if (name.find("ln_") == std::string::npos) continue;
          PEAL_CHECK(same_everywhere(cast(parameter.grad(), DType::f32), over), name);
        }
      }
    });
  }
}

TEST_CASE("a sequence-parallel parameter must be seen before another stands for it") {
  ranks(2, [](const Group& group, int) {
    nn::GPT gpt = gpt_of_four_heads();
    gpt.transformer.ln_f.weight.set_requires_grad(false);
    nn::TensorParallel tp = nn::parallelize_module(gpt, group, plan(true, true));
    gpt.transformer.ln_f.weight.set_requires_grad();
    DDP ddp(tp, Group::alone(), {.mixed_precision = {.param_dtype = DType::bf16}});
    check_has(error_of([&] { ddp(tokens_of(0).x); }),
              "transformer.ln_f.weight: another tensor stands for it");
    {
      const NoGrad guard;
      tp(tokens_of(0).x);
    }
    CHECK(error_of([&] { ddp(tokens_of(0).x); }) == "nothing");
  });
}

TEST_CASE("a model made empty is cut a layer at a time, to the values that it would have had") {
  constexpr std::int64_t layers = 8, wide = 128;
  constexpr std::size_t layer = (wide * wide + wide) * 4, model = layers * layer;
  const auto made = [](std::uint64_t seed) {
    manual_seed(seed);
    nn::Sequential all;
    for (int i = 0; i < layers; ++i) all.push_back(nn::Linear(wide, wide));
    return all;
  };
  nn::TensorParallelPlan by_turns;
  for (int i = 0; i < layers; ++i) {
    const std::string path = std::to_string(i);
    if (i % 2 == 0) by_turns.emplace_back(path, nn::ColwiseParallel{});
    if (i % 2 == 1) by_turns.emplace_back(path, nn::RowwiseParallel{});
  }
  std::size_t peaks[] = {0, 0, 0};
  for (const int empty : {0, 1, 2}) {  // on no rank, on all, on rank 1 with other numbers
    CAPTURE(empty);
    ranks(2, [&](const Group& group, int rank) {
      const nn::Sequential expected = made(8);
      group.barrier().wait();
      const std::size_t before = cpu_requested_bytes().now;
      if (rank == 0) cpu_reset_peak();
      group.barrier().wait();
      const nn::Sequential net = [&] {
        if (empty == 0 || (empty == 2 && rank == 0)) return made(8);
        const auto without = nn::init_empty_weights();
        return made(empty == 2 ? 9 : 8);
      }();
      nn::TensorParallel tp = nn::parallelize_module(net, group, by_turns);
      group.barrier().wait();
      if (rank == 0) peaks[empty] = cpu_requested_bytes().most - before;
      group.barrier().wait();
      CHECK(difference(tp.state_dict(), expected.state_dict()) == 0);
    });
  }
  CHECK(peaks[0] > 2 * model);
  CHECK(peaks[1] < model + 6 * layer);  // halves, and of each rank a layer, its part and its copy
}

TEST_CASE("what a rank came with stays for others who hold it, though another came empty") {
  const auto made = [] {
    manual_seed(8);
    return nn::Sequential(nn::Linear(4, 4));
  };
  ranks(2, [&](const Group& group, int rank) {
    const nn::Sequential net = [&] {
      if (rank == 0) return made();
      const auto without = nn::init_empty_weights();
      return made();
    }();
    const NamedTensors held = net.state_dict();
    const nn::TensorParallel tp =
        nn::parallelize_module(net, group, {{"0", nn::ColwiseParallel{}}});
    if (rank == 0) CHECK(difference(held, made().state_dict()) == 0);
  });
}

TEST_CASE("queries, keys and values that are cut as one part are an error") {
  ranks(2, [](const Group& group, int) {
    nn::TensorParallel tp = nn::parallelize_module(
        gpt_of_four_heads(), group,
        {{"transformer.h.*.attn.c_attn", nn::ColwiseParallel{.heads = heads}},
         {"transformer.h.*.attn.c_proj", nn::RowwiseParallel{}}});
    check_has(error_of([&] { tp(tokens_of(0).x); }), "expected a cut with .parts = 3, got 1");
  });
}

TEST_CASE("a cut GPT continues text with a cache, and refuses what does not divide") {
  nn::GPT plain = fresh(gpt_of_four_heads);
  const Batch batch = tokens_of(0);
  const Tensor expected = plain.next(batch.x).detach();
  ranks(4, [&](const Group& group, int) {
    nn::GPT gpt = fresh(gpt_of_four_heads);
    nn::parallelize_module(gpt, group, plan(true));
    const NoGrad guard;
    nn::GptCache cache;
    gpt.next(slice(batch.x, 1, 0, 5), &cache);
    CHECK(cache.layers[0].keys.shape() == Shape{4, 5, 2});
    Tensor last;
    for (int at = 5; at < 8; ++at) last = gpt.next(slice(batch.x, 1, at, at + 1), &cache);
    CHECK(difference({{"", last}}, {{"", expected}}) < 1e-12);
  });
  ranks(2, [&](const Group& group, int) {
    nn::GPT gpt = fresh(gpt_of_four_heads);
    nn::TensorParallel tp = nn::parallelize_module(gpt, group, plan(true, /*sequence=*/true));
    CHECK(difference({{"", gpt.next(batch.x).detach()}}, {{"", expected}}) < 1e-12);
    check_has(error_of([&] { tp(slice(batch.x, 1, 0, 7)); }),
              "transformer.drop: dimension 1 of shape [4, 7, 8] has 7 places, which do not divide "
              "among 2 ranks");
  });
  ranks(3, [](const Group& group, int) {
    const std::string told =
        error_of([&] { nn::parallelize_module(gpt_of_four_heads(), group, plan(true)); });
    check_has(told, "transformer.h.0.attn.c_attn: 4 heads do not divide among 3 tensor-parallel");
  });
}
