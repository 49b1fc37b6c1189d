//! Display of recorded profiles: phases and behaviours.

use countersteer_model::profile::{Behaviour, MissCurve, Recorded, SampledFigure, ThreadShape};

use super::source;
use crate::format::{number, prefixed};
use crate::table::{labelled, plain};

const WIDTH: usize = 64;
/// Letters for behaviours; all behaviours from the 26th on share the last one.
const LETTERS: &[u8; 26] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";

pub(super) fn text(p: &Recorded) -> String {
    let mut text = format!(
        "{}: recorded, {} instructions, {}\n",
        p.name,
        prefixed(p.instructions as f64),
        shape(p)
    );
    text += &source(&p.source);
    if let Some(why) = &p.partial {
        text += &labelled("partial   ", why);
    }
    for caveat in &p.caveats {
        text += &labelled("caveat    ", &caveat.text());
    }
    if !p.sampling.is_empty() {
        text += &labelled("sampled   ", &sampled(&p.sampling));
    }
    let segments = p.timeline.len();
    let behaviours = p.behaviours.len();
    text += &format!(
        "\n{} in {}, each column 1/{WIDTH} of the run\n",
        several(behaviours, "behaviour"),
        several(segments, "segment")
    );
    text += &format!("  {}\n\n{}", timeline(p), table(p));
    text
}

/// Returns the sampled figures with the intervals that hold 90 % of samples.
fn sampled(figures: &[SampledFigure]) -> String {
    let one = |f: &SampledFigure| {
        let half = number(f.half_interval(), 2);
        format!("{} {} ±{half}", f.figure, number(f.value, 2))
    };
    let all: Vec<String> = figures.iter().map(one).collect();
    format!("{} (90 %)", all.join(", "))
}

fn several(n: usize, what: &str) -> String {
    if n == 1 {
        format!("1 {what}")
    } else {
        format!("{n} {what}s")
    }
}

fn shape(p: &Recorded) -> String {
    match p.shape.threads {
        1 => "1 thread".into(),
        n => format!(
            "{n} threads, {:.0} % of the work serial{}",
            p.shape.serial_share * 100.0,
            runnable(&p.shape)
        ),
    }
}

/// Returns the fraction of time by number of runnable threads, and the thread with most of the serial
/// work.
fn runnable(shape: &ThreadShape) -> String {
    let rows = shape.runnable.iter().enumerate();
    let parts = rows.filter(|(_, share)| **share >= 0.005);
    let parts: Vec<String> = parts
        .map(|(row, share)| format!("{} {:.0} %", row + 1, share * 100.0))
        .collect();
    let most = shape.serial_by.iter().enumerate();
    let most = most.max_by(|a, b| a.1.total_cmp(b.1));
    let of_thread = most.map_or_else(String::new, |(row, share)| {
        format!(
            "; {:.0} % of the serial work in thread {}",
            share * 100.0,
            row + 1
        )
    });
    if parts.is_empty() {
        return of_thread;
    }
    format!(
        "\n  runnable threads by time: {}{of_thread}",
        parts.join(", ")
    )
}

fn letter(behaviour: usize) -> char {
    char::from(LETTERS[behaviour.min(LETTERS.len() - 1)])
}

/// Returns a timeline of letters; each column shows the behaviour with the most instructions in it.
fn timeline(p: &Recorded) -> String {
    let column = p.instructions.max(1) as f64 / WIDTH as f64;
    let mut weights = vec![vec![0.0; p.behaviours.len()]; WIDTH];
    let mut start = 0.0;
    for segment in &p.timeline {
        let end = start + segment.instructions as f64;
        let first = (start / column) as usize;
        let last = ((end / column).ceil() as usize).min(WIDTH);
        for (i, weight) in weights.iter_mut().enumerate().take(last).skip(first) {
            let overlap = end.min((i + 1) as f64 * column) - f64::max(start, i as f64 * column);
            weight[segment.behaviour as usize] += overlap.max(0.0);
        }
        start = end;
    }
    let most = |w: &Vec<f64>| {
        w.iter()
            .enumerate()
            .rev()
            .max_by(|a, b| a.1.total_cmp(b.1))
            .map_or(0, |m| m.0)
    };
    weights.iter().map(|w| letter(most(w))).collect()
}

fn table(p: &Recorded) -> String {
    let windows = p.behaviours.iter().flat_map(|b| {
        let ilp = b.ilp.last().map(|p| p.window);
        ilp.into_iter().chain(b.mlp.last().map(|p| p.window))
    });
    let window = windows.max().unwrap_or_default();
    // Only profiles from other tools have several window sizes.
    let in_window = |value: f64, of: u32| match of == window {
        true => number(value, 2),
        false => format!("{} in {of}", number(value, 2)),
    };
    let head = [
        "", "share", "loads", "stores", "branch", "fp", "simd", "br. mpki", "ILP", "MLP", "class",
    ];
    let row = |(i, (b, share)): (usize, (&Behaviour, f64))| {
        let percent = |v: f64| format!("{:.0} %", v * 100.0);
        let ilp = b.ilp.last();
        let ilp = ilp.map_or_else(String::new, |p| in_window(p.ipc, p.window));
        let mlp = b.mlp.last();
        let mlp = mlp.map_or_else(|| "–".into(), |p| in_window(p.overlap, p.window));
        let mix = [
            share,
            b.mix.loads,
            b.mix.stores,
            b.mix.branches,
            b.mix.fp,
            b.mix.simd,
        ]
        .map(percent);
        let class = MissCurve::from_locality(&b.locality).class().to_string();
        [letter(i).to_string()]
            .into_iter()
            .chain(mix)
            .chain([number(b.branch_mpki, 2), ilp, mlp, class])
            .collect()
    };
    let rows = p.behaviours.iter().zip(p.shares()).enumerate().map(row);
    format!(
        "{}\nILP and MLP in windows of {window} instructions",
        plain(&head, rows)
    )
}
