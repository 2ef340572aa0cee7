// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/draw.h>
#include <peal/comm/draw/escaped.h>
#include <peal/comm/draw/rows.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>

namespace peal::comm {
namespace {

// Words in lines of at most so many letters, where a word is not longer.
std::vector<std::string> lines(std::string_view text, std::size_t letters) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (all.empty() || all.back().size() + 1 + word.size() > letters) {
      all.emplace_back(word);
    } else {
      all.back() += " " + std::string(word);
    }
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return all;
}

// Places for ranks and rows, and what stands there.
class Picture {
 public:
  Picture(std::span<const Program> programs, const Sketch& sketch)
      : block_(programs),
        rows_(rows(programs, sketch.stuck)),
        world_(static_cast<int>(programs.size())),
        nodes_(sketch.nodes) {
    const int margin = nodes_ == nullptr ? 80 : 96;
    const int columns = 2 * margin + column * (world_ - 1);
    const int of_legend = 20 + static_cast<int>(legend().size()) * 13 / 2;
    width_ = std::max({columns, of_legend, sketch.note.empty() ? 440 : 620});
    left_ = margin + (width_ - columns) / 2;
    if (nodes_ != nullptr) top_ += 22;
    notes_ = lines(sketch.note, static_cast<std::size_t>(width_) / 7);
  }

  std::string drawn(std::string_view title) {
    const int height = bottom() + 18 + 16 * static_cast<int>(notes_.size());
    for (const auto& e : rows_.events) {
      if (e.message()) together_[way(e)].push_back(block_(e.sends->src));
    }
    std::string all = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " + n(width_) + " " +
                      n(height) +
                      "' font-family='sans-serif' font-size='12' text-anchor='middle'>\n"
                      "<rect width='100%' height='100%' fill='white'/>\n" +
                      text(width_ / 2, 22, "#222", title, " font-size='14'") +
                      text(width_ / 2, 42, "#666", legend()) + columns();
    for (const RowEvent& e : rows_.events) all += e.from == e.to ? square(e) : arrow(e);
    for (const RowWaiting& w : rows_.waiting) all += stub(w);
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      all += "<text x='20' y='" + n(height - 4 - 16 * static_cast<int>(notes_.size() - 1 - i)) +
             "' text-anchor='start' fill='#d00000'>" + escaped(notes_[i]) + "</text>\n";
    }
    return all +
           "<g stroke='white' stroke-width='4' paint-order='stroke' stroke-linejoin='round'>\n" +
           labels_ + "</g>\n</svg>\n";
  }

 private:
  static constexpr int column = 110, row = 56, tip = 44;

  static std::string n(int number) { return std::to_string(number); }
  static std::string text(int x, int y, const std::string& fill, std::string_view said,
                          const char* look = "") {
    return "<text x='" + n(x) + "' y='" + n(y) + "' fill='" + fill + "'" + look + ">" +
           escaped(said) + "</text>\n";
  }
  int gap() const { return nodes_ == nullptr ? 60 : 72; }  // between rank 0 and the time
  int x(int rank) const { return left_ + column * rank; }
  int y(int time) const { return top_ + row * time; }
  int bottom() const { return y(rows_.count) + 10; }
  static std::tuple<int, int, int> way(const RowEvent& e) { return {e.time, e.from, e.to}; }

  // What is in the picture, and no more.
  std::string legend() const {
    bool adds = false, replaces = false, scratch = false, copies = false, additions = false;
    for (const RowEvent& e : rows_.events) {
      const Kind kind = e.receives->kind;
      if (e.from == e.to) {
        (kind == Kind::reduce ? additions : copies) = true;
        continue;
      }
      scratch |= e.message() && e.sends->src.buffer >= Buffer::scratch;
      (kind == Kind::recv_reduce || kind == Kind::reduce ? adds : replaces) = true;
    }
    std::string all = "label and colour: the block";
    if (adds) all += "; full arrow: adds";
    if (replaces) all += "; dashed: replaces";
    if (scratch) all += "; grey: scratch memory";
    if (copies && additions) return all + "; square: local copy or addition";
    if (copies) all += "; square: local copy";
    if (additions) all += "; square: local addition";
    return all;
  }

  // Scratch blocks hold now this and now that, so they have no colour.
  std::string colour(const Span& span) const {
    if (span.count == 0 || span.buffer >= Buffer::scratch) return "#777";
    const int blocks = std::max(1, block_.blocks(span.buffer));
    return "hsl(" + n(block_.first(span) * 360 / blocks) + ",65%,42%)";
  }

