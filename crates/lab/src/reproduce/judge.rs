//! Verdicts: does what was measured agree with what a paper states?
//!
//! Rules, the same for every case. A number is reproduced when ours is within a quarter of the paper's, or one unit; a
//! range when ours lies in it; an order when it holds in as many rows as the paper says. A number of the same sign, a range
//! missed by less than a quarter of its bounds, and an order that holds in half of the rows are partly reproduced.

use serde::Serialize;

use super::case::{Case, Expect, Finding, Method, Quantifier};
use super::values::Values;

/// What became of a statement, or of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Reproduced,
    Partly,
    Not,
    /// Nothing was run, or the measure could not be had.
    NotAttempted,
}

impl Verdict {
    pub const fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly => "partly",
            Self::Not => "not reproduced",
            Self::NotAttempted => "not attempted",
        }
    }
}

/// A statement of the paper beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Judged {
    pub says: String,
    pub paper: String,
    pub ours: String,
    pub verdict: Verdict,
}

/// Judges every finding of a case.
pub fn judge(case: &Case, values: &Values) -> Vec<Judged> {
    case.finding.iter().map(|f| judged(f, values)).collect()
}

/// A case is reproduced when all its findings are, not when none is, and partly otherwise.
pub fn overall(case: &Case, judged: &[Judged]) -> Verdict {
    if matches!(case.method, Method::NotAttempted { .. }) {
        return Verdict::NotAttempted;
    }
    let is = |verdict: Verdict| judged.iter().all(|j| j.verdict == verdict);
    if is(Verdict::NotAttempted) {
        Verdict::NotAttempted
    } else if is(Verdict::Reproduced) {
        Verdict::Reproduced
    } else if judged
        .iter()
        .any(|j| matches!(j.verdict, Verdict::Reproduced | Verdict::Partly))
    {
        Verdict::Partly
    } else {
        Verdict::Not
    }
}

fn judged(finding: &Finding, values: &Values) -> Judged {
    let found = find(finding, values);
    let (ours, verdict) =
        found.unwrap_or_else(|| ("not measured".to_owned(), Verdict::NotAttempted));
    Judged {
        says: finding.says.clone(),
        paper: paper(finding),
        ours,
        verdict,
    }
}

/// The paper's figure in words.
fn paper(finding: &Finding) -> String {
    let unit = unit(finding.expect);
    match (finding.value, finding.range) {
        (Some(value), _) if finding.expect != Expect::Correlation => format!("{value}{unit}"),
        (_, Some([low, high])) => format!("{low} to {high}{unit}"),
        _ => "in words".to_owned(),
    }
}

const fn unit(expect: Expect) -> &'static str {
    match expect {
        Expect::Rise | Expect::Fall | Expect::Share => " %",
        _ => "",
    }
}

type Found = Option<(String, Verdict)>;

fn find(finding: &Finding, values: &Values) -> Found {
    let rows = if finding.rows.is_empty() {
        values.rows()
    } else {
        finding.rows.as_slice()
    };
    match finding.expect {
        Expect::Highest | Expect::Higher => ordered(finding, values, rows, 1.0),
        Expect::Lowest | Expect::Lower => ordered(finding, values, rows, -1.0),
        Expect::Similar => similar(finding, values, rows),
        Expect::Rise => change(finding, values, rows, 1.0),
        Expect::Fall => change(finding, values, rows, -1.0),
        Expect::Value => number(finding, mean(&column(finding, values, rows)?)?),
        Expect::Maximum => {
            let largest = column(finding, values, rows)?
                .into_iter()
                .reduce(f64::max)?;
            number(finding, largest)
        }
        Expect::AtLeast => at_least(finding, &column(finding, values, rows)?),
        Expect::Within => within(finding, &column(finding, values, rows)?),
        Expect::Share => share(finding, &column(finding, values, rows)?),
        Expect::Correlation => correlation(finding, values, rows),
        Expect::Order => order(finding, values, rows, |a, b| a > b),
        Expect::Apart => order(finding, values, rows, |a, b| {
            (a - b).abs() > CLOSE * b.abs()
        }),
        Expect::SameLowest => by_two(finding, values, rows, |a, b| a.first() == b.first()),
        Expect::OtherOrder => by_two(finding, values, rows, |a, b| a != b),
    }
}

