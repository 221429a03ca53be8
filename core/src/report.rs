//! A model on one page of HTML: what it is, how it was trained, what it weighs. Self-contained: style and figures
//! are in the page, nothing is fetched, and there is no script.

use crate::model::Model;
use crate::plumber::{EpochTrace, Operator};
use std::fmt::Write;

/// Weights that are shown.
const SHOWN: usize = 20;
/// Size of the figures.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 220.0;
const COLORS: [&str; 4] = ["#4878d0", "#ee854a", "#6acc64", "#d65f5f"];

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
h1{font-size:1.5em;margin-bottom:.1em}h2{font-size:1.1em;margin:1.8em 0 .4em}table{border-collapse:collapse}\
td,th{padding:.15em .8em .15em 0;text-align:left;vertical-align:top}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
.note{color:#666}svg{width:100%;height:auto}svg text{font-size:12px;fill:currentColor}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}.note{color:#999}}";

/// What of a model is not in the model.
#[derive(Debug, Clone, Default)]
pub struct Stored<'a> {
    /// Its name and version, or its id.
    pub title: &'a str,
    /// The table it was trained on.
    pub source: &'a str,
    /// Actual class, predicted class and how often; empty: it was judged on no table.
    pub confusion: &'a [(String, String, i64)],
    /// The table it was judged on.
    pub judged_on: &'a str,
}

/// Text in HTML.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A number as one would write it.
fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        a if !(1e-4..1e6).contains(&a) => format!("{x:.3e}"),
        a if a >= 1000.0 => format!("{x:.0}"),
        _ => {
            let text = format!("{x:.5}");
            text.trim_end_matches('0').trim_end_matches('.').into()
        }
    }
}

fn row(out: &mut String, name: &str, value: &str) {
    if !value.is_empty() {
        let _ = write!(out, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(value));
    }
}

/// Lines over epochs, with a legend; points that are missing leave a gap.
fn line_chart(out: &mut String, title: &str, series: &[(&str, Vec<(f64, f64)>)]) {
    let points = || series.iter().flat_map(|(_, points)| points).filter(|(_, y)| y.is_finite());
    let bounds = |of: fn(&(f64, f64)) -> f64| {
        points().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let ((left, right), (low, high)) = (bounds(|p| p.0), bounds(|p| p.1));
    if !left.is_finite() {
        return;
    }
    let (margin, bottom) = (70.0, 30.0);
    let x = |v: f64| margin + (WIDTH - margin - 15.0) * (v - left) / (right - left).max(1e-12);
    let y = |v: f64| 25.0 + (HEIGHT - 25.0 - bottom) * (high - v) / (high - low).max(f64::MIN_POSITIVE);
    let _ = write!(out, "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">", escape(title));
    for v in [low, high] {
        let at = y(v);
        let _ = write!(
            out,
            "<line x1=\"{margin}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#8886\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            margin - 8.0,
            at + 4.0,
            number(v)
        );
    }
    for v in [left, right] {
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(v),
            HEIGHT - bottom + 18.0,
            number(v)
        );
    }
    let _ = write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">epoch</text>",
        (margin + WIDTH) / 2.0,
        HEIGHT - bottom + 18.0
    );
    for (i, (name, points)) in series.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        for part in points.split(|(_, v)| !v.is_finite()).filter(|part| !part.is_empty()) {
            let path: Vec<String> = part.iter().map(|(e, v)| format!("{:.1},{:.1}", x(*e), y(*v))).collect();
            let _ = write!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
        }
        if let Some((e, v)) = points.iter().rev().find(|(_, v)| v.is_finite()) {
            let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{color}\"/>", x(*e), y(*v));
        }
        let at = margin + 150.0 * i as f64;
        let _ = write!(
            out,
            "<rect x=\"{at}\" y=\"3\" width=\"10\" height=\"10\" fill=\"{color}\"/><text x=\"{:.1}\" y=\"13\">{}</text>",
            at + 15.0,
            escape(name)
        );
    }
    out.push_str("</svg>");
}

