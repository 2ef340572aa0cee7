// SPDX-License-Identifier: Apache-2.0
// Normalisations within samples, embeddings, padding, shuffles, modules of two inputs.
#include <peal/nn/layers/layers.h>
#include <peal/nn/weight_norm.h>

#include "torch_layer_writer.h"

namespace peal::test {
namespace {

void write_group_norms(LayerWriter& write) {
  write(
      "nn.GroupNorm(2, 6)", [] { return nn::GroupNorm(2, 6); }, randn({3, 6, 5}));
  write(
      "nn.GroupNorm(3, 6, 0.1, False)",
      [] { return nn::GroupNorm(3, 6, {.eps = 0.1, .affine = false}); }, randn({2, 6, 3, 4}));
  write(
      "nn.GroupNorm(2, 6, bias=False)", [] { return nn::GroupNorm(2, 6, {.bias = false}); },
      randn({3, 6, 5}));
  write(
      "nn.InstanceNorm2d(3, affine=True, bias=False)",
      [] { return nn::InstanceNorm2d(3, {.affine = true, .bias = false}); }, randn({2, 3, 4, 5}));
  write(
      "nn.InstanceNorm1d(3)", [] { return nn::InstanceNorm1d(3); }, randn({2, 3, 5}));
  write(
      "nn.InstanceNorm1d(3, affine=True)", [] { return nn::InstanceNorm1d(3, {.affine = true}); },
      randn({3, 5}));
  write(
      "nn.InstanceNorm2d(3, 0.01, 0.25, True, True)",
      [] {
        return nn::InstanceNorm2d(3,
                                  {.eps = 0.01, .momentum = 0.25, .affine = true, .track = true});
      },
      randn({2, 3, 4, 5}));
  write(
      "nn.InstanceNorm3d(2, track_running_stats=True)",
      [] { return nn::InstanceNorm3d(2, {.track = true}); }, randn({2, 2, 3, 2, 3}));
  write(
      "nn.RMSNorm(5)", [] { return nn::RMSNorm(5); }, randn({3, 4, 5}));
  write(
      "nn.RMSNorm((4, 5), 0.1, False)",
      [] {
        return nn::RMSNorm(Shape{4, 5}, {.eps = 0.1, .affine = false});
      },
      randn({3, 4, 5}));
  write(
      "nn.LocalResponseNorm(2)", [] { return nn::LocalResponseNorm(2); }, randn({2, 5, 3, 2}));
}

void write_normalised_weights(LayerWriter& write) {
  const Tensor rows = randn({4, 3}), images = randn({2, 3, 5, 4});
  write(
      "nn.utils.weight_norm(nn.Linear(3, 5))", [] { return nn::weight_norm(nn::Linear(3, 5)); },
      rows);
  write(
      "nn.utils.weight_norm(nn.Linear(3, 5), 'weight', 1)",
      [] { return nn::weight_norm(nn::Linear(3, 5), "weight", 1); }, rows);
  write(
      "nn.utils.weight_norm(nn.Linear(3, 5), dim=-1)",
      [] { return nn::weight_norm(nn::Linear(3, 5), "weight", -1); }, rows);
  write(
      "nn.utils.weight_norm(nn.Conv2d(3, 4, 3), dim=None)",
      [] { return nn::weight_norm(nn::Conv2d(3, 4, 3), "weight", std::nullopt); }, images);
  write(
      "nn.utils.spectral_norm(nn.Linear(3, 5))", [] { return nn::spectral_norm(nn::Linear(3, 5)); },
      rows);
  write(
      "nn.utils.spectral_norm(nn.Conv2d(3, 4, 3), n_power_iterations=3, dim=1)",
      [] {
        return nn::spectral_norm(nn::Conv2d(3, 4, 3), "weight",
                                 {.n_power_iterations = 3, .dim = 1});
      },
      images);
}

void write_embeddings(LayerWriter& write) {
  const Tensor ids = Tensor::from<std::int64_t>({3, 0, 6, 3, 2, 3}, {2, 3});
  write(
      "nn.Embedding(7, 4, max_norm=1.5)", [] { return nn::Embedding(7, 4, {.max_norm = 1.5}); },
      ids);
  write(
      "nn.Embedding(7, 4, max_norm=2, norm_type=1, padding_idx=0)",
      [] { return nn::Embedding(7, 4, {.padding_idx = 0, .max_norm = 2, .norm_type = 1}); }, ids);
  write(
      "nn.EmbeddingBag(7, 4)", [] { return nn::EmbeddingBag(7, 4); }, ids);
  write(
      "nn.EmbeddingBag(7, 4, max_norm=1.5, mode='max')",
      [] { return nn::EmbeddingBag(7, 4, {.mode = BagMode::max, .max_norm = 1.5}); }, ids);
  const Tensor list = flatten(ids), offsets = Tensor::from<std::int64_t>({0, 2, 2}, {3});
  write(
      "nn.EmbeddingBag(7, 4, mode='sum')",
      [] { return nn::EmbeddingBag(7, 4, {.mode = BagMode::sum}); }, {list, offsets, randn({6})},
      "m(x[0], x[1], x[2])",
      [](auto& layer, const Tensors& x) { return Tensors{layer(x[0], x[1], x[2])}; });
}

void write_adaptive_softmax(LayerWriter& write) {
  const auto make = [] { return nn::AdaptiveLogSoftmaxWithLoss(12, 20, {4, 10, 13}, 2, true); };
  const std::string torch = "nn.AdaptiveLogSoftmaxWithLoss(12, 20, [4, 10, 13], 2, True)";
  const auto loss = [](auto& layer, const Tensors& x) {
    const auto [output, mean] = layer(x[0], x[1]);
    return Tensors{output, mean};
  };
  const Tensor x = randn({7, 12}),
               target = Tensor::from<std::int64_t>({3, 19, 10, 0, 4, 9, 12}, {7});
  write(torch, make, {x, target}, "list(m(x[0], x[1]))", loss);
  write(torch, make, {x}, "m.log_prob(x[0])",
        [](auto& layer, const Tensors& in) { return Tensors{layer.log_prob(in[0])}; });
  // Every class of the head, so that all parameters have a gradient.
  write(torch, make, {x, target}, "m(x[0][1], x[1][1]).output + m.log_prob(x[0]).sum()",
        [](auto& layer, const Tensors& in) {
          return Tensors{layer(in[0][1], in[1][1]).output + sum(layer.log_prob(in[0]))};
        });
}

void write_rearranging(LayerWriter& write) {
  const Tensor line = randn({2, 3, 5}), image = randn({2, 4, 3, 5}), room = randn({1, 2, 3, 4, 3});
  write(
      "nn.Identity()", [] { return nn::Identity(); }, line);
  write(
      "nn.Unflatten(1, (2, -1))",
      [] {
        return nn::Unflatten(1, {2, -1});
      },
      image);
  write(
      "nn.PixelShuffle(2)", [] { return nn::PixelShuffle(2); }, image);
  write(
      "nn.PixelUnshuffle(3)", [] { return nn::PixelUnshuffle(3); }, randn({2, 2, 3, 6}));
  write(
      "nn.ZeroPad1d(2)", [] { return nn::ZeroPad1d(2); }, line);
  write(
      "nn.ZeroPad2d((1, 0, 2, 3))",
      [] {
        return nn::ZeroPad2d({1, 0, 2, 3});
      },
      image);
  write(
      "nn.ZeroPad3d(1)", [] { return nn::ZeroPad3d(1); }, room);
  write(
      "nn.ConstantPad1d((2, 1), 0.5)",
      [] {
        return nn::ConstantPad1d({2, 1}, 0.5);
      },
      line);
  write(
      "nn.ConstantPad2d(-1, 0.5)", [] { return nn::ConstantPad2d(-1, 0.5); }, image);
  write(
      "nn.ReflectionPad1d(2)", [] { return nn::ReflectionPad1d(2); }, line);
  write(
      "nn.ReflectionPad2d((1, 2, 0, 2))",
      [] {
        return nn::ReflectionPad2d({1, 2, 0, 2});
      },
      image);
  write(
      "nn.ReflectionPad3d(1)", [] { return nn::ReflectionPad3d(1); }, room);
  write(
      "nn.ReplicationPad1d(3)", [] { return nn::ReplicationPad1d(3); }, randn({3, 5}));
  write(
      "nn.ReplicationPad2d(2)", [] { return nn::ReplicationPad2d(2); }, image);
  write(
      "nn.ReplicationPad3d(1)", [] { return nn::ReplicationPad3d(1); }, room);
  write(
      "nn.CircularPad1d(2)", [] { return nn::CircularPad1d(2); }, line);
  write(
      "nn.CircularPad2d(2)", [] { return nn::CircularPad2d(2); }, image);
}

void write_pairs(LayerWriter& write) {
  const Tensors two = {randn({4, 5}), randn({4, 5})};
  const auto run = [](auto& layer, const Tensors& x) { return Tensors{layer(x[0], x[1])}; };
  const std::string call = "m(x[0], x[1])";
  write(
      "nn.CosineSimilarity()", [] { return nn::CosineSimilarity(); }, two, call, run);
  write(
      "nn.PairwiseDistance(1, keepdim=True)", [] { return nn::PairwiseDistance(1, 1e-6, true); },
      two, call, run);
  write(
      "nn.Bilinear(5, 3, 4)", [] { return nn::Bilinear(5, 3, 4); },
      {randn({2, 3, 5}), randn({2, 3, 3})}, call, run);
  write(
      "nn.Bilinear(5, 5, 2, bias=False)", [] { return nn::Bilinear(5, 5, 2, false); }, two, call,
      run);
}

// Without what PyTorch's module gives beside the output, unless weights are asked for.
void write_attention(LayerWriter& write) {
  const Tensor q = randn({2, 4, 6}), k = randn({2, 5, 6});
  const Tensor own = Tensor::from<std::int64_t>(
      {0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0}, {4, 5});
  const Tensor padding = Tensor::from<std::int64_t>({0, 0, 0, 0, 1, 0, 0, 1, 1, 1}, {2, 5});
  const auto hidden = [](const Tensor& x) { return cast(x, DType::boolean); };
  const auto make = [] { return nn::MultiheadAttention(6, 2, {.batch_first = true}); };
  const std::string torch = "nn.MultiheadAttention(6, 2, batch_first=True";
  for (const bool averaged : {true, false}) {
    write(torch + ")", make, {q, k, k, own, padding},
          concat("m(x[0], x[1], x[2], x[4].bool(), True, x[3].bool(), average_attn_weights=",
                 averaged ? "True)" : "False)"),
          [=](auto& layer, const Tensors& x) {
            const auto [y, weights] = layer.attend_masked(x[0], x[1], x[2],
                                                          {.attn_mask = hidden(x[3]),
                                                           .key_padding_mask = hidden(x[4]),
                                                           .need_weights = true,
                                                           .average_attn_weights = averaged});
            return Tensors{y, weights};
          });
  }
  write(torch + ")", make, {q, k, k, randn({4, 4, 5})}, "m(x[0], x[1], x[2], None, False, x[3])[0]",
        [](auto& layer, const Tensors& x) {
          return Tensors{layer.attend_masked(x[0], x[1], x[2], {.attn_mask = x[3]}).output};
        });
  write(
      torch + ", kdim=3, vdim=5)",
      [] { return nn::MultiheadAttention(6, 2, {.kdim = 3, .vdim = 5, .batch_first = true}); },
      {q, randn({2, 5, 3}), randn({2, 5, 5})}, "m(x[0], x[1], x[2])[0]",
      [](auto& layer, const Tensors& x) { return Tensors{layer(x[0], x[1], x[2])}; });
  write(
      "nn.MultiheadAttention(6, 2)", [] { return nn::MultiheadAttention(6, 2); }, {q},
      "m(x[0], x[0], x[0])[0]", [](auto& layer, const Tensors& x) { return Tensors{layer(x[0])}; });
  write(
      torch + ", add_zero_attn=True)",
      [] { return nn::MultiheadAttention(6, 2, {.add_zero_attn = true, .batch_first = true}); },
      {q, padding}, "m(x[0], x[0], x[0], x[1].bool()[:, 1:], False)[0]",
      [=](auto& layer, const Tensors& x) {
        const Tensor mask = hidden(slice(x[1], 1, 1));
        return Tensors{layer.attend_masked(x[0], x[0], x[0], {.key_padding_mask = mask}).output};
      });
}

}  // namespace

void write_small_layers(LayerWriter& write) {
  write_group_norms(write);
  write_normalised_weights(write);
  write_embeddings(write);
  write_adaptive_softmax(write);
  write_rearranging(write);
  write_pairs(write);
  write_attention(write);
}

}  // namespace peal::test
