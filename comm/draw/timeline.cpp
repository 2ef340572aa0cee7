// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw/axis.h>
#include <peal/comm/draw/escaped.h>
#include <peal/comm/draw/timeline.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace peal::comm {
namespace {

enum Lane { sends, computes, receives, operations, ops };
constexpr const char* lane_names[] = {"sends", "computes", "receives", "operations"};

Lane lane_of(Kind kind) {
  if (kind == Kind::send || kind == Kind::signal) return sends;
  return is_local(kind) ? computes : receives;
}

std::string words(const Activity& a) {
  std::string text(name(a.kind));
  if (!is_local(a.kind)) {
    text += lane_of(a.kind) == sends ? " to " : " from ";
    text += a.peer == nobody ? "any rank" : std::to_string(a.peer);
  }
  return text + ", " + std::to_string(a.bytes) + " B, round " + std::to_string(a.round);
}

const char* colour(Kind kind) {
  switch (kind) {
    case Kind::send:
    case Kind::signal:
      return "#3b75af";
    case Kind::recv:
    case Kind::await:
      return "#6aa56e";
    case Kind::recv_reduce:
      return "#d07a2d";
    case Kind::copy:
      return "#999999";
    case Kind::reduce:
      return "#b8503f";
  }
  return "black";
}

std::string quoted(std::string_view text) {
  std::string safe = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') safe += '\\';
    safe += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return safe + "\"";
}

// The chart of some timelines: a panel for each, one below the other, on one axis.
class Chart {
 public:
  explicit Chart(const std::vector<NamedTimeline>& timelines) : timelines_(timelines) {
    for (const NamedTimeline& t : timelines) {
      world_ = std::max(world_, t.timeline->world);
      for (const Activity& a : t.timeline->activities) {
        last_ = std::max(last_, a.end);
        kinds_.insert(a.kind);
      }
    }
  }

  std::string drawn(std::string_view title) const {
    std::string all = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " +
                      std::to_string(left + across + 50) + " " + std::to_string(bottom() + 60) +
                      "' font-family='sans-serif' font-size='12' fill='#222'>\n"
                      "<rect width='100%' height='100%' fill='white'/>\n" +
                      text(20, 24, escaped(title), "start") + axis() + names();
    for (std::size_t t = 0; t < timelines_.size(); ++t) {
      for (const Activity& a : timelines_[t].timeline->activities) all += bars(t, a);
    }
    for (std::size_t t = 0; t < timelines_.size(); ++t) all += arrows(t);
    return all + legend() + "</svg>\n";
  }

 private:
  static constexpr int across = 1000, top = 64, left = 80, bar = 11, lane = 3 * bar + 9;
  static constexpr std::size_t most_arrows = 200;  // more only hide each other

  bool named() const { return !timelines_.empty() && !timelines_[0].name.empty(); }
  int heading() const { return named() ? 26 : 0; }
  int panel() const { return heading() + lane * world_ + 8; }  // of one timeline
  int bottom() const { return top + panel() * static_cast<int>(timelines_.size()); }
  double x(double seconds) const { return left + (last_ > 0 ? seconds / last_ : 0) * across; }
  int y(int rank, std::size_t timeline) const {
    return top + panel() * static_cast<int>(timeline) + heading() + rank * lane;
  }
  static std::string text(double x, double y, const std::string& said, const char* anchor,
                          const char* look = "") {
    return "<text x='" + number(x, 1) + "' y='" + number(y, 1) + "' text-anchor='" + anchor + "'" +
           look + ">" + said + "</text>\n";
  }

  std::string axis() const {
    std::string all;
    const double step = last_ > 0 ? tick(last_) : 1;
    for (int i = 0; last_ > 0 && i * step <= last_; ++i) {
      const std::string at = number(x(i * step), 2);
      all +=
          "<path d='M" + at + " " + std::to_string(top - 8) + "V" + std::to_string(bottom()) +
          "' stroke='#e0e0e0'/>\n" +
          text(x(i * step), top - 14, i == 0 ? "0" : duration(i * step), "middle", " fill='#666'");
    }
    return all;
  }

