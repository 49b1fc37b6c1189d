//! Measured results of findings: a number, or the rows in which a statement holds.
//!
//! Input: a [`PaperFinding`] and [`CaseValues`]. Output: a [`FindingResult`], from which [`super::judge`] derives a verdict.

use super::case::{Expect, PaperFinding, Quantifier};
use super::values::CaseValues;

/// Measured result of a finding.
pub(crate) enum FindingResult {
    Number(f64),
    /// Number of rows, pairs or arms in which a statement holds, their total, and the fraction that is
    /// required.
    Rows {
        held: usize,
        all: usize,
        wanted: f64,
        words: String,
    },
}

impl FindingResult {
    pub fn holds(&self) -> bool {
        match self {
            Self::Number(_) => false,
            Self::Rows {
                held, all, wanted, ..
            } => {
                let share = *held as f64 / (*all).max(1) as f64;
                if *wanted == 0.5 {
                    share > 0.5
                } else {
                    share >= *wanted
                }
            }
        }
    }

    pub fn words(&self) -> &str {
        match self {
            Self::Number(_) => "",
            Self::Rows { words, .. } => words,
        }
    }

    /// Replaces the text of the result by that which `other` returns.
    fn with_words(mut self, other: impl Fn(&str) -> String) -> Self {
        if let Self::Rows { words, .. } = &mut self {
            *words = other(words);
        }
        self
    }
}

