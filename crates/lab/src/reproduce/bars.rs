//! Bar charts of numbers from the papers and from our simulations.
//!
//! Input: a case with numbers. Output: an SVG element without blank lines, which Markdown copies unchanged.

use std::fmt::Write as _;

use super::Reproduced;
use super::judge::PaperNumber;

/// Height of a line in pixels.
const LINE: f64 = 16.0;
/// Height of a bar in pixels.
const BAR: f64 = 9.0;
/// Width of the text in pixels.
const WORDS: f64 = 430.0;
/// Length of the longest bar in pixels.
const LENGTH: f64 = 300.0;

/// Returns a pair of bars for each number of a case, with the interval of our number. `None` without numbers.
pub fn svg(case: &Reproduced) -> Option<String> {
    let numbers = case.findings.iter();
    let numbers = numbers.filter_map(|f| Some((f.says.as_str(), f.numbers?)));
    let finite = numbers.filter(|(_, n)| n.ends().iter().all(|end| end.is_finite()));
    let rows: Vec<(&str, PaperNumber)> = finite.collect();
    let ends = rows.iter().flat_map(|(_, n)| n.ends());
    let most = ends.clone().fold(0.0, f64::max);
    let least = ends.fold(0.0, f64::min);
    if rows.is_empty() || most <= least {
        return None;
    }
    let at = |value: f64| WORDS + LENGTH * (value - least) / (most - least);
    let height = rows.len() as f64 * 2.0 * LINE + 4.0;
    let width = WORDS + LENGTH + 10.0;
    let mut text = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" font-size=\"12\" fill=\"currentColor\">\n"
    );
    for (nth, (says, numbers)) in rows.iter().enumerate() {
        let top = nth as f64 * 2.0 * LINE + 4.0;
        let words = escaped(&says.chars().take(70).collect::<String>());
        let base = top + LINE - 4.0;
        let _ = writeln!(text, "<text x=\"0\" y=\"{base}\">{words}</text>");
        bar(&mut text, (at(0.0), at(numbers.paper)), top, 0.35);
        bar(&mut text, (at(0.0), at(numbers.ours)), top + BAR + 1.0, 0.8);
        let [low, high] = numbers.interval.map(at);
        let middle = top + 1.5 * BAR + 1.0;
        let _ = writeln!(
            text,
            "<path d=\"M{low:.1} {middle}H{high:.1}\" stroke=\"red\" stroke-width=\"2\"/>"
        );
    }
    text.push_str("</svg>");
    Some(text)
}

fn bar(text: &mut String, (zero, end): (f64, f64), top: f64, opacity: f64) {
    let left = zero.min(end);
    let width = (zero - end).abs();
    let _ = writeln!(
        text,
        "<rect x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR}\" opacity=\"{opacity}\"/>"
    );
}

impl PaperNumber {
    fn ends(self) -> [f64; 4] {
        let [low, high] = self.interval;
        [self.paper, self.ours, low, high]
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::judge::{JudgedStatement, StatementVerdict};

    #[test]
    fn a_number_has_a_bar_of_the_paper_and_one_of_ours_and_no_blank_line_in_between() {
        let numbers = PaperNumber {
            paper: 10.0,
            ours: 5.0,
            interval: [4.0, 6.0],
        };
        let finding = |numbers| JudgedStatement {
            says: "a < b".into(),
            paper: String::new(),
            ours: String::new(),
            verdict: StatementVerdict::Differs,
            cause: None,
            numbers,
        };
        let mut case = crate::reproduce::document::tests::case("analytic");
        case.findings = vec![finding(Some(numbers)), finding(None)];
        let drawn = svg(&case).unwrap();
        assert_eq!(drawn.matches("<rect").count(), 2);
        assert!(
            drawn.contains("width=\"300.0\"") && drawn.contains("width=\"150.0\""),
            "{drawn}"
        );
        assert!(drawn.contains("a &lt; b") && !drawn.contains("\n\n"));
        case.findings = vec![finding(None)];
        assert_eq!(svg(&case), None);
    }
}
