// SPDX-License-Identifier: Apache-2.0
#include <peal/autograd/core/cpu_level.h>
#include <peal/autograd/kernels/cpu/bf16.h>
#include <peal/autograd/kernels/cpu/channels_last.h>
#include <peal/autograd/kernels/cpu/convolution.h>
#include <peal/autograd/kernels/cpu/convolution_winograd.h>
#include <peal/autograd/kernels/cpu/held_signals.h>
#include <peal/autograd/kernels/cpu/onednn.h>
#include <peal/autograd/kernels/cpu/table.h>

#include <omp.h>

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace peal::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto f32 = memory::data_type::f32, bf16 = memory::data_type::bf16;

const dnnl::engine& engine() { return onednn_engine(); }
dnnl::stream& stream() { return onednn_stream(); }
memory on(const memory::desc& desc, const Tensor& tensor) { return onednn_memory(desc, tensor); }

constexpr std::int64_t least_images = 16;  // with which Winograd is the fastest

std::int64_t floats_of(const memory::desc& desc) {
  return static_cast<std::int64_t>((desc.get_size() + sizeof(float) - 1) / sizeof(float));
}

// Room for an array in one of oneDNN's own layouts.
Tensor room(const memory::desc& desc) {
  return Tensor::empty({floats_of(desc)}, DType::f32, Device{});
}

// What oneDNN prepared for one geometry: compiled code, so it is made once and used for every step.
// Each product is made when it is first wanted. Images come and go in the type `stored`, and change
// to that which is `computed` in where they are arranged; so does the weight, which may be either.
// Bias and the gradients of both are f32, as chunks of a batch add up in them.
class Convolution {
 public:
  Convolution(const Conv2dGeometry& o, memory::data_type stored, memory::data_type computed)
      : geometry_(o),
        computed_(computed),
        x_({o.batch, o.in_channels, o.in_height, o.in_width}, stored, Tag::nchw),
        weight_(weight_of(o, stored)),
        bias_({o.out_channels}, f32, Tag::x),
        y_({o.batch, o.out_channels, o.out_height, o.out_width}, stored, Tag::nchw),
        wide_weight_(weight_of(o, f32)) {
    attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    forward_ = onednn_describe<dnnl::convolution_forward>(
        attributes_, dnnl::prop_kind::forward_training, algorithm(), any(x_), any(weight_), bias_,
        any(y_), strides(), dilation(), padding(), padding_after());
    run_forward_ = dnnl::convolution_forward(forward_);
  }

  void forward(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
    const Tensor source = arranged(x, x_, forward_.src_desc());
    const Tensor kernel = arranged(weight, desc_of(weight), forward_.weights_desc());
    const bool direct = forward_.dst_desc() == y_;
    const Tensor result = direct ? y : room(forward_.dst_desc());
    run(run_forward_, forward_.scratchpad_desc(),
        {{DNNL_ARG_SRC, on(forward_.src_desc(), source)},
         {DNNL_ARG_WEIGHTS, on(forward_.weights_desc(), kernel)},
         {DNNL_ARG_BIAS, on(bias_, bias.defined() ? bias
                                                  : Tensor::zeros({geometry_.out_channels},
                                                                  DType::f32, Device{}))},
         {DNNL_ARG_DST, on(forward_.dst_desc(), result)}});
    if (!direct) arrange(result, forward_.dst_desc(), y, y_);
  }

  void backward(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                const Tensor& x, const Tensor& weight) {
    Tensor grad;  // dy as the last product wanted it
    memory::desc layout;
    const auto grad_as = [&](const memory::desc& wanted) {
      if (!grad.defined() || layout != wanted) {
        grad = arranged(dy, y_, wanted);
        layout = wanted;
      }
      return on(wanted, grad);
    };
    if (dweight.defined() || dbias.defined()) {
      ToWeights& product = to_weights_[dbias.defined() ? 1 : 0];
      if (!product.run) prepare(product, dbias.defined());
      const auto& pd = product.desc;
      const bool direct = pd.diff_weights_desc() == wide_weight_ && dweight.defined();
      const Tensor result = direct ? dweight : room(pd.diff_weights_desc());
      const Tensor source = arranged(x, x_, pd.src_desc());
      std::unordered_map<int, memory> arguments{
          {DNNL_ARG_SRC, on(pd.src_desc(), source)},
          {DNNL_ARG_DIFF_DST, grad_as(pd.diff_dst_desc())},
          {DNNL_ARG_DIFF_WEIGHTS, on(pd.diff_weights_desc(), result)}};
      if (dbias.defined()) arguments.emplace(DNNL_ARG_DIFF_BIAS, on(bias_, dbias));
      run(product.run, pd.scratchpad_desc(), arguments);
      if (dweight.defined() && !direct) {
        arrange(result, pd.diff_weights_desc(), dweight, wide_weight_);
      }
    }
    if (dx.defined()) {
      prepare_data();
      const auto& pd = to_data_;
      const bool direct = pd.diff_src_desc() == x_;
      const Tensor result = direct ? dx : room(pd.diff_src_desc());
      const Tensor kernel = arranged(weight, desc_of(weight), pd.weights_desc());
      run(run_to_data_, pd.scratchpad_desc(),
          {{DNNL_ARG_DIFF_DST, grad_as(pd.diff_dst_desc())},
           {DNNL_ARG_WEIGHTS, on(pd.weights_desc(), kernel)},
           {DNNL_ARG_DIFF_SRC, on(pd.diff_src_desc(), result)}});
      if (!direct) arrange(result, pd.diff_src_desc(), dx, x_);
    }
  }