  std::string names() const {
    std::string all;
    for (std::size_t t = 0; t < timelines_.size(); ++t) {
      if (named()) {
        const int at = y(0, t) - heading();
        all += "<rect x='20' y='" + std::to_string(at + 4) + "' width='" +
               std::to_string(left + across - 20) + "' height='18' fill='#eef1f6'/>\n" +
               text(28, at + 17, escaped(timelines_[t].name), "start", " font-weight='bold'");
      }
      for (int r = 0; r < timelines_[t].timeline->world; ++r) {
        all += text(left - 10, y(r, t) + 24, "rank " + std::to_string(r), "end");
      }
    }
    return all;
  }

  std::string box(double from, double to, int at, const std::string& look,
                  const std::string& hint) const {
    return "<rect x='" + number(x(from), 2) + "' y='" + std::to_string(at) + "' width='" +
           number(std::max(0.3, x(to) - x(from)), 2) + "' height='" + std::to_string(bar) + "' " +
           look + " stroke='white' stroke-width='0.7'><title>" + hint + "</title></rect>\n";
  }

  std::string bars(std::size_t timeline, const Activity& a) const {
    const int at = y(a.rank, timeline) + 4 + static_cast<int>(lane_of(a.kind)) * (bar + 1);
    const std::string ink = "fill='" + std::string(colour(a.kind)) + "'";
    const std::string hint = words(a) + ", " + duration(a.end - a.begin);
    std::string all;
    if (a.moves > a.begin) all = box(a.begin, a.moves, at, ink + " opacity='0.25'", hint);
    return all + box(a.moves, a.end, at, ink, hint);
  }

  // From where a message began to move to where it was received.
  std::string arrows(std::size_t timeline) const {
    std::map<std::int64_t, std::pair<const Activity*, const Activity*>> messages;
    for (const Activity& a : timelines_[timeline].timeline->activities) {
      if (a.message < 0) continue;
      auto& [gone, come] = messages[a.message];
      (lane_of(a.kind) == sends ? gone : come) = &a;
    }
    std::string all;
    if (messages.size() > most_arrows) return all;
    for (const auto& [id, sides] : messages) {
      const auto& [gone, come] = sides;
      if (gone == nullptr || come == nullptr) continue;
      all += "<path d='M" + number(x(gone->moves), 2) + " " +
             std::to_string(y(gone->rank, timeline) + 4 + bar / 2) + "L" + number(x(come->end), 2) +
             " " + std::to_string(y(come->rank, timeline) + 4 + 2 * (bar + 1) + bar / 2) + "'/>\n";
    }
    return "<g stroke='#333' stroke-width='0.8' opacity='0.45'>\n" + all + "</g>\n";
  }

  std::string legend() const {
    constexpr std::pair<Kind, const char*> entries[] = {{Kind::send, "sends"},
                                                        {Kind::recv, "receives"},
                                                        {Kind::recv_reduce, "receives and adds"},
                                                        {Kind::copy, "copies"},
                                                        {Kind::reduce, "adds"}};
    std::string all;
    int at = left;
    const auto entry = [&](const std::string& look, const std::string& said, int width) {
      all += "<rect x='" + std::to_string(at) + "' y='" + std::to_string(bottom() + 20) +
             "' width='12' height='12' " + look + "/>\n" +
             text(at + 18, bottom() + 31, said, "start");
      at += width;
    };
    for (const auto& [kind, said] : entries) {
      if (!kinds_.contains(kind)) continue;
      entry("fill='" + std::string(colour(kind)) + "'", said,
            45 + 7 * static_cast<int>(std::string_view(said).size()));
    }
    entry("fill='#888' opacity='0.25'", "pale: waits for its partner or the wire", 290);
    return all + text(at, bottom() + 31, "line: a message", "start");
  }