  // Frames round nodes whose ranks stand side by side, names, and a line for each rank.
  std::string columns() const {
    std::string all;
    for (int first = 0; nodes_ != nullptr && first < world_;) {
      const int node = nodes_->node[static_cast<std::size_t>(first)];
      int last = first;
      while (last + 1 < world_ && nodes_->node[static_cast<std::size_t>(last + 1)] == node) ++last;
      all +=
          "<rect x='" + n(x(first) - 48) + "' y='54' width='" + n(x(last) - x(first) + 96) +
          "' height='" + n(bottom() - 54) +
          "' rx='8' fill='#f4f6fa' stroke='#9aa7c0' class='node'/>\n" +
          text((x(first) + x(last)) / 2, 71, "#56648a", "node " + n(node), " font-weight='bold'");
      first = last + 1;
    }
    all += text(left_ - gap(), top_ - 20, "#999", "time");
    for (int t = 0; t < rows_.count; ++t) all += text(left_ - gap(), y(t) + 4, "#999", n(t));
    for (int r = 0; r < world_; ++r) {
      all += text(x(r), top_ - 20, "#222", "rank " + n(r)) + "<path d='M" + n(x(r)) + " " +
             n(top_ - 14) + "V" + n(bottom()) + "' stroke='#ccc'/>\n";
    }
    return all;
  }

  std::string square(const RowEvent& e) {
    labels_ += text(x(e.from) + 8, y(e.time) + 14, "#666", block_.local(*e.sends));
    return "<rect x='" + n(x(e.from) - 4) + "' y='" + n(y(e.time) - 4) +
           "' width='8' height='8' fill='#888'/>\n";
  }

  // A line with a head, in one colour.
  static std::string line(int x0, int y0, int x1, int y1, const std::string& ink,
                          const std::string& look) {
    constexpr double length = 10, half = 4.5;
    const double dx = x1 - x0, dy = y1 - y0, whole = std::hypot(dx, dy);
    const double ux = dx / whole, uy = dy / whole;
    const auto at = [](double px, double py) {
      return n(static_cast<int>(std::lround(px))) + " " + n(static_cast<int>(std::lround(py)));
    };
    const double bx = x1 - ux * length, by = y1 - uy * length;
    return "<path d='M" + n(x0) + " " + n(y0) + "L" + at(bx, by) + "' stroke='" + ink + "' " +
           look + "/><path d='M" + at(bx - uy * half, by + ux * half) + "L" + n(x1) + " " + n(y1) +
           "L" + at(bx + uy * half, by - ux * half) + "z' fill='" + ink + "'/>\n";
  }

  std::string arrow(const RowEvent& e) {
    // The block's own name is that of what is cut: of what a message is, of what is read or stored.
    const bool stores = !e.message() && e.sends->dst.owner != self;
    Span span = stores ? e.sends->dst : e.sends->src;
    span.owner = self;
    std::string blocks = block_(span);
    if (e.message()) {  // those on one way at one time are one arrow, by the name and colour of all
      auto& all = together_[way(e)];
      if (all.empty()) return "";
      blocks = all.front();
      for (std::size_t i = 1; i < all.size(); ++i) blocks += ", " + all[i];
      all.clear();
    }
    const std::string ink = colour(span);
    const bool adds = e.receives->kind == Kind::recv_reduce || e.receives->kind == Kind::reduce;
    const int x0 = x(e.from), x1 = x(e.to), y0 = y(e.time);
    // Where arrows fan out from one memory, the name is near their tips.
    const int half = 4 + 4 * static_cast<int>(blocks.size());
    const int away = e.message() ? std::max(24, half) : std::abs(x1 - x0) - 36;
    labels_ +=
        text(x0 + (x1 > x0 ? away : -away), y0 + tip * away / std::abs(x1 - x0) - 2, ink, blocks);
    return line(x0, y0, x1, y0 + tip, ink,
                adds ? "stroke-width='2' class='arrow'"
                     : "stroke-width='2' class='arrow' stroke-dasharray='6 3'");
  }

  // What a rank waits for, in vain.
  std::string stub(const RowWaiting& w) {
    const int x0 = x(w.rank), y0 = y(w.time) + 8, towards = w.step->peer > w.rank ? 34 : -34;
    const std::string blocks = block_(w.span());
    labels_ += text(
        x0 + towards, y0 + 32, "#d00000",
        "waits: " + blocks + (w.sends() ? " to rank " : " from rank ") + n(w.step->peer) + "?");
    const char* look = "stroke-width='4' class='stuck'";
    return w.sends() ? line(x0, y0, x0 + towards, y0 + 16, "#d00000", look)
                     : line(x0 + towards, y0, x0, y0 + 16, "#d00000", look);
  }

  BlockNames block_;
  Rows rows_;
  int world_, width_ = 0, left_ = 0, top_ = 86;
  const Topology* nodes_;
  std::vector<std::string> notes_;
  std::map<std::tuple<int, int, int>, std::vector<std::string>> together_;
  std::string labels_;  // above all lines
};

}  // namespace

std::string svg(std::span<const Program> programs, std::string_view title, const Sketch& sketch) {
  return Picture(programs, sketch).drawn(title);
}

}  // namespace peal::comm