 private:
  memory::dims strides() const { return {geometry_.stride[0], geometry_.stride[1]}; }
  // oneDNN counts the pixels between two of the kernel.
  memory::dims dilation() const { return {geometry_.dilation[0] - 1, geometry_.dilation[1] - 1}; }
  memory::dims padding() const { return {geometry_.padding[0], geometry_.padding[1]}; }
  // oneDNN considers Winograd, and may take it where channels do not fill its vectors: leave it the
  // choice only where they do.
  dnnl::algorithm algorithm() const {
    const auto& o = geometry_;
    const bool full = o.in_channels >= 16 && o.out_channels >= 16 && o.groups == 1 &&
                      o.dilation == std::array<std::int64_t, 2>{1, 1};
    return full && computed_ == f32 ? dnnl::algorithm::convolution_auto
                                    : dnnl::algorithm::convolution_direct;
  }
  // What of the padding the last window reaches, as oneDNN wants sizes to match exactly.
  memory::dims padding_after() const {
    const auto& o = geometry_;
    const auto reach = [&o](std::size_t d, std::int64_t out, std::int64_t kernel) {
      return (out - 1) * o.stride[d] + (kernel - 1) * o.dilation[d] + 1 - o.padding[d];
    };
    return {reach(0, o.out_height, o.kernel_height) - o.in_height,
            reach(1, o.out_width, o.kernel_width) - o.in_width};
  }
  // Groups are a dimension of their own there, over the same array.
  static memory::desc weight_of(const Conv2dGeometry& o, memory::data_type type) {
    const std::int64_t in = o.in_channels / o.groups;
    if (o.groups == 1) {
      return {{o.out_channels, in, o.kernel_height, o.kernel_width}, type, Tag::oihw};
    }
    return {{o.groups, o.out_channels / o.groups, in, o.kernel_height, o.kernel_width},
            type,
            Tag::goihw};
  }
  const memory::desc& desc_of(const Tensor& weight) const {
    return weight.dtype() == DType::f32 ? wide_weight_ : weight_;
  }
  memory::desc any(const memory::desc& plain) const {
    return {onednn_dims(plain), computed_, Tag::any};
  }
  // Of the weight's gradient.
  memory::desc any_wide() const { return {onednn_dims(wide_weight_), f32, Tag::any}; }

  struct ToWeights {
    dnnl::convolution_backward_weights::primitive_desc desc;
    dnnl::primitive run;
  };
  // By Winograd where it is the fastest, which oneDNN by itself takes only from 32 images on; with
  // x as forward arranged it, if there is code for that: its reference loops, a thousand times as
  // slow, take whatever they are given.
  void prepare(ToWeights& product, bool with_bias) {
    const auto made = [&](dnnl::algorithm way) {
      try {
        prepare(product, with_bias, way, forward_.src_desc());
      } catch (const dnnl::error&) {
        return false;
      }
      return std::string_view(product.desc.impl_info_str()).rfind("ref", 0) != 0;
    };
    const bool may_be_winograd = algorithm() == dnnl::algorithm::convolution_auto;
    if (may_be_winograd && geometry_.batch >= least_images &&
        made(dnnl::algorithm::convolution_winograd)) {
      return;
    }
    if (!made(algorithm())) prepare(product, with_bias, algorithm(), any(x_));
  }
  void prepare(ToWeights& product, bool with_bias, dnnl::algorithm way, const memory::desc& x) {
    using Backward = dnnl::convolution_backward_weights;
    product.desc =
        with_bias
            ? onednn_describe_backward<Backward>(attributes_, forward_, way, x, any_wide(), bias_,
                                                 any(y_), strides(), dilation(), padding(),
                                                 padding_after())
            : onednn_describe_backward<Backward>(attributes_, forward_, way, x, any_wide(), any(y_),
                                                 strides(), dilation(), padding(), padding_after());
    product.run = Backward(product.desc);
  }