fn column(finding: &Finding, values: &Values, rows: &[String]) -> Option<Vec<f64>> {
    rows.iter()
        .map(|row| values.get(row, &finding.arm, &finding.measure))
        .collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Values that differ by no more than this share are similar.
const CLOSE: f64 = 0.02;
/// Differences below this share of the other arm count as ties.
const TIE: f64 = 0.005;

fn ordered(finding: &Finding, values: &Values, rows: &[String], sign: f64) -> Found {
    let strict = matches!(finding.expect, Expect::Higher | Expect::Lower);
    let holds = |mine: f64, other: f64| {
        let slack = TIE * other.abs();
        let lead = sign * (mine - other);
        if strict { lead > 0.0 } else { lead >= -slack }
    };
    if finding.quantifier == Quantifier::Mean {
        let mine = mean(&column(finding, values, rows)?)?;
        let mut held = 0;
        let mut words = vec![format!("{} {mine:.3}", finding.arm)];
        for other in &finding.against {
            let theirs = rows.iter().map(|r| values.get(r, other, &finding.measure));
            let theirs = mean(&theirs.collect::<Option<Vec<_>>>()?)?;
            held += usize::from(holds(mine, theirs));
            words.push(format!("{other} {theirs:.3}"));
        }
        return Some((words.join(", "), of_count(held, finding.against.len(), 1.0)));
    }
    let mut held = 0;
    for row in rows {
        let mine = values.get(row, &finding.arm, &finding.measure)?;
        let others = finding.against.iter();
        let others: Option<Vec<f64>> = others
            .map(|o| values.get(row, o, &finding.measure))
            .collect();
        held += usize::from(others?.into_iter().all(|o| holds(mine, o)));
    }
    in_rows(finding, held, rows.len())
}

fn in_rows(finding: &Finding, held: usize, all: usize) -> Found {
    let wanted = match finding.quantifier {
        Quantifier::Every | Quantifier::Mean => 1.0,
        Quantifier::Most => 0.5,
        Quantifier::Some => f64::MIN_POSITIVE,
    };
    Some((format!("in {held} of {all}"), of_count(held, all, wanted)))
}

fn of_count(held: usize, all: usize, wanted: f64) -> Verdict {
    let share = held as f64 / all.max(1) as f64;
    let enough = if wanted == 0.5 {
        share > 0.5
    } else {
        share >= wanted
    };
    if enough {
        Verdict::Reproduced
    } else if share >= wanted / 2.0 && held > 0 {
        Verdict::Partly
    } else {
        Verdict::Not
    }
}

fn similar(finding: &Finding, values: &Values, rows: &[String]) -> Found {
    let mut held = 0;
    for row in rows {
        let mine = values.get(row, &finding.arm, &finding.measure)?;
        let others = finding.against.iter();
        let others: Option<Vec<f64>> = others
            .map(|o| values.get(row, o, &finding.measure))
            .collect();
        let close = |o: f64| (mine - o).abs() <= CLOSE * o.abs();
        held += usize::from(others?.into_iter().all(close));
    }
    in_rows(finding, held, rows.len())
}

fn change(finding: &Finding, values: &Values, rows: &[String], sign: f64) -> Found {
    let base = finding.against.first()?;
    let changes: Option<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mine = values.get(row, &finding.arm, &finding.measure)?;
            let theirs = values.get(row, base, &finding.measure)?;
            Some(sign * 100.0 * (mine / theirs - 1.0))
        })
        .collect();
    number(finding, mean(&changes?)?)
}

/// A measured number against the paper's number or range.
fn number(finding: &Finding, ours: f64) -> Found {
    let words = format!("{ours:.3}{}", unit(finding.expect));
    let verdict = match (finding.value, finding.range) {
        (Some(paper), _) if (ours - paper).abs() <= (paper.abs() / 4.0).max(1e-9) => {
            Verdict::Reproduced
        }
        (Some(paper), _) if unit(finding.expect) == " %" && (ours - paper).abs() <= 1.0 => {
            Verdict::Reproduced
        }
        (Some(paper), _) if ours * paper > 0.0 => Verdict::Partly,
        (Some(_), _) => Verdict::Not,
        (None, Some([low, high])) if (low..=high).contains(&ours) => Verdict::Reproduced,
        (None, Some([low, high]))
            if ours > low - low.abs() / 4.0 && ours < high + high.abs() / 4.0 =>
        {
            Verdict::Partly
        }
        _ => Verdict::Not,
    };
    Some((words, verdict))
}

