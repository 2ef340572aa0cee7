// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace peal::comm {
namespace {

// A message, with both its steps, or what a rank does by itself: then both pointers are the step,
// and from and to are whose memory it is.
struct Event {
  int time;
  int from, to;
  const Step *sends, *receives;
  int by;  // of a message, the sender
  bool message() const { return sends != receives; }
};

// A step that never meets its partner.
struct Waiting {
  int time, rank;
  const Step* step;
  bool sends() const { return step->kind == Kind::send || step->kind == Kind::signal; }
  const Span& span() const { return sends() ? step->src : step->dst; }
};

struct Timeline {
  std::vector<Event> events;
  std::vector<Waiting> waiting;
  int rows = 0;
};

// Lets all ranks run, each round beginning in the row after the one before has ended.
class Clock {
 public:
  explicit Clock(std::span<const Program> programs)
      : programs_(programs), ranks_(programs.size()) {}

  Timeline run(Stuck stuck) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      ready_.push_back(static_cast<int>(rank));
    while (!ready_.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      begin_rounds(rank);
    }
    if (stuck == Stuck::show) {
      note_waiting();
      std::ranges::stable_sort(timeline_.waiting, {}, &Waiting::rank);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (stuck == Stuck::refuse && ranks_[r].round < programs_[r].rounds.size()) {
        throw std::invalid_argument("draw: rank " + std::to_string(r) + " never ends its round " +
                                    std::to_string(ranks_[r].round) +
                                    "; verify the programs first");
      }
    }
    std::ranges::stable_sort(timeline_.events, {}, &Event::time);
    return std::move(timeline_);
  }

 private:
  struct Rank {
    std::size_t round = 0;
    int begin = 0, end = 0;  // rows of that round
    int open = 0;            // messages under way
  };
  struct Channel {
    std::deque<std::pair<int, const Step*>> sends, recvs;  // rank and step
  };

  void note_waiting() {
    for (const auto& [ranks, channel] : channels_) {
      for (const auto* posted : {&channel.sends, &channel.recvs}) {
        for (const auto& [r, step] : *posted) {
          timeline_.waiting.push_back({rank(r).begin, r, step});
          timeline_.rows = std::max(timeline_.rows, rank(r).begin + 1);
        }
      }
    }
  }

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }

  void happen(int time, int from, int to, const Step* sends, const Step* receives) {
    timeline_.events.push_back({time, from, to, sends, receives, from});
    timeline_.rows = std::max(timeline_.rows, time + 1);
    rank(from).end = std::max(rank(from).end, time);
    rank(to).end = std::max(rank(to).end, time);
  }

  void next_round(Rank& r) {
    ++r.round;
    r.begin = r.end = r.end + 1;
  }

  void act(int me, int time, const Step& step) {
    const auto owner = [me](const Span& span) { return span.owner == self ? me : span.owner; };
    timeline_.events.push_back({time, owner(step.src), owner(step.dst), &step, &step, me});
    timeline_.rows = std::max(timeline_.rows, time + 1);
    rank(me).end = std::max(rank(me).end, time);
  }

  void begin_rounds(int me) {
    const auto& rounds = programs_[static_cast<std::size_t>(me)].rounds;
    for (Rank& r = rank(me); r.round < rounds.size(); next_round(r)) {
      const Round& round = rounds[r.round];
      r.open = 0;
      for (const Step& step : round) r.open += step.peer != nobody;
      const bool waits = r.open > 0;
      for (const Step& step : round) {
        if (step.peer == nobody) {
          act(me, r.begin, step);
        } else {
          post(me, step);
        }
      }
      if (waits) return;
    }
  }

  void post(int me, const Step& step) {
    const bool sends = step.kind == Kind::send || step.kind == Kind::signal;
    Channel& channel = channels_[sends ? std::pair(me, step.peer) : std::pair(step.peer, me)];
    (sends ? channel.sends : channel.recvs).emplace_back(me, &step);
    if (channel.sends.empty() || channel.recvs.empty()) return;
    const auto [from, send] = channel.sends.front();
    const auto [to, receive] = channel.recvs.front();
    channel.sends.pop_front();
    channel.recvs.pop_front();
    happen(std::max(rank(from).begin, rank(to).begin), from, to, send, receive);
    for (const int side : {from, to}) {
      if (--rank(side).open > 0) continue;
      next_round(rank(side));
      ready_.push_back(side);
    }
  }

  std::span<const Program> programs_;
  std::vector<Rank> ranks_;
  std::vector<int> ready_;
  std::map<std::pair<int, int>, Channel> channels_;
  Timeline timeline_;
};

