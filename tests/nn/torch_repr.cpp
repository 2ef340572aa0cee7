// SPDX-License-Identifier: Apache-2.0
// Writes the text of modules, each under the expression that makes the same in PyTorch: for
// torch_repr.py. Whoever adds a layer adds its rows. usage: torch_repr FOLDER
#include <peal/autograd/core/safetensors.h>
#include <peal/autograd/ops/factory.h>
#include <peal/nn/nn.h>

#include <cstdio>

using namespace peal;

namespace {

struct Row {
  const char* torch;
  nn::Module module;
};

std::vector<Row> products() {
  using namespace nn;
  return {
      {"nn.Linear(5, 7)", Linear(5, 7)},
      {"nn.Linear(5, 7, bias=False)", Linear(5, 7, false)},
      {"nn.Bilinear(2, 3, 4)", Bilinear(2, 3, 4)},
      {"nn.Conv1d(3, 5, 3)", Conv1d(3, 5, 3)},
      {"nn.Conv1d(4, 6, 3, 2, 3, 2, 2, False)",
       Conv1d(4, 6, 3, {.stride = 2, .padding = 3, .dilation = 2, .groups = 2, .bias = false})},
      {"nn.Conv2d(3, 5, 3, 1, 1)", Conv2d(3, 5, 3, {.padding = 1})},
      {"nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, False)",
       Conv2d(
           4, 6, {3, 2},
           {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2, .bias = false})},
      {"nn.Embedding(7, 4)", Embedding(7, 4)},
      {"nn.Embedding(7, 4, -1, 2.0, 1.0)",
       Embedding(7, 4, {.padding_idx = -1, .max_norm = 2, .norm_type = 1})},
      {"nn.EmbeddingBag(7, 4)", EmbeddingBag(7, 4)},
      {"nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], 2.0)",
       AdaptiveLogSoftmaxWithLoss(8, 20, {4, 10}, 2)},
      {"nn.EmbeddingBag(7, 4, 0.5, mode='sum', padding_idx=1)",
       EmbeddingBag(7, 4, {.mode = BagMode::sum, .padding_idx = 1, .max_norm = 0.5})},
      {"nn.MultiheadAttention(6, 2)", MultiheadAttention(6, 2)},
      {"nn.TransformerEncoderLayer(6, 2, 10)",
       TransformerEncoderLayer(6, 2, {.dim_feedforward = 10})},
      {"nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 10, 0.25), 1)",
       TransformerDecoder(TransformerDecoderLayer(6, 2, {.dim_feedforward = 10, .dropout = 0.25}),
                          1)},
      {"nn.Transformer(8, 2, 1, 1, 16)", Transformer(8, 2, 1, 1, {.dim_feedforward = 16})},
      {"nn.Transformer(8, 2, 1, 1, 16, bias=False)",
       Transformer(8, 2, 1, 1, {.dim_feedforward = 16, .bias = false})},
      {"nn.LSTM(3, 4)", LSTM(3, 4)},
      {"nn.GRU(3, 4, 2, False, True, 0.25, True)", GRU(3, 4, {2, false, true, 0.25, true})}};
}

std::vector<Row> norms() {
  using namespace nn;
  return {
      {"nn.BatchNorm1d(3)", BatchNorm1d(3)},
      {"nn.BatchNorm2d(3, 1e-3, None)", BatchNorm2d(3, {.eps = 1e-3, .momentum = std::nullopt})},
      {"nn.BatchNorm3d(3, 2e-12, 0.25, False, False)", BatchNorm3d(3, {2e-12, 0.25, false, false})},
      {"nn.BatchNorm2d(3, bias=False)", BatchNorm2d(3, {.bias = false})},
      {"nn.LayerNorm(5)", LayerNorm(5)},
      {"nn.LayerNorm((4, 5), 0.1, False)", LayerNorm(Shape{4, 5}, {0.1, false})},
      {"nn.LayerNorm(5, bias=False)", LayerNorm(5, {.bias = false})},
      {"nn.GroupNorm(2, 4)", GroupNorm(2, 4)},
      {"nn.GroupNorm(2, 4, 1e-6, False)", GroupNorm(2, 4, {1e-6, false})},
      {"nn.GroupNorm(2, 4, bias=False)", GroupNorm(2, 4, {.bias = false})},
      {"nn.InstanceNorm1d(3)", InstanceNorm1d(3)},
      {"nn.InstanceNorm1d(3, affine=True, bias=False)",
       InstanceNorm1d(3, {.affine = true, .bias = false})},
      {"nn.InstanceNorm2d(3, affine=True, track_running_stats=True)",
       InstanceNorm2d(3, {.affine = true, .track = true})},
      {"nn.InstanceNorm3d(3)", InstanceNorm3d(3)},
      {"nn.RMSNorm(5)", RMSNorm(5)},
      {"nn.RMSNorm((4, 5), 1e-3, False)", RMSNorm(Shape{4, 5}, {1e-3, false})},
      {"nn.LocalResponseNorm(3)", LocalResponseNorm(3)},
      {"nn.LocalResponseNorm(3, 0.5, 2.0, 100000.0)",
       LocalResponseNorm(3, {.alpha = 0.5, .beta = 2, .k = 1e5})}};
}

std::vector<Row> windows() {
  using namespace nn;
  return {{"nn.MaxPool2d(2)", MaxPool2d(2)},
          {"nn.MaxPool2d((3, 2), 2, 1, ceil_mode=True)", MaxPool2d({3, 2}, 2, 1, 1, true)},
          {"nn.AvgPool2d(2)", AvgPool2d(2)},
          {"nn.AvgPool2d((3, 2), (1, 2), 1)", AvgPool2d({3, 2}, {1, 2}, 1)},
          {"nn.AdaptiveAvgPool2d(1)", AdaptiveAvgPool2d(1)},
          {"nn.AdaptiveAvgPool2d((4, 3))", AdaptiveAvgPool2d({4, 3})},
          {"nn.MaxPool1d(3, 2, 1, 2, ceil_mode=True)", MaxPool1d(3, 2, 1, 2, true)},
          {"nn.MaxPool3d((2, 1, 2), 2)", MaxPool3d({2, 1, 2}, 2)},
          {"nn.AvgPool1d(3, 2, 1)", AvgPool1d(3, 2, 1)},
          {"nn.AvgPool3d((2, 1, 2), 2, 1)", AvgPool3d({2, 1, 2}, 2, 1)},
          {"nn.AdaptiveAvgPool1d(3)", AdaptiveAvgPool1d(3)},
          {"nn.AdaptiveAvgPool3d((1, 2, 3))", AdaptiveAvgPool3d({1, 2, 3})},
          {"nn.AdaptiveMaxPool1d(3)", AdaptiveMaxPool1d(3)},
          {"nn.AdaptiveMaxPool2d((3, 2))", AdaptiveMaxPool2d({3, 2})},
          {"nn.AdaptiveMaxPool3d(1)", AdaptiveMaxPool3d(1)},
          {"nn.MaxUnpool1d(3)", MaxUnpool1d(3)},
          {"nn.MaxUnpool2d((3, 2), 1, (1, 0))", MaxUnpool2d({3, 2}, 1, {1, 0})},
          {"nn.MaxUnpool3d((2, 1, 2), padding=1)", MaxUnpool3d({2, 1, 2}, {}, 1)},
          {"nn.FractionalMaxPool2d(2, 3)", FractionalMaxPool2d(2, {.output_size = 3})},
          {"nn.LPPool1d(2, 3)", LPPool1d(2, 3)},
          {"nn.LPPool2d(1.5, (3, 2), stride=2, ceil_mode=True)", LPPool2d(1.5, {3, 2}, 2, true)},
          {"nn.Upsample(scale_factor=2)", Upsample({.scale_factor = 2})},
          {"nn.Upsample((4, 5), mode='bilinear', align_corners=True)",
           Upsample({.size = {4, 5}, .mode = InterpolateMode::bilinear, .align_corners = true})},
          {"nn.ConstantPad1d(2, 1.5)", ConstantPad1d(2, 1.5)},
          {"nn.ConstantPad2d((1, 2, 3, 4), 0.5)", ConstantPad2d({1, 2, 3, 4}, 0.5)},
          {"nn.ZeroPad2d(1)", ZeroPad2d(1)},
          {"nn.ReflectionPad1d(2)", ReflectionPad1d(2)},
          {"nn.ReflectionPad3d(1)", ReflectionPad3d(1)},
          {"nn.ReplicationPad2d((1, 2, 3, 4))", ReplicationPad2d({1, 2, 3, 4})},
          {"nn.CircularPad2d(1)", CircularPad2d(1)}};
}

std::vector<Row> convolutions() {
  using namespace nn;
  return {{"nn.ConvTranspose1d(4, 6, 3)", ConvTranspose1d(4, 6, 3)},
          {"nn.ConvTranspose2d(4, 6, (3, 2), (2, 1), (1, 0), (1, 0), 2, False, (1, 2))",
           ConvTranspose2d(4, 6, {3, 2}, {{2, 1}, {1, 0}, {1, 0}, 2, false, {1, 2}})},
          {"nn.ConvTranspose3d(4, 6, 3, 2, 1, 1)", ConvTranspose3d(4, 6, 3, {2, 1, 1})},
          {"nn.Conv3d(4, 6, 3)", Conv3d(4, 6, 3)},
          {"nn.Conv3d(4, 6, (1, 2, 3), 2, (0, 1, 1), 1, 2, False, 'replicate')",
           Conv3d(4, 6, {1, 2, 3}, {2, {0, 1, 1}, 1, 2, false, PadMode::replicate})},
          {"nn.Conv2d(4, 6, 3, padding='same', padding_mode='reflect')",
           Conv2d(4, 6, 3, {.padding = "same", .padding_mode = PadMode::reflect})},
          {"nn.Conv1d(4, 6, 3, padding='valid')", Conv1d(4, 6, 3, {.padding = "valid"})},
          {"nn.Conv1d(4, 6, 3, padding=1, padding_mode='circular')",
           Conv1d(4, 6, 3, {.padding = 1, .padding_mode = PadMode::circular})},
          {"nn.Unfold((2, 3), 1, (0, 1), 2)", Unfold({2, 3}, {1, {0, 1}, 2})},
          {"nn.Fold((4, 5), 2)", Fold({4, 5}, 2)}};
}

std::vector<Row> functions() {
  using namespace nn;
  return {{"nn.ReLU()", ReLU()},
          {"nn.GELU()", GELU()},
          {"nn.GELU('tanh')", GELU(GeluApproximation::tanh)},
          {"nn.Tanh()", Tanh()},
          {"nn.Sigmoid()", Sigmoid()},
          {"nn.Softmax(1)", Softmax(1)},
          {"nn.LogSoftmax(-1)", LogSoftmax(-1)},
          {"nn.Dropout()", Dropout()},
          {"nn.Dropout(0.0)", Dropout(0)},
          {"nn.Dropout1d(0.25)", Dropout1d(0.25)},
          {"nn.Dropout2d(0.25)", Dropout2d(0.25)},
          {"nn.Dropout3d(0.25)", Dropout3d(0.25)},
          {"nn.AlphaDropout(0.1)", AlphaDropout(0.1)},
          {"nn.FeatureAlphaDropout(0.1)", FeatureAlphaDropout(0.1)},
          {"nn.Identity()", Identity()},
          {"nn.Flatten()", Flatten()},
          {"nn.Flatten(0)", Flatten(0)},
          {"nn.Flatten(1, 2)", Flatten(1, 2)},
          {"nn.Unflatten(1, (2, 3))", Unflatten(1, {2, 3})},
          {"nn.PixelShuffle(2)", PixelShuffle(2)},
          {"nn.PixelUnshuffle(2)", PixelUnshuffle(2)},
          {"nn.ChannelShuffle(2)", ChannelShuffle(2)},
          {"nn.CosineSimilarity()", CosineSimilarity()},
          {"nn.PairwiseDistance()", PairwiseDistance()}};
}

std::vector<Row> rectifiers() {
  using namespace nn;
  return {{"nn.SiLU()", SiLU()},
          {"nn.Mish()", Mish()},
          {"nn.LogSigmoid()", LogSigmoid()},
          {"nn.Softsign()", Softsign()},
          {"nn.Tanhshrink()", Tanhshrink()},
          {"nn.Softplus(1.0, 20.0)", Softplus()},
          {"nn.GLU()", GLU()},
          {"nn.Softmin(1)", Softmin(1)},
          {"nn.Softmax2d()", Softmax2d()},
          {"nn.ReLU6()", ReLU6()},
          {"nn.LeakyReLU(0.2)", LeakyReLU(0.2)},
          {"nn.PReLU(3)", PReLU(3)},
          {"nn.RReLU()", RReLU()},
          {"nn.ELU(0.5)", ELU(0.5)},
          {"nn.SELU()", SELU()},
          {"nn.CELU(2.0)", CELU(2)},
          {"nn.Hardtanh(-2.0, 0.5)", Hardtanh(-2, 0.5)},
          {"nn.Hardsigmoid()", Hardsigmoid()},
          {"nn.Hardswish()", Hardswish()},
          {"nn.Hardshrink(0.25)", Hardshrink(0.25)},
          {"nn.Softshrink(0.25)", Softshrink(0.25)},
          {"nn.Threshold(0.1, 20.0)", Threshold(0.1, 20)}};
}

std::vector<Row> containers() {
  using namespace nn;
  return {{"nn.Sequential()", Sequential()},
          {"nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh())))",
           Sequential(Linear(2, 3), Sequential(ReLU(), Sequential(Tanh())))},
          {"nn.Sequential(collections.OrderedDict([('fc', nn.Linear(2, 3)), ('act', nn.ReLU())]))",
           Sequential(
               std::vector<std::pair<std::string, Module>>{{"fc", Linear(2, 3)}, {"act", ReLU()}})},
          {"nn.ModuleList()", ModuleList()},
          {"nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Linear(2, 3), nn.ReLU()])",
           ModuleList(ReLU(), ReLU(), Linear(2, 3), ReLU())},
          {"nn.ModuleList([nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU())])",
           ModuleList(Sequential(ReLU()), Sequential(ReLU()))},
          {"nn.ModuleDict({'a': nn.ReLU(), 'b': nn.Linear(2, 3)})",
           ModuleDict({{"a", ReLU()}, {"b", Linear(2, 3)}})},
          {"nn.ParameterList([torch.zeros(3), torch.zeros(2, 3)])",
           ParameterList({Tensor::zeros({3}), Tensor::zeros({2, 3})})},
          {"nn.ParameterDict({'a': nn.Parameter(torch.zeros(3)), 'b': nn.Parameter(torch.zeros(2, "
           "3))})",
           ParameterDict({{"a", Tensor::zeros({3})}, {"b", Tensor::zeros({2, 3})}})}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    Metadata texts;
    for (const auto& rows : {products(), norms(), windows(), convolutions(), functions(),
                             rectifiers(), containers()}) {
      for (const Row& row : rows) texts[row.torch] = row.module.repr();
    }
    save_safetensors(std::filesystem::path(argv[1]) / "repr.safetensors",
                     {{"none", Tensor::zeros({1})}}, texts);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