fn within(finding: &Finding, column: &[f64]) -> Found {
    let [low, high] = finding.range?;
    let held = column.iter().filter(|v| (low..=high).contains(v)).count();
    let least = column.iter().copied().reduce(f64::min)?;
    let most = column.iter().copied().reduce(f64::max)?;
    let (count, verdict) = in_rows(finding, held, column.len())?;
    Some((format!("{least:.2} to {most:.2}, {count}"), verdict))
}

/// The words are the same on every host where the statement holds.
fn at_least(finding: &Finding, column: &[f64]) -> Found {
    let wanted = finding.value?;
    let holds = column.iter().all(|v| *v >= wanted);
    let words = if holds { "at least" } else { "less than" };
    let verdict = if holds {
        Verdict::Reproduced
    } else {
        Verdict::Not
    };
    Some((format!("{words} {wanted}"), verdict))
}

fn share(finding: &Finding, column: &[f64]) -> Found {
    let [low, high] = finding.range?;
    let held = column.iter().filter(|v| (low..=high).contains(v)).count();
    number(finding, 100.0 * held as f64 / column.len() as f64)
}

fn correlation(finding: &Finding, values: &Values, rows: &[String]) -> Found {
    let (arm, with) = finding.with.as_deref()?.split_once(' ')?;
    let mine = column(finding, values, rows)?;
    let other: Option<Vec<f64>> = rows.iter().map(|r| values.get(r, arm, with)).collect();
    let r = rank_correlation(&mine, &other?)?;
    // Two in three of the rank order: the least that a reader of a scatter plot would call a trend.
    let sign = if r.abs() < 1.0 / 3.0 { 0.0 } else { r.signum() };
    let wanted = finding.value?;
    let verdict = if sign == wanted {
        Verdict::Reproduced
    } else if sign * wanted < 0.0 || wanted == 0.0 {
        Verdict::Not
    } else {
        Verdict::Partly
    };
    Some((format!("rank correlation {r:.2}"), verdict))
}

/// Spearman's coefficient; ties share their mean rank.
pub(super) fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (ranks(a), ranks(b));
    let mid = (a.len() as f64 - 1.0) / 2.0;
    let sum =
        |x: &[f64], y: &[f64]| -> f64 { x.iter().zip(y).map(|(x, y)| (x - mid) * (y - mid)).sum() };
    let r = sum(&a, &b) / (sum(&a, &a) * sum(&b, &b)).sqrt();
    r.is_finite().then_some(r)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |v: &f64| {
        let below = values.iter().filter(|o| *o < v).count() as f64;
        let equal = values.iter().filter(|o| *o == v).count() as f64;
        below + (equal - 1.0) / 2.0
    };
    values.iter().map(rank).collect()
}

fn order(
    finding: &Finding,
    values: &Values,
    rows: &[String],
    holds: impl Fn(f64, f64) -> bool,
) -> Found {
    let first = column(finding, values, rows)?;
    let then = column(finding, values, &finding.then)?;
    let pairs = first.len() * then.len();
    let held = first
        .iter()
        .map(|f| then.iter().filter(|t| holds(*f, **t)).count());
    let held = held.sum();
    let words = format!("{held} of {pairs} pairs in this order");
    Some((words, of_count(held, pairs, 1.0)))
}

/// The arms of a row by a measure, lowest first.
fn sorted<'a>(
    finding: &'a Finding,
    values: &Values,
    row: &str,
    measure: &str,
) -> Option<Vec<&'a String>> {
    let arms = finding.against.iter().chain([&finding.arm]);
    let arms = arms.map(|arm| Some((values.get(row, arm, measure)?, arm)));
    let mut arms: Vec<(f64, &String)> = arms.collect::<Option<_>>()?;
    arms.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(arms.into_iter().map(|(_, arm)| arm).collect())
}