  void prepare_data() {
    if (run_to_data_) return;
    using Backward = dnnl::convolution_backward_data;
    to_data_ = onednn_describe_backward<Backward>(attributes_, forward_, algorithm(), any(x_),
                                                  any(weight_), any(y_), strides(), dilation(),
                                                  padding(), padding_after());
    run_to_data_ = Backward(to_data_);
  }

  // Copies between layouts. A reorder is compiled once for each pair.
  void arrange(const Tensor& from, const memory::desc& from_desc, const Tensor& to,
               const memory::desc& to_desc) {
    if (copy_channels(to, to_desc, from, from_desc)) return;
    for (const auto& [first, second, reorder] : reorders_) {
      if (first == from_desc && second == to_desc) {
        return run_reorder(reorder, from, from_desc, to, to_desc);
      }
    }
    reorders_.push_back(
        {from_desc, to_desc,
         dnnl::reorder(dnnl::reorder::primitive_desc(engine(), from_desc, engine(), to_desc))});
    run_reorder(reorders_.back().reorder, from, from_desc, to, to_desc);
  }
  static void run_reorder(const dnnl::reorder& reorder, const Tensor& from,
                          const memory::desc& from_desc, const Tensor& to,
                          const memory::desc& to_desc) {
    memory source = on(from_desc, from), target = on(to_desc, to);
    reorder.execute(stream(), source, target);
  }
  Tensor arranged(const Tensor& from, const memory::desc& from_desc, const memory::desc& to_desc) {
    if (from_desc == to_desc) return from;
    const Tensor to = room(to_desc);
    arrange(from, from_desc, to, to_desc);
    return to;
  }

  static void run(const dnnl::primitive& primitive, const memory::desc& scratch_desc,
                  std::unordered_map<int, memory> arguments) {
    const Tensor scratch = room(scratch_desc);
    if (scratch.numel() > 0) arguments.emplace(DNNL_ARG_SCRATCHPAD, on(scratch_desc, scratch));
    const HeldSignals held;  // it may be a product
    primitive.execute(stream(), arguments);
    stream().wait();
  }

  struct Reorder {
    memory::desc from, to;
    dnnl::reorder reorder;
  };

  Conv2dGeometry geometry_;
  memory::data_type computed_;
  memory::desc x_, weight_, bias_, y_, wide_weight_;  // as tensors: dense, row-major
  dnnl::primitive_attr attributes_;
  dnnl::convolution_forward::primitive_desc forward_;
  ToWeights to_weights_[2];  // without and with the bias
  dnnl::convolution_backward_data::primitive_desc to_data_;
  dnnl::primitive run_forward_, run_to_data_;
  std::vector<Reorder> reorders_;
};

// The calling thread's: ranks may be threads, and code is compiled for a number of OpenMP threads.
Convolution& prepared(const Conv2dGeometry& geometry, memory::data_type stored,
                      memory::data_type computed) {
  struct Entry {
    Conv2dGeometry geometry;
    memory::data_type stored, computed;
    int threads;
    std::unique_ptr<Convolution> convolution;
  };
  thread_local std::vector<Entry> entries;
  const int threads = omp_get_max_threads();
  for (const Entry& entry : entries) {
    if (entry.geometry == geometry && entry.stored == stored && entry.computed == computed &&
        entry.threads == threads) {
      return *entry.convolution;
    }
  }
  constexpr std::size_t most = 256;  // shapes that never come again must not pile up
  if (entries.size() == most) entries.erase(entries.begin());
  entries.push_back({geometry, stored, computed, threads,
                     std::make_unique<Convolution>(geometry, stored, computed)});
  return *entries.back().convolution;
}

template <class F>
void report_errors(F&& f) {
  try {
    f();
  } catch (const dnnl::error& error) {
    fail(concat("conv2d: oneDNN failed: ", error.what(), " (status ",
                static_cast<int>(error.status), ")"));
  }
}

// The batch goes through in chunks of images, so that what oneDNN lays out in its own way stays in
// the caches until it is read again.
struct Chunks {
  Chunks(const Conv2dGeometry& o, const Tensor& x)
      : geometry(o),
        stored(x.dtype() == DType::bf16 ? bf16 : f32),
        computed(multiplies_bf16() ? stored : f32) {
    const std::int64_t elements =
        o.in_channels * o.in_height * o.in_width + o.out_channels * o.out_height * o.out_width;
    const std::int64_t weights =
        o.out_channels * (o.in_channels / o.groups) * o.kernel_height * o.kernel_width;
    const std::int64_t cache = (4 << 20) / (computed == bf16 ? 2 : 4);
    // So many that Winograd is the fastest; and each chunk handles the weights once more, so they
    // must be small beside it.
    images = std::max(least_images, cache / elements);
    if (images >= o.batch || 4 * weights > images * elements) images = o.batch;
    const std::int64_t parts = (o.batch + images - 1) / images;
    images = (o.batch + parts - 1) / parts;  // even ones
    if (images < least_images && o.batch >= least_images) {
      const std::int64_t fewer = o.batch / least_images;
      images = (o.batch + fewer - 1) / fewer;
    }
  }

