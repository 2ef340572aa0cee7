// SPDX-License-Identifier: Apache-2.0
#include <peal/comm/draw_timeline.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <utility>

namespace peal::comm {
namespace {

enum Lane { sends, computes, receives };
constexpr const char* lane_names[] = {"sends", "computes", "receives"};

Lane lane_of(Kind kind) {
  if (kind == Kind::send || kind == Kind::signal) return sends;
  return kind == Kind::copy || kind == Kind::reduce ? computes : receives;
}

std::string number(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return number(seconds * 1e6, 1) + " us";
  return seconds < 1 ? number(seconds * 1e3, 2) + " ms" : number(seconds, 2) + " s";
}

std::string words(const Activity& a) {
  std::string text(name(a.kind));
  if (a.peer != nobody)
    text += (lane_of(a.kind) == sends ? " to " : " from ") + std::to_string(a.peer);
  return text + ", " + std::to_string(a.bytes) + " B, round " + std::to_string(a.round);
}

// The length of 1, 2 or 5 times a power of ten that is about an eighth of `whole`.
double tick(double whole) {
  const double power = std::pow(10.0, std::floor(std::log10(whole / 8)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (whole / (step * power) <= 9) return step * power;
  }
  return 10 * power;
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

}  // namespace

std::string svg(const Timeline& timeline, std::string_view title) {
  constexpr int left = 70, across = 1000, top = 60, height = 42, bar = 11;
  double last = 0;
  for (const Activity& a : timeline.activities) last = std::max(last, a.end);
  const auto x = [&](double seconds) { return left + (last > 0 ? seconds / last : 0) * across; };
  const int bottom = top + height * timeline.world;
  const auto text = [](double at_x, double at_y, const std::string& said, const char* anchor) {
    return "<text x='" + number(at_x, 1) + "' y='" + number(at_y, 1) + "' text-anchor='" + anchor +
           "'>" + said + "</text>\n";
  };
  const auto box = [&](double from, double to, int y, const std::string& look,
                       const std::string& hint) {
    return "<rect x='" + number(x(from), 2) + "' y='" + std::to_string(y) + "' width='" +
           number(std::max(0.3, x(to) - x(from)), 2) + "' height='" + std::to_string(bar) + "' " +
           look + " stroke='white' stroke-width='0.7'><title>" + hint + "</title></rect>\n";
  };

  std::string all = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 " +
                    std::to_string(left + across + 50) + " " + std::to_string(bottom + 60) +
                    "' font-family='sans-serif' font-size='12' fill='#222'>\n"
                    "<rect width='100%' height='100%' fill='white'/>\n";
  std::string safe;
  for (const char c : title) safe += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  all += text(left, 24, safe, "start");
  if (last > 0) {
    const double step = tick(last);
    for (int i = 0; i * step <= last; ++i) {
      const std::string at = number(x(i * step), 2);
      all += "<path d='M" + at + " " + std::to_string(top - 8) + "V" + std::to_string(bottom) +
             "' stroke='#ddd'/>\n" + text(x(i * step), top - 14, duration(i * step), "middle");
    }
  }
  for (int r = 0; r < timeline.world; ++r) {
    all += text(left - 10, top + r * height + 22, "rank " + std::to_string(r), "end");
  }
  for (const Activity& a : timeline.activities) {
    const int y = top + a.rank * height + 2 + static_cast<int>(lane_of(a.kind)) * (bar + 1);
    const std::string ink = "fill='" + std::string(colour(a.kind)) + "'";
    const std::string hint = words(a) + ", " + duration(a.end - a.begin);
    if (a.moves > a.begin) all += box(a.begin, a.moves, y, ink + " opacity='0.18'", hint);
    all += box(a.moves, a.end, y, ink, hint);
  }
  int at = left;
  for (const Kind kind : {Kind::send, Kind::recv, Kind::recv_reduce, Kind::copy, Kind::reduce}) {
    all += "<rect x='" + std::to_string(at) + "' y='" + std::to_string(bottom + 20) +
           "' width='12' height='12' fill='" + colour(kind) + "'/>\n" +
           text(at + 18, bottom + 31, std::string(name(kind)), "start");
    at += 110;
  }
  return all + text(at, bottom + 31, "pale: waits", "start") + "</svg>\n";
}

std::string chrome_trace(const Timeline& timeline) {
  std::string events;
  const auto add = [&events](const std::string& event) {
    events += (events.empty() ? "\n" : ",\n") + event;
  };
  const auto on = [](int rank, Lane lane) {
    return "\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(lane);
  };
  for (int r = 0; r < timeline.world; ++r) {
    add("{\"ph\":\"M\",\"name\":\"process_name\"," + on(r, sends) + ",\"args\":{\"name\":\"rank " +
        std::to_string(r) + "\"}}");
    for (const Lane lane : {sends, computes, receives}) {
      add("{\"ph\":\"M\",\"name\":\"thread_name\"," + on(r, lane) + ",\"args\":{\"name\":\"" +
          lane_names[lane] + "\"}}");
    }
  }
  std::map<std::pair<int, int>, std::pair<int, int>>
      met;  // sender, receiver: messages seen of each
  for (const Activity& a : timeline.activities) {
    const Lane lane = lane_of(a.kind);
    const auto micro = [](double seconds) { return number(seconds * 1e6, 3); };
    add("{\"ph\":\"X\",\"name\":\"" + words(a) + "\",\"cat\":\"" + std::string(name(a.kind)) +
        "\"," + on(a.rank, lane) + ",\"ts\":" + micro(a.begin) +
        ",\"dur\":" + micro(a.end - a.begin) + ",\"args\":{\"round\":" + std::to_string(a.round) +
        ",\"bytes\":" + std::to_string(a.bytes) + ",\"waited_us\":" + micro(a.moves - a.begin) +
        "}}");
    if (lane == computes) continue;
    const bool out = lane == sends;
    const auto pair = out ? std::pair(a.rank, a.peer) : std::pair(a.peer, a.rank);
    auto& [gone, come] = met[pair];
    const std::string id = std::to_string(pair.first) + ">" + std::to_string(pair.second) + "#" +
                           std::to_string(out ? gone++ : come++);
    add("{\"ph\":\"" + std::string(out ? "s" : "f\",\"bp\":\"e") +
        "\",\"name\":\"message\",\"cat\":\"message\",\"id\":\"" + id + "\"," + on(a.rank, lane) +
        ",\"ts\":" + micro(out ? a.moves : a.end) + "}");
  }
  return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[" + events + "\n]}\n";
}

}  // namespace peal::comm