  const std::vector<NamedTimeline>& timelines_;
  int world_ = 0;
  double last_ = 0;
  std::set<Kind> kinds_;
};

// Writes the events of timelines one after the other, with numbers of their own for processes.
class Events {
 public:
  void add(const NamedTimeline& named, int first_process) {
    const Timeline& timeline = *named.timeline;
    const std::string suffix = named.name.empty() ? "" : " " + named.name;
    for (int r = 0; r < timeline.world; ++r) {
      const auto name = [&](const char* what, Lane lane, const std::string& said) {
        event("M", what,
              place(first_process + r, lane) + ",\"args\":{\"name\":" + quoted(said) + "}");
      };
      name("process_name", sends, "rank " + std::to_string(r) + suffix);
      for (const Lane lane : {sends, computes, receives})
        name("thread_name", lane, lane_names[lane]);
    }
    for (const Activity& a : timeline.activities) step(a, first_process, suffix);
    for (const OperationTime& o : timeline.operations) {  // asynchronous: they may overlap
      const std::string on = ",\"cat\":\"operation\",\"id\":" + std::to_string(++operations_) +
                             place(first_process + o.rank, operations);
      event("b", o.text, on + ",\"ts\":" + micro(o.begin));
      event("e", o.text, on + ",\"ts\":" + micro(o.end));
    }
    training(timeline, first_process);
  }
  std::string json() const {
    return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events_ + "\n]}\n";
  }

 private:
  static std::string micro(double seconds) { return number(seconds * 1e6, 3); }
  static std::string place(int process, Lane lane) {
    return ",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(lane);
  }
  void event(const char* phase, std::string_view name, const std::string& rest) {
    events_ += events_.empty() ? "\n" : ",\n";
    events_ += "{\"ph\":\"" + std::string(phase) + "\",\"name\":" + quoted(name) + rest + "}";
  }
  // Ops lie within each other or apart; buckets overlap, and each has a line of its own.
  void training(const Timeline& timeline, int first_process) {
    std::set<int> named;
    for (const SpanTime& s : timeline.spans) {
      const int process = first_process + s.rank;
      if (s.row.empty()) {
        if (named.insert(process).second) {
          event("M", "thread_name", place(process, ops) + ",\"args\":{\"name\":\"ops\"}");
        }
        event("X", s.text,
              ",\"cat\":\"op\"" + place(process, ops) + ",\"ts\":" + micro(s.begin) +
                  ",\"dur\":" + micro(s.end - s.begin));
        continue;
      }
      const std::string on =
          ",\"cat\":\"bucket\",\"id\":" + quoted(std::to_string(process) + " " + s.row) +
          place(process, operations);
      event("b", s.text, on + ",\"ts\":" + micro(s.begin));
      event("e", s.text, on + ",\"ts\":" + micro(s.end));
    }
  }
  void step(const Activity& a, int first_process, const std::string& suffix) {
    const Lane lane = lane_of(a.kind);
    const std::string on = place(first_process + a.rank, lane);
    event("X", words(a),
          ",\"cat\":\"" + std::string(name(a.kind)) + "\"" + on + ",\"ts\":" + micro(a.begin) +
              ",\"dur\":" + micro(a.end - a.begin) + ",\"args\":{\"round\":" +
              std::to_string(a.round) + ",\"bytes\":" + std::to_string(a.bytes) +
              ",\"waited_us\":" + micro(a.moves - a.begin) + "}");
    if (a.message < 0) return;
    const bool out = lane == sends;
    event(out ? "s" : "f", "message",
          std::string(out ? "" : ",\"bp\":\"e\"") +
              ",\"cat\":\"message\",\"id\":" + quoted(std::to_string(a.message) + suffix) + on +
              ",\"ts\":" + micro(out ? a.moves : a.end));
  }

  std::string events_;
  std::int64_t operations_ = 0;
};

}  // namespace

std::string svg(const std::vector<NamedTimeline>& timelines, std::string_view title) {
  return Chart(timelines).drawn(title);
}

std::string chrome_trace(const std::vector<NamedTimeline>& timelines) {
  Events events;
  int processes = 0;
  for (const NamedTimeline& timeline : timelines) {
    events.add(timeline, processes);
    processes += timeline.timeline->world;
  }
  return events.json();
}

}  // namespace peal::comm
