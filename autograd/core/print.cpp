// SPDX-License-Identifier: Apache-2.0
// Tensors as text, by the rules of PyTorch's torch/_tensor_str.py: four digits, one width for all
// elements, lines of 80, and of more than 1000 elements three at each end of a dimension.
#include <peal/autograd/core/recorded.h>
#include <peal/autograd/core/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

namespace peal {
namespace {

constexpr std::int64_t edge = 3, most_printed = 1000;
constexpr std::size_t line_width = 80;

// The elements on the CPU as text; how, is decided by those that are shown.
class Elements {
 public:
  explicit Elements(const Tensor& x)
      : x_(x.detach().to(Device{})), floating_(is_floating(x.dtype())) {
    summarized_ = x_.numel() > most_printed;
    each_shown(0, 0, [this](std::int64_t at) { look(at); });
    if (!floating_ || !any_) {
      if (!floating_) each_shown(0, 0, [this](std::int64_t at) { widen(number(at).size()); });
      return;
    }
    scientific_ = most_ / least_ > 1000 || most_ > 1e8 || least_ < 1e-4;
    each_shown(0, 0, [this](std::int64_t at) {
      const double value = real(at);
      if (std::isfinite(value) && value != 0) widen(number(at).size());
    });
  }

  std::string text(int dim, std::int64_t at, std::size_t indent) const {
    if (x_.dim() == 0) return padded(at);
    if (dim == x_.dim() - 1) return line(at, indent);
    std::string between = ",";
    between.append(static_cast<std::size_t>(x_.dim() - dim - 1), '\n').append(indent + 1, ' ');
    std::string out = "[";
    each_along(dim, [&](std::int64_t i, bool left_out) {
      if (out.size() > 1) out += between;
      if (left_out) out += "..." + between;
      out += text(dim + 1, at + i * step(dim), indent + 1);
    });
    return out + "]";
  }

 private:
  std::int64_t step(int dim) const {
    std::int64_t step = 1;
    for (int i = dim + 1; i < x_.dim(); ++i) step *= x_.size(i);
    return step;
  }
  // f(i, whether some before i are left out).
  template <class F>
  void each_along(int dim, F&& f) const {
    const std::int64_t n = x_.size(dim);
    const bool cut = summarized_ && n > 2 * edge;
    for (std::int64_t i = 0; i < n; ++i) {
      const bool jump = cut && i == edge;
      if (jump) i = n - edge;
      f(i, jump);
    }
  }
  template <class F>
  void each_shown(int dim, std::int64_t at, F&& f) const {
    if (dim == x_.dim()) return f(at);
    each_along(dim, [&](std::int64_t i, bool) { each_shown(dim + 1, at + i * step(dim), f); });
  }

  double real(std::int64_t at) const {
    return visit(x_.dtype(), [&]<class T>() {
      using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
      return static_cast<double>(static_cast<Wide>(x_.data<T>()[at]));
    });
  }
  void look(std::int64_t at) {
    const double value = floating_ ? real(at) : 0;
    if (!std::isfinite(value) || value == 0) return;
    any_ = true;
    whole_ = whole_ && value == std::ceil(value);
    most_ = std::max(most_, std::abs(value));
    least_ = std::min(least_, std::abs(value));
  }
  void widen(std::size_t width) { width_ = std::max(width_, width); }

  std::string number(std::int64_t at) const {
    if (x_.dtype() == DType::boolean) return x_.data<bool>()[at] ? "True" : "False";
    if (!floating_) {
      return visit(x_.dtype(), [&]<class T>() {
        if constexpr (std::is_integral_v<T>) {
          return fmt::format("{}", static_cast<std::int64_t>(x_.data<T>()[at]));
        } else {
          return std::string();
        }
      });
    }
    const double value = real(at);
    // Python shows no sign of a NaN.
    if (std::isnan(value)) return "nan";
    if (scientific_) return fmt::format("{:.4e}", value);
    if (whole_) return fmt::format("{:.0f}{}", value, std::isfinite(value) ? "." : "");
    return fmt::format("{:.4f}", value);
  }
  std::string padded(std::int64_t at) const {
    const std::string text = number(at);
    return std::string(width_ > text.size() ? width_ - text.size() : 0, ' ') + text;
  }

  // The last dimension, broken so that lines end within 80 columns.
  std::string line(std::int64_t at, std::size_t indent) const {
    const std::size_t room = line_width > indent ? line_width - indent : 0;
    const std::size_t in_line = std::max<std::size_t>(1, room / (width_ + 2));
    std::string out = "[";
    std::size_t count = 0;
    const auto put = [&](const std::string& text) {
      if (count > 0) out += count % in_line == 0 ? ",\n" + std::string(indent + 1, ' ') : ", ";
      ++count;
      out += text;
    };
    each_along(x_.dim() - 1, [&](std::int64_t i, bool left_out) {
      if (left_out) put(" ...");
      put(padded(at + i));
    });
    return out + "]";
  }

  const Tensor x_;
  const bool floating_;
  bool summarized_ = false, any_ = false, whole_ = true, scientific_ = false;
  double most_ = 0, least_ = std::numeric_limits<double>::infinity();
  std::size_t width_ = 1;
};

std::string size_of_empty(const Shape& shape) {
  std::string text = "size=(";
  for (int i = 0; i < shape.dim(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
  return text + ")";
}

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined()) return "undefined tensor";
  const std::string prefix = "tensor(";
  std::vector<std::string> suffixes;
  if (x.device().type != DeviceType::cpu) {
    suffixes.push_back(concat("device='", name_of(x.device()), "'"));
  }
  std::string out = prefix;
  if (x.numel() == 0) {
    if (x.dim() != 1) suffixes.push_back(size_of_empty(x.shape()));
    if (x.dtype() != DType::f32) suffixes.push_back(concat("dtype=", x.dtype()));
    out += "[]";
  } else {
    const DType dtype = x.dtype();
    if (dtype != DType::f32 && dtype != DType::i64 && dtype != DType::boolean) {
      suffixes.push_back(concat("dtype=", dtype));
    }
    out += Elements(x).text(0, 0, prefix.size());
  }
  const std::string_view made_by = recorded_as(x);
  if (!made_by.empty()) {
    suffixes.push_back(concat("grad_fn=<", made_by, ">"));
  } else if (x.requires_grad()) {
    suffixes.push_back("requires_grad=True");
  }
  const std::size_t last_line = out.rfind('\n');
  // As in PyTorch, which counts one more where there is one line.
  std::size_t length = last_line == std::string::npos ? out.size() + 2 : out.size() - last_line + 1;
  for (const std::string& suffix : suffixes) {
    if (length + suffix.size() + 2 > line_width) {
      out += ",\n" + std::string(prefix.size(), ' ') + suffix;
      length = prefix.size() + suffix.size();
    } else {
      out += ", " + suffix;
      length += suffix.size() + 2;
    }
  }
  return out + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << concat(shape); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }
std::ostream& operator<<(std::ostream& out, Device device) { return out << name_of(device); }

}  // namespace peal