pub fn find(finding: &PaperFinding, values: &CaseValues) -> Option<FindingResult> {
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
        Expect::Value => mean(&column(finding, values, rows)?).map(FindingResult::Number),
        Expect::Maximum => {
            let largest = column(finding, values, rows)?.into_iter().reduce(f64::max);
            largest.map(FindingResult::Number)
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

fn column(finding: &PaperFinding, values: &CaseValues, rows: &[String]) -> Option<Vec<f64>> {
    rows.iter()
        .map(|row| values.get(row, &finding.arm, &finding.measure))
        .collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Tolerance: maximum relative difference at which two values count as similar.
const CLOSE: f64 = 0.02;
/// Tolerance: maximum relative difference to another arm at which two values count as tied.
const TIE: f64 = 0.005;

fn ordered(
    finding: &PaperFinding,
    values: &CaseValues,
    rows: &[String],
    sign: f64,
) -> Option<FindingResult> {
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
        return Some(FindingResult::Rows {
            held,
            all: finding.against.len(),
            wanted: 1.0,
            words: words.join(", "),
        });
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

/// Returns the result of a statement that holds in `held` of `all` rows. The finding's quantifier
/// determines the required fraction.
fn in_rows(finding: &PaperFinding, held: usize, all: usize) -> Option<FindingResult> {
    let wanted = match finding.quantifier {
        Quantifier::Every | Quantifier::Mean => 1.0,
        Quantifier::Most => 0.5,
        Quantifier::Some => f64::MIN_POSITIVE,
    };
    Some(FindingResult::Rows {
        held,
        all,
        wanted,
        words: format!("in {held} of {all}"),
    })
}

/// Returns the result of a statement that holds or does not hold as a whole.
const fn whole(holds: bool, words: String) -> FindingResult {
    FindingResult::Rows {
        held: holds as usize,
        all: 1,
        wanted: 1.0,
        words,
    }
}

fn similar(finding: &PaperFinding, values: &CaseValues, rows: &[String]) -> Option<FindingResult> {
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

fn change(
    finding: &PaperFinding,
    values: &CaseValues,
    rows: &[String],
    sign: f64,
) -> Option<FindingResult> {
    let base = finding.against.first()?;
    let changes: Option<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mine = values.get(row, &finding.arm, &finding.measure)?;
            let theirs = values.get(row, base, &finding.measure)?;
            Some(sign * 100.0 * (mine / theirs - 1.0))
        })
        .collect();
    let changes = changes?;
    let found = match finding.quantifier {
        Quantifier::Some => changes.into_iter().reduce(f64::max),
        _ => mean(&changes),
    };
    found.map(FindingResult::Number)
}

fn within(finding: &PaperFinding, column: &[f64]) -> Option<FindingResult> {
    let [low, high] = finding.range?;
    let held = column.iter().filter(|v| (low..=high).contains(v)).count();
    let least = column.iter().copied().reduce(f64::min)?;
    let most = column.iter().copied().reduce(f64::max)?;
    let found = in_rows(finding, held, column.len())?;
    Some(found.with_words(|count| format!("{least:.2} to {most:.2}, {count}")))
}

/// Returns the result of a minimum. The text does not contain the values, so that it is equal on every host
/// where the statement holds.
fn at_least(finding: &PaperFinding, column: &[f64]) -> Option<FindingResult> {
    let wanted = finding.value?;
    let holds = column.iter().all(|v| *v >= wanted);
    let words = if holds { "at least" } else { "less than" };
    Some(whole(holds, format!("{words} {wanted}")))
}

fn share(finding: &PaperFinding, column: &[f64]) -> Option<FindingResult> {
    let [low, high] = finding.range?;
    let held = column.iter().filter(|v| (low..=high).contains(v)).count();
    Some(FindingResult::Number(
        100.0 * held as f64 / column.len() as f64,
    ))
}

fn correlation(
    finding: &PaperFinding,
    values: &CaseValues,
    rows: &[String],
) -> Option<FindingResult> {
    let (arm, with) = finding.with.as_deref()?.split_once(' ')?;
    let mine = column(finding, values, rows)?;
    let other: Option<Vec<f64>> = rows.iter().map(|r| values.get(r, arm, with)).collect();
    let r = rank_correlation(&mine, &other?)?;
    // A coefficient of at least one third counts as a trend, since smaller ones are hardly visible in a
    // scatter plot.
    let sign = if r.abs() < 1.0 / 3.0 { 0.0 } else { r.signum() };
    let wanted = finding.value?;
    Some(whole(sign == wanted, format!("rank correlation {r:.2}")))
}

/// Returns Spearman's rank correlation coefficient; tied values have their mean rank. `None` if one side
/// has only equal values.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> Option<f64> {
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
    finding: &PaperFinding,
    values: &CaseValues,
    rows: &[String],
    holds: impl Fn(f64, f64) -> bool,
) -> Option<FindingResult> {
    let first = column(finding, values, rows)?;
    let then = column(finding, values, &finding.then)?;
    let pairs = first.len() * then.len();
    let held = first
        .iter()
        .map(|f| then.iter().filter(|t| holds(*f, **t)).count());
    let held = held.sum();
    let words = format!("{held} of {pairs} pairs in this order");
    Some(FindingResult::Rows {
        held,
        all: pairs,
        wanted: 1.0,
        words,
    })
}

/// Returns the arms of a finding in ascending order of a measure in a row; `None` if a value is missing.
fn sorted<'a>(
    finding: &'a PaperFinding,
    values: &CaseValues,
    row: &str,
    measure: &str,
) -> Option<Vec<&'a String>> {
    let arms = finding.against.iter().chain([&finding.arm]);
    let arms = arms.map(|arm| Some((values.get(row, arm, measure)?, arm)));
    let mut arms: Vec<(f64, &String)> = arms.collect::<Option<_>>()?;
    arms.sort_by(|a, b| a.0.total_cmp(&b.0));
    Some(arms.into_iter().map(|(_, arm)| arm).collect())
}

/// Returns the number of rows in which `holds` is true for the arms' ascending orders by two measures.
/// `None` if a value is missing.
fn by_two(
    finding: &PaperFinding,
    values: &CaseValues,
    rows: &[String],
    holds: impl Fn(&[&String], &[&String]) -> bool,
) -> Option<FindingResult> {
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
    let found = in_rows(finding, held, rows.len())?;
    Some(found.with_words(|count| format!("{count} (lowest: {})", words.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_curve_has_a_negative_rank_correlation() {
        let r = rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[9.0, 7.0, 5.0, 1.0]);
        assert_eq!(r, Some(-1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[2.0, 3.0]), None);
    }
}