// The blocks into which the steps cut the buffers.
class BlockNames {
 public:
  explicit BlockNames(std::span<const Program> programs) {
    for (const Program& program : programs) {
      for (const Round& round : program.rounds) {
        for (const Step& step : round) {
          for (const Span* span : {&step.src, &step.dst}) {
            if (span->count == 0) continue;
            auto& cuts = cuts_[static_cast<int>(span->buffer)];
            cuts.insert({span->at, span->at + span->count});
          }
        }
      }
    }
  }

  int blocks(Buffer buffer) const {
    return std::max(0, static_cast<int>(cuts_[static_cast<int>(buffer)].size()) - 1);
  }

  int first(const Span& span) const { return index(span.buffer, span.at); }

  std::string operator()(const Span& span) const {
    if (span.count == 0) return "";
    const std::string whose = span.owner == self ? "" : "@" + std::to_string(span.owner);
    if (blocks(span.buffer) == 1) return std::string(name(span.buffer)) + whose;
    const int begin = first(span), end = index(span.buffer, span.at + span.count);
    const std::string prefix = span.buffer == Buffer::in        ? "in"
                               : span.buffer == Buffer::scratch ? "s"
                                                                : "";
    return prefix + std::to_string(begin) + (end - begin > 1 ? "-" + std::to_string(end - 1) : "") +
           whose;
  }

 private:
  int index(Buffer buffer, std::int64_t at) const {
    const auto& cuts = cuts_[static_cast<int>(buffer)];
    return static_cast<int>(std::distance(cuts.begin(), cuts.find(at)));
  }

  std::set<std::int64_t> cuts_[3];
};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '>') {
      safe += "&gt;";
    } else {
      safe += c;
    }
  }
  return safe;
}

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

std::string local_text(const BlockNames& block, const Step& step) {
  return block(step.dst) + (step.kind == Kind::reduce ? "+=" : "=") + block(step.src);
}

}  // namespace