  // f(prepared for the chunk, its first image, one past its last)
  template <class F>
  void each(F&& f) const {
    Conv2dGeometry part = geometry;
    for (std::int64_t begin = 0; begin < geometry.batch; begin += part.batch) {
      part.batch = std::min(images, geometry.batch - begin);
      f(prepared(part, stored, computed), begin, begin + part.batch);
    }
  }

  Conv2dGeometry geometry;
  memory::data_type stored, computed;
  std::int64_t images;
};

void forward(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x, const Tensor& weight,
             const Tensor& bias) {
  Chunks(geometry, x).each([&](Convolution& convolution, std::int64_t begin, std::int64_t end) {
    convolution.forward(y.rows(begin, end), x.detach().rows(begin, end), weight, bias);
  });
}

void backward(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
              const Tensor& dbias, const Tensor& dy, const Tensor& x, const Tensor& weight) {
  const auto part = [](const Tensor& whole, std::int64_t begin, std::int64_t end) {
    return whole.defined() ? whole.detach().rows(begin, end) : Tensor();
  };
  const auto like = [](const Tensor& tensor) {
    return tensor.defined() ? Tensor::empty(tensor.shape(), DType::f32, Device{}) : Tensor();
  };
  // The first chunk writes the gradients of weight and bias, the later ones add.
  const Tensor more_weight = like(dweight), more_bias = like(dbias);
  Chunks(geometry, x).each([&](Convolution& convolution, std::int64_t begin, std::int64_t end) {
    convolution.backward(part(dx, begin, end), begin == 0 ? dweight : more_weight,
                         begin == 0 ? dbias : more_bias, dy.rows(begin, end),
                         x.detach().rows(begin, end), weight);
    if (begin > 0 && dweight.defined()) axpy(dweight, more_weight, 1.0);
    if (begin > 0 && dbias.defined()) axpy(dbias, more_bias, 1.0);
  });
}

bool serves_bf16(const Conv2dGeometry& o, const Tensor& x, const Tensor& weight) {
  return x.dtype() == DType::bf16 &&
         (weight.dtype() == DType::bf16 || weight.dtype() == DType::f32) &&
         current_level() == Level::avx512 && conv2d_by_onednn(o, x);
}

}  // namespace

void conv2d_onednn(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                   const Tensor& weight, const Tensor& bias) {
  report_errors([&] { forward(geometry, y, x, weight, bias); });
}

void conv2d_onednn_backward(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                            const Tensor& dbias, const Tensor& dy, const Tensor& x,
                            const Tensor& weight) {
  report_errors([&] { backward(geometry, dx, dweight, dbias, dy, x, weight); });
}

bool conv2d_bf16(const Conv2dGeometry& geometry, const Tensor& y, const Tensor& x,
                 const Tensor& weight, const Tensor& bias) {
  if (!serves_bf16(geometry, x, weight) || y.numel() == 0) return false;
  Tensor wide_bias = bias;
  if (bias.defined() && bias.dtype() != DType::f32) {
    wide_bias = Tensor::empty(bias.shape(), DType::f32, Device{});
    cast(wide_bias, bias);
  }
  if (multiplies_bf16_in_pairs() && winograd_bf16_serves(geometry)) {
    conv2d_winograd_bf16(geometry, y, x, weight, wide_bias);
    return true;
  }
  try {
    forward(geometry, y, x, weight, wide_bias);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

bool conv2d_backward_bf16(const Conv2dGeometry& geometry, const Tensor& dx, const Tensor& dweight,
                          const Tensor& dbias, const Tensor& dy, const Tensor& x,
                          const Tensor& weight) {
  if (!serves_bf16(geometry, x, weight) || dy.numel() == 0) return false;
  const auto wide = [](const Tensor& grad) {
    const bool narrow = grad.defined() && grad.dtype() != DType::f32;
    return narrow ? Tensor::empty(grad.shape(), DType::f32, Device{}) : grad;
  };
  const Tensor wide_weight = wide(dweight), wide_bias = wide(dbias);
  if (multiplies_bf16_in_pairs() && winograd_bf16_serves(geometry)) {
    conv2d_winograd_bf16_backward(geometry, dx, wide_weight, wide_bias, dy, x, weight);
  } else {
    try {
      backward(geometry, dx, wide_weight, wide_bias, dy, x, weight);
    } catch (const dnnl::error&) {
      return false;
    }
  }
  if (!dweight.same_as(wide_weight)) cast(dweight, wide_weight);
  if (!dbias.same_as(wide_bias)) cast(dbias, wide_bias);
  return true;
}

}  // namespace peal::cpu
