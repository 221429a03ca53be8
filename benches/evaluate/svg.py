"""Small line charts as SVG, without a library."""

COLOURS = {"corgipile": "#c0392b", "once": "#2c3e50", "epoch": "#7f8c8d", "mrs": "#8e44ad", "sliding_window": "#2980b9",
           "block_only": "#d68910", "tuple_only": "#16a085", "none": "#95a5a6", "auto": "#e84393"}


def lines(title, x_label, y_label, series, path, log_x=False, width=520, height=300):
    """series: name -> [(x, y)]."""
    from math import log10
    points = [p for s in series.values() for p in s]
    if not points:
        return
    fx = (lambda x: log10(max(x, 1e-9))) if log_x else (lambda x: x)
    x0, x1 = min(fx(p[0]) for p in points), max(fx(p[0]) for p in points)
    y0, y1 = min(p[1] for p in points), max(p[1] for p in points)
    if y1 - y0 < 1e-9:
        y0, y1 = y0 - 1, y1 + 1
    pad = (y1 - y0) * 0.05
    y0, y1 = y0 - pad, y1 + pad
    if x1 - x0 < 1e-9:
        x0, x1 = x0 - 1, x1 + 1
    left, right, top, bottom = 52, 118, 26, 38
    sx = lambda x: left + (fx(x) - x0) / (x1 - x0) * (width - left - right)
    sy = lambda y: height - bottom - (y - y0) / (y1 - y0) * (height - top - bottom)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="16" font-size="12" font-weight="bold">{title}</text>']
    for i in range(5):
        y = y0 + (y1 - y0) * i / 4
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{sy(y):.1f}" y2="{sy(y):.1f}" stroke="#eee"/>')
        out.append(f'<text x="{left - 5}" y="{sy(y) + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    ticks = range(int(x0), int(x1) + 2) if log_x else [x0 + (x1 - x0) * i / 4 for i in range(5)]
    for tick in ticks:
        x = 10.0**tick if log_x else tick
        if x0 - 1e-9 <= fx(x) <= x1 + 1e-9:
            out.append(f'<text x="{sx(x):.1f}" y="{height - bottom + 15}" text-anchor="middle">{x:.3g}</text>')
    out.append(f'<text x="{(left + width - right) / 2}" y="{height - 6}" text-anchor="middle">{x_label}</text>')
    out.append(f'<text x="12" y="{(top + height - bottom) / 2}" text-anchor="middle" transform="rotate(-90 12 {(top + height - bottom) / 2})">{y_label}</text>')
    for i, (name, s) in enumerate(series.items()):
        colour = COLOURS.get(name, ["#c0392b", "#2980b9", "#27ae60", "#8e44ad", "#d68910", "#2c3e50", "#16a085", "#7f8c8d"][i % 8])
        line = " ".join(f"{sx(x):.1f},{sy(y):.1f}" for x, y in s)
        out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for x, y in s:
            out.append(f'<circle cx="{sx(x):.1f}" cy="{sy(y):.1f}" r="1.8" fill="{colour}"/>')
        out.append(f'<rect x="{width - right + 10}" y="{top + i * 16}" width="10" height="10" fill="{colour}"/>')
        out.append(f'<text x="{width - right + 24}" y="{top + 9 + i * 16}">{name}</text>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")