std::string draw(std::span<const Program> programs, Stuck stuck) {
  const BlockNames block(programs);
  const Timeline timeline = Clock(programs).run(stuck);
  const std::size_t world = programs.size();
  std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(timeline.rows) + 1,
                                             std::vector<std::string>(world + 1));
  rows[0][0] = "time";
  for (std::size_t r = 0; r < world; ++r) rows[0][r + 1] = "rank " + std::to_string(r);
  for (std::size_t t = 1; t < rows.size(); ++t) rows[t][0] = std::to_string(t - 1);
  const auto put = [&](const Event& event, int rank, const std::string& text) {
    auto& row = rows[static_cast<std::size_t>(event.time) + 1];
    std::string& cell = row[static_cast<std::size_t>(rank) + 1];
    cell += (cell.empty() ? "" : " ") + text;
  };
  for (const Event& e : timeline.events) {
    if (!e.message()) {
      put(e, e.by, local_text(block, *e.sends));
    } else {
      put(e, e.from, block(e.sends->src) + ">" + std::to_string(e.to));
    }
  }
  for (const Event& e : timeline.events) {  // after all sends of the row
    if (!e.message()) continue;
    const bool adds = e.receives->kind == Kind::recv_reduce;
    put(e, e.to, block(e.receives->dst) + (adds ? "+<" : "<") + std::to_string(e.from));
  }
  for (const Waiting& w : timeline.waiting) {
    auto& row = rows[static_cast<std::size_t>(w.time) + 1];
    std::string& cell = row[static_cast<std::size_t>(w.rank) + 1];
    cell += (cell.empty() ? "" : " ") + block(w.span()) + (w.sends() ? ">" : "<") +
            std::to_string(w.step->peer) + "?";
  }

  std::string text;
  std::vector<std::size_t> width(world + 1, 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += row[c] + std::string(width[c] + 3 - row[c].size(), ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string svg(std::span<const Program> programs, std::string_view title, Stuck stuck,
                std::string_view note) {
  constexpr int column = 110, row = 56, left = 80, top = 86, tip = 44;
  const BlockNames block(programs);
  const Timeline timeline = Clock(programs).run(stuck);
  const int world = static_cast<int>(programs.size());
  const int width = std::max(2 * left + column * (world - 1), note.empty() ? 0 : 620);
  const auto notes = lines(note, static_cast<std::size_t>(width) / 7);
  const int height = top + row * timeline.rows + 24 + 16 * static_cast<int>(notes.size());
  const auto x = [](int rank) { return left + column * rank; };
  const auto y = [](int time) { return top + row * time; };
  const auto n = [](int number) { return std::to_string(number); };
  const auto colour = [&](const Span& span) -> std::string {
    if (span.count == 0) return "#888";
    const int blocks = std::max(1, block.blocks(span.buffer));
    return "hsl(" + n(block.first(span) * 360 / blocks) + ",65%,42%)";
  };
  const auto label = [&](int at_x, int at_y, const std::string& fill, const std::string& text) {
    return "<text x='" + n(at_x) + "' y='" + n(at_y) + "' fill='" + fill + "'>" + escaped(text) +
           "</text>\n";
  };

  std::string all =
      "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " + n(width) + " " + n(height) +
      "' font-family='sans-serif' font-size='12' text-anchor='middle'>\n"
      "<defs><marker id='tip' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='5' "
      "markerHeight='5' orient='auto'><path d='M0 0L8 4L0 8z' fill='#555'/></marker></defs>\n"
      "<rect width='100%' height='100%' fill='white'/>\n" +
      label(width / 2, 22, "#222", std::string(title)) +
      label(width / 2, 40, "#666", "number: the block; full arrow: adds; dashed: replaces") +
      label(20, 66, "#999", "time");
  for (int t = 0; t < timeline.rows; ++t) all += label(20, y(t) + 4, "#999", n(t));
  for (int r = 0; r < world; ++r) {
    all += label(x(r), 66, "#222", "rank " + n(r));
    all +=
        "<path d='M" + n(x(r)) + " 72V" + n(top + row * timeline.rows + 10) + "' stroke='#ccc'/>\n";
  }
  std::string labels;  // above all lines
  // Messages on one way at one time lie on each other; their blocks stand at the first of them.
  std::map<std::tuple<int, int, int>, std::vector<std::string>> together;
  const auto way = [](const Event& e) { return std::tuple(e.time, e.from, e.to); };
  for (const Event& e : timeline.events) {
    if (e.message()) together[way(e)].push_back(block(e.sends->src));
  }
  for (const Event& e : timeline.events) {
    if (e.from == e.to) {
      all += "<rect x='" + n(x(e.from) - 4) + "' y='" + n(y(e.time) - 4) +
             "' width='8' height='8' fill='#888'/>\n";
      labels += label(x(e.from) + 8, y(e.time) + 14, "#666", local_text(block, *e.sends));
      continue;
    }
    // The block's own name is that of what is cut: of what a message is, of what is read or stored.
    const bool stores = !e.message() && e.sends->dst.owner != self;
    Span span = stores ? e.sends->dst : e.sends->src;
    span.owner = self;
    const std::string ink = colour(span);
    const bool adds = e.receives->kind == Kind::recv_reduce || e.receives->kind == Kind::reduce;
    const int x0 = x(e.from), x1 = x(e.to), y0 = y(e.time);
    all += "<path d='M" + n(x0) + " " + n(y0) + "L" + n(x1) + " " + n(y0 + tip) + "' stroke='" +
           ink + "' stroke-width='2'" + (adds ? "" : " stroke-dasharray='6 3'") +
           " marker-end='url(#tip)'/>\n";
    // Where arrows fan out from one memory, near their tips.
    const int away = e.message() ? 24 : std::abs(x1 - x0) - 36;
    std::string blocks = block(span);
    if (e.message()) {
      auto& all_blocks = together[way(e)];
      if (all_blocks.empty()) continue;
      blocks = all_blocks.front();
      for (std::size_t i = 1; i < all_blocks.size(); ++i) blocks += ", " + all_blocks[i];
      all_blocks.clear();
    }
    labels +=
        label(x0 + (x1 > x0 ? away : -away), y0 + tip * away / std::abs(x1 - x0) - 2, ink, blocks);
  }
  for (const Waiting& w : timeline.waiting) {
    const int x0 = x(w.rank), y0 = y(w.time), towards = w.step->peer > w.rank ? 34 : -34;
    const int from = w.sends() ? x0 : x0 + towards, to = w.sends() ? x0 + towards : x0;
    all += "<path d='M" + n(from) + " " + n(y0 + (w.sends() ? 0 : 16)) + "L" + n(to) + " " +
           n(y0 + (w.sends() ? 16 : 0)) + "' stroke='#d00000' stroke-width='4' class='stuck'/>\n";
    labels += label(x0 + towards, y0 + 30, "#d00000",
                    block(w.span()) + (w.sends() ? " to " : " from ") + n(w.step->peer) + "?");
  }
  for (std::size_t i = 0; i < notes.size(); ++i) {
    all += "<text x='20' y='" + n(height - 16 * static_cast<int>(notes.size() - i)) +
           "' text-anchor='start' fill='#d00000'>" + escaped(notes[i]) + "</text>\n";
  }
  return all +
         "<g stroke='white' stroke-width='4' paint-order='stroke' stroke-linejoin='round'>\n" +
         labels + "</g>\n</svg>\n";
}

}  // namespace peal::comm