/// What each operator did in each epoch, one bar of processor time after another.
fn waterfall(out: &mut String, trace: &[EpochTrace]) {
    let most = trace.iter().map(|epoch| epoch.records.iter().map(|r| r.cpu_ns).sum::<u64>()).max().unwrap_or(0);
    if most == 0 {
        return;
    }
    let (margin, height) = (70.0, 16.0);
    let scale = (WIDTH - margin - 90.0) / most as f64;
    let total = 25.0 + (height + 4.0) * trace.len() as f64;
    let _ = write!(out, "<svg role=\"img\" aria-label=\"trace\" viewBox=\"0 0 {WIDTH} {total}\">");
    for (i, operator) in Operator::ALL.iter().enumerate() {
        let at = margin + 100.0 * i as f64;
        let _ = write!(
            out,
            "<rect x=\"{at}\" y=\"3\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.1}\" y=\"13\">{}</text>",
            COLORS[i],
            at + 15.0,
            operator.name()
        );
    }
    for (line, epoch) in trace.iter().enumerate() {
        let top = 25.0 + (height + 4.0) * line as f64;
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{}</text>",
            margin - 8.0,
            top + 12.0,
            epoch.epoch,
            if epoch.cached { " kept" } else { "" }
        );
        let mut at = margin;
        for (record, color) in epoch.records.iter().zip(COLORS) {
            let width = record.cpu_ns as f64 * scale;
            let _ = write!(
                out,
                "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{color}\"/>"
            );
            at += width;
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{} ms</text>",
            at + 6.0,
            top + 12.0,
            number((epoch.wall_ns as f64 / 1e4).round() / 100.0)
        );
    }
    out.push_str(
        "</svg><p class=\"note\">Processor time of the operators; at the bar's end, the time by the clock.</p>",
    );
}

fn confusion(out: &mut String, stored: &Stored<'_>) {
    let mut predicted: Vec<&str> = Vec::new();
    for (_, p, _) in stored.confusion {
        if !predicted.contains(&p.as_str()) {
            predicted.push(p);
        }
    }
    let mut actual: Vec<&str> = Vec::new();
    for (a, _, _) in stored.confusion {
        if !actual.contains(&a.as_str()) {
            actual.push(a);
        }
    }
    let _ = write!(out, "<h2>Confusion matrix on {}</h2>", escape(stored.judged_on));
    if predicted.len() > SHOWN {
        let _ = write!(out, "<p class=\"note\">{} classes: more than fit on a page.</p>", predicted.len());
        return;
    }
    out.push_str("<table><tr><th>actual \\ predicted</th>");
    for p in &predicted {
        let _ = write!(out, "<th class=\"n\">{}</th>", escape(p));
    }
    out.push_str("</tr>");
    for a in actual {
        let counts: Vec<i64> = predicted
            .iter()
            .map(|p| stored.confusion.iter().find(|(x, y, _)| x == a && y == p).map_or(0, |(_, _, n)| *n))
            .collect();
        let sum = counts.iter().sum::<i64>().max(1) as f64;
        let _ = write!(out, "<tr><th>{}</th>", escape(a));
        for n in counts {
            // The darker, the larger the part of the actual class.
            let shade = (n as f64 / sum * 153.0) as u8;
            let _ = write!(out, "<td class=\"n\" style=\"background:#4878d0{shade:02x}\">{n}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</table>");
}

/// The largest weights, by feature and class.
fn weights(out: &mut String, model: &Model) {
    let n = model.header.n_features;
    let many = model.outputs() > 1;
    let mut all: Vec<(usize, usize, f32)> = Vec::new();
    for (output, weights) in model.weights.chunks_exact(n + 1).enumerate() {
        for (feature, weight) in weights[..n].iter().enumerate() {
            // Only the largest so far are kept.
            all.push((output, feature, *weight));
            if all.len() >= 4 * SHOWN {
                all.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()));
                all.truncate(SHOWN);
            }
        }
    }
    all.sort_by(|a, b| b.2.abs().total_cmp(&a.2.abs()).then(a.1.cmp(&b.1)));
    all.truncate(SHOWN);
    let Some(largest) = all.first().map(|(_, _, w)| w.abs()).filter(|w| *w > 0.0) else { return };
    out.push_str("<h2>Largest weights</h2><table><tr>");
    out.push_str(if many { "<th>class</th>" } else { "" });
    out.push_str("<th>feature</th><th class=\"n\">weight</th><th></th></tr>");
    for (output, feature, weight) in all {
        out.push_str("<tr>");
        if many {
            let _ = write!(out, "<td>{}</td>", escape(model.header.classes.get(output).map_or("", String::as_str)));
        }
        let width = f64::from(weight.abs() / largest) * 180.0;
        let color = if weight < 0.0 { COLORS[3] } else { COLORS[0] };
        let _ = write!(
            out,
            "<td>{}</td><td class=\"n\">{}</td><td><span style=\"display:inline-block;height:.7em;width:{width:.0}px;\
             background:{color}\"></span></td></tr>",
            escape(&model.header.feature_name(feature)),
            number(f64::from(weight))
        );
    }
    out.push_str("</table>");
    if model.header.encoding.is_some() {
        out.push_str("<p class=\"note\">Of features as they are trained on: numbers centred and scaled.</p>");
    }
}

