# SPDX-License-Identifier: Apache-2.0
# Draws times over sizes as an SVG: both axes logarithmic, a curve a name, the names beside the curves' ends.
import html
import math

OTHERS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6b8e23"]
OURS = ["#000000", "#8c1aff", "#7f5539"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000, 560, 80, 250, 50, 70


def of_bytes(size):
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size >> shift} {unit}"
    return f"{size} B"


def of_microseconds(value):
    if value >= 1e6:
        return f"{value / 1e6:g} s"
    return f"{value / 1e3:g} ms" if value >= 1e3 else f"{value:g} µs"


def save_curves(path, title, what, sizes, curves):
    """curves: name: microseconds of each size, or None. Names that begin with peal are drawn thick, a limit grey."""
    values = [value for row in curves.values() for value in row if value]
    if not values:
        return
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    first, last = math.log2(sizes[0]), max(math.log2(sizes[-1]), math.log2(sizes[0]) + 1)

    def x(size):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(size) - first) / (last - first)

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log10(value)) / (high - low)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="17">{html.escape(title)}</text>']

    def line(x1, y1, x2, y2, colour):
        out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>')

    for power in range(low, high + 1):
        for k in range(1, 10 if power < high else 2):
            line(LEFT, y(k * 10.0 ** power), WIDTH - RIGHT, y(k * 10.0 ** power), "#c0c0c0" if k == 1 else "#efefef")
        out.append(f'<text x="{LEFT - 8}" y="{y(10.0 ** power) + 4:.1f}" text-anchor="end">{of_microseconds(10.0 ** power)}</text>')
    written = -math.inf  # where the last size stands; each takes so much place
    for size in sizes:
        line(x(size), TOP, x(size), HEIGHT - BOTTOM, "#e0e0e0")
        if x(size) - written < 48:
            continue
        written = x(size)
        out.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" font-size="11">{of_bytes(size)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 22}" text-anchor="middle">size of the {html.escape(what)}</text>')
    out.append(f'<text transform="translate(20 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
               "time of a single call, median</text>")
    used = {True: 0, False: 0}
    for i, (name, row) in enumerate(curves.items()):
        points = [(x(size), y(value)) for size, value in zip(sizes, row) if value]
        ours = name.startswith("peal")
        if name.endswith("limit"):
            colour, width, dash = "#808080", 2.5, ' stroke-dasharray="2 4"'
        else:
            palette = OURS if ours else OTHERS
            colour = palette[used[ours] % len(palette)]
            used[ours] += 1
            width, dash = (3, "") if ours else (1.5, ' stroke-dasharray="6 3"')
        out.append(f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}" fill="none" stroke="{colour}" '
                   f'stroke-width="{width}"{dash}/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        at = TOP + 16 + 22 * i
        out.append(f'<line x1="{WIDTH - RIGHT + 16}" y1="{at}" x2="{WIDTH - RIGHT + 46}" y2="{at}" stroke="{colour}" '
                   f'stroke-width="{width}"{dash}/>')
        out.append(f'<text x="{WIDTH - RIGHT + 54}" y="{at + 4}">{html.escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>", ""]))