/// The rows in which the arms' orders, lowest first, by two measures are as they should be.
fn by_two(
    finding: &Finding,
    values: &Values,
    rows: &[String],
    holds: impl Fn(&[&String], &[&String]) -> bool,
) -> Found {
    let with = finding.with.as_deref()?;
    let mut held = 0;
    let mut words = Vec::new();
    for row in rows {
        let a = sorted(finding, values, row, &finding.measure)?;
        let b = sorted(finding, values, row, with)?;
        held += usize::from(holds(&a, &b));
        let name = |arms: &[&String]| arms.first().map_or(String::new(), |a| (*a).clone());
        words.push(format!(
            "{} by {}, {} by {with}",
            name(&a),
            finding.measure,
            name(&b)
        ));
    }
    let (count, verdict) = in_rows(finding, held, rows.len())?;
    Some((format!("{count} (lowest: {})", words.join("; ")), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(text: &str) -> Finding {
        toml::from_str(text).unwrap()
    }

    fn values(cells: &[(&str, &str, &'static str, f64)]) -> Values {
        let mut values = Values::default();
        for (row, arm, measure, value) in cells {
            if !values.rows().iter().any(|r| r == row) {
                values.add_row(row);
            }
            values.add(row, arm, measure, *value);
        }
        values
    }

    fn verdict(finding_text: &str, values: &Values) -> Verdict {
        judged(&finding(finding_text), values).verdict
    }

    #[test]
    fn an_order_must_hold_in_as_many_rows_as_the_paper_says() {
        let values = values(&[
            ("m1", "hsp", "asp", 2.0),
            ("m1", "rr", "asp", 1.0),
            ("m2", "hsp", "asp", 2.0),
            ("m2", "rr", "asp", 1.5),
            ("m3", "hsp", "asp", 1.0),
            ("m3", "rr", "asp", 2.0),
        ]);
        let text = "says = \"\"\nmeasure = \"asp\"\narm = \"hsp\"\nagainst = [\"rr\"]\nexpect = \"highest\"\n";
        assert_eq!(verdict(text, &values), Verdict::Partly);
        let most = format!("{text}quantifier = \"most\"\n");
        assert_eq!(verdict(&most, &values), Verdict::Reproduced);
        let lowest = text.replace("highest", "lowest");
        assert_eq!(verdict(&lowest, &values), Verdict::Not);
    }

    #[test]
    fn a_number_is_reproduced_within_a_quarter_and_partly_by_its_sign() {
        let measured = |ours: f64| {
            values(&[
                ("m", "a", "unfairness", ours),
                ("m", "b", "unfairness", 2.0),
            ])
        };
        let text = "says = \"\"\nmeasure = \"unfairness\"\narm = \"a\"\nagainst = [\"b\"]\nexpect = \"fall\"\nvalue = 10\n";
        assert_eq!(verdict(text, &measured(1.79)), Verdict::Reproduced);
        assert_eq!(verdict(text, &measured(1.5)), Verdict::Partly);
        assert_eq!(verdict(text, &measured(2.1)), Verdict::Not);
    }

    #[test]
    fn arms_are_ordered_by_two_measures() {
        let values = values(&[
            ("m", "a", "power_w", 20.0),
            ("m", "a", "time_s", 5.0),
            ("m", "b", "power_w", 30.0),
            ("m", "b", "time_s", 9.0),
            ("m", "c", "power_w", 40.0),
            ("m", "c", "time_s", 7.0),
        ]);
        let text = "says = \"\"\nmeasure = \"power_w\"\nwith = \"time_s\"\narm = \"a\"\nagainst = [\"b\", \"c\"]\n";
        let same = format!("{text}expect = \"same-lowest\"\n");
        let other = format!("{text}expect = \"other-order\"\n");
        assert_eq!(verdict(&same, &values), Verdict::Reproduced);
        assert_eq!(verdict(&other, &values), Verdict::Reproduced);
        let narrowed = other.replace(", \"c\"", "");
        assert_eq!(verdict(&narrowed, &values), Verdict::Not);
    }

    #[test]
    fn what_was_not_measured_has_no_verdict() {
        let text = "says = \"\"\nmeasure = \"sf\"\narm = \"a\"\nexpect = \"value\"\nvalue = 1\n";
        let values = values(&[("m", "a", "asp", 1.0)]);
        assert_eq!(verdict(text, &values), Verdict::NotAttempted);
    }

    #[test]
    fn a_falling_curve_has_a_negative_rank_correlation() {
        let r = rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[9.0, 7.0, 5.0, 1.0]);
        assert_eq!(r, Some(-1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[2.0, 3.0]), None);
    }
}