/// The page.
pub fn html(model: &Model, stored: &Stored<'_>) -> String {
    let header = &model.header;
    let mut out = String::new();
    let title = escape(stored.title);
    let _ = write!(
        out,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    );
    let _ = write!(
        out,
        "<p class=\"note\">{} on {} tuples of {}, {} features</p><table>",
        escape(header.loss.name()),
        header.rows,
        escape(stored.source),
        header.n_features
    );
    let last = header.history.last();
    row(&mut out, "target", &header.target);
    row(&mut out, "classes", &header.classes.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "));
    row(&mut out, "loss", &last.and_then(|report| report.loss).map_or_else(String::new, number));
    let held_out = last.and_then(|report| report.eval);
    row(&mut out, "loss held out", &held_out.map_or_else(String::new, |eval| number(eval.loss)));
    let accuracy = held_out.and_then(|eval| eval.accuracy);
    row(&mut out, "accuracy held out", &accuracy.map_or_else(String::new, number));
    row(
        &mut out,
        "rows skipped",
        &Some(header.rows_skipped).filter(|n| *n > 0).map_or_else(String::new, |n| n.to_string()),
    );
    row(&mut out, "epochs", &header.history.len().to_string());
    row(&mut out, "time", &format!("{} ms", number(header.duration_ms.round())));
    out.push_str("</table>");
    let of = |value: fn(&crate::trainer::EpochReport) -> Option<f64>| -> Vec<(f64, f64)> {
        header.history.iter().map(|report| (f64::from(report.epoch), value(report).unwrap_or(f64::NAN))).collect()
    };
    let mut series = vec![("training", of(|report| report.loss))];
    if held_out.is_some() {
        series.push(("held out", of(|report| report.eval.map(|eval| eval.loss))));
    }
    out.push_str("<h2>Loss by epoch</h2>");
    line_chart(&mut out, "loss by epoch", &series);
    if !header.trace.is_empty() {
        out.push_str("<h2>Where the time went</h2>");
        waterfall(&mut out, &header.trace);
    }
    if !stored.confusion.is_empty() {
        confusion(&mut out, stored);
    }
    weights(&mut out, model);
    out.push_str("<h2>Configuration</h2><table>");
    if let Ok(serde_json::Value::Object(params)) = serde_json::to_value(&header.params) {
        for (name, value) in params.iter().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            row(&mut out, name, &text);
        }
    }
    out.push_str("</table></body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::model::tests::sample;

    #[test]
    fn a_page_is_whole_and_nothing_in_it_is_markup_of_others() {
        let mut model = sample(vec![0.5, -2.0, 0.1, 1.0, 2.0, 0.0], Loss::Softmax, 2);
        model.header.classes = vec!["<script>alert(1)</script>".into(), "b & c".into()];
        model.header.target = "a \"quoted\" column".into();
        let pairs = [("b & c".to_string(), "b & c".to_string(), 7)];
        let stored = Stored { title: "<b>", source: "public.t", confusion: &pairs, judged_on: "t" };
        let page = html(&model, &stored);
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        assert!(!page.contains("<script") && !page.contains("<b>") && page.contains("&lt;script&gt;"));
        // Nothing is fetched.
        assert!(!page.contains("http") && !page.contains("src=") && !page.contains("url("));
        for tag in ["table", "svg", "tr", "td", "th", "h2", "body"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn numbers_read_well() {
        let numbers = [0.0, 1.0, 0.25, -1234.5, 1e9, 1e-7].map(number);
        assert_eq!(numbers, ["0", "1", "0.25", "-1234", "1.000e9", "1.000e-7"]);
    }
}
