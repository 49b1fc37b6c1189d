//! Verdicts on the agreement between measured values and a paper's statements.
//!
//! The rules are the same for every case:
//!
//! - *Reproduced* requires the paper's programs as published counters, its baseline and its formula. A number is reproduced if
//!   the paper's rounded value is within our interval. This interval is 1.96 standard deviations over at least [`DRAWS`]
//!   repetitions. They differ in seed and, within their errors, in the programs' counters. An interval wider than the value
//!   itself proves nothing. A statement in words is reproduced if it holds in 19 of 20 repetitions.
//! - *Same order* is a statement in words that holds on average, with any programs.
//! - *Same direction* is a change of the same sign whose interval excludes zero, or an order that holds in more than half of
//!   the rows. Fractions and ratios have no direction.
//! - *Differs* is everything else. A result that is not reproduced has a [`Cause`].

use serde::Serialize;

use super::case::{Case, Cause, DRAWS, Expect, Method, PaperFinding};
use super::found::{FindingResult, find};
use super::values::CaseValues;

/// Number of standard deviations around the mean that contain 95 % of a normal distribution.
const WITHIN_95: f64 = 1.96;
/// Threshold: minimum fraction of repetitions in which a statement in words must hold.
const MOSTLY: f64 = 0.95;

/// Verdict on a statement or a case, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatementVerdict {
    /// The case was not run, or the measure is unavailable.
    LeftOut,
    /// The result differs from the statement.
    Differs,
    /// The result has the same direction.
    Direction,
    /// The result has the same order.
    Order,
    /// The statement is reproduced.
    Reproduced,
}

impl StatementVerdict {
    /// All verdicts, best first.
    pub const ALL: [Self; 5] = [
        Self::Reproduced,
        Self::Order,
        Self::Direction,
        Self::Differs,
        Self::LeftOut,
    ];

    pub const fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Order => "same order",
            Self::Direction => "same direction",
            Self::Differs => "differs",
            Self::LeftOut => "left out",
        }
    }
}

/// Statement of the paper with the measured result and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct JudgedStatement {
    pub says: String,
    pub paper: String,
    pub ours: String,
    pub verdict: StatementVerdict,
    /// Reason for which the statement is not reproduced; `None` if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Number in the paper, our number, and the ends of its interval, for charts. `None` for a statement in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numbers: Option<PaperNumber>,
}

/// Number of a paper, with our number and its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PaperNumber {
    pub paper: f64,
    pub ours: f64,
    pub interval: [f64; 2],
}

/// Judges every finding of a case. `genuine` returns true if the programs of a finding are those of the paper.
pub fn judge(
    case: &Case,
    values: &CaseValues,
    genuine: &dyn Fn(&PaperFinding) -> bool,
) -> Vec<JudgedStatement> {
    let draws = values.draws();
    let one = |finding: &PaperFinding| {
        let of_programs = genuine(finding);
        let mut judged = judged(finding, values, &draws, of_programs);
        if !matches!(
            judged.verdict,
            StatementVerdict::Reproduced | StatementVerdict::LeftOut
        ) {
            let named = finding.cause.or(case.cause);
            judged.cause = Some(if of_programs {
                named.unwrap_or(Cause::Machine)
            } else {
                Cause::Programs
            });
        }
        judged
    };
    case.finding.iter().map(one).collect()
}

/// Returns the verdict on a case, which is that of its worst finding.
pub fn overall(case: &Case, judged: &[JudgedStatement]) -> StatementVerdict {
    if matches!(case.method, Method::NotAttempted { .. }) {
        return StatementVerdict::LeftOut;
    }
    let worst = judged.iter().map(|j| j.verdict).min();
    worst.unwrap_or(StatementVerdict::LeftOut)
}

fn judged(
    finding: &PaperFinding,
    values: &CaseValues,
    draws: &[CaseValues],
    genuine: bool,
) -> JudgedStatement {
    let left_out = JudgedStatement {
        says: finding.says.clone(),
        paper: paper(finding),
        ours: "not measured".to_owned(),
        verdict: StatementVerdict::LeftOut,
        cause: None,
        numbers: None,
    };
    let Some(found) = find(finding, values) else {
        return left_out;
    };
    let each: Vec<FindingResult> = draws.iter().filter_map(|one| find(finding, one)).collect();
    match found {
        FindingResult::Number(ours) => {
            let each = each.iter().filter_map(|f| match f {
                FindingResult::Number(value) => Some(*value),
                FindingResult::Rows { .. } => None,
            });
            number(finding, ours, &each.collect::<Vec<_>>(), genuine, left_out)
        }
        FindingResult::Rows {
            held, all, wanted, ..
        } => {
            let holds = each.iter().filter(|f| f.holds()).count();
            let mostly = holds as f64 >= MOSTLY * each.len() as f64;
            let verdict = if found.holds() && mostly && genuine {
                StatementVerdict::Reproduced
            } else if found.holds() {
                StatementVerdict::Order
            } else if has_direction(finding.expect) && held as f64 > 0.5 * wanted * all as f64 {
                StatementVerdict::Direction
            } else {
                StatementVerdict::Differs
            };
            let mut ours = found.words().to_owned();
            if !each.is_empty() {
                ours += &format!("; in {holds} of {} repetitions", each.len());
            }
            JudgedStatement {
                ours,
                verdict,
                ..left_out
            }
        }
    }
}

/// True if the expectation is an order of rows or arms, which may hold in most but not all rows.
const fn has_direction(expect: Expect) -> bool {
    matches!(
        expect,
        Expect::Highest | Expect::Higher | Expect::Lowest | Expect::Lower | Expect::Order
    )
}

/// Judges a measured number by the paper's number or range.
fn number(
    finding: &PaperFinding,
    ours: f64,
    each: &[f64],
    genuine: bool,
    head: JudgedStatement,
) -> JudgedStatement {
    let n = each.len() as f64;
    let mean = each.iter().sum::<f64>() / n;
    let squares: f64 = each.iter().map(|v| (v - mean).powi(2)).sum();
    let half = if each.len() > 1 {
        WITHIN_95 * (squares / (n - 1.0)).sqrt()
    } else {
        0.0
    };
    let unit = unit(finding.expect);
    let (low, high) = (ours - half, ours + half);
    let words = if each.len() > 1 {
        format!("{} ({} to {}){unit}", short(ours), short(low), short(high))
    } else {
        format!("{}{unit}", short(ours))
    };
    let is_change = matches!(finding.expect, Expect::Rise | Expect::Fall);
    let enough = genuine && each.len() as u64 >= DRAWS;
    let (agrees, same_sign, paper) = match (finding.value, finding.range) {
        (Some(value), _) => {
            let rounding = rounding(value);
            let telling = half <= (0.5 * value.abs()).max(if unit == " %" { 1.0 } else { 0.0 });
            let inside = value + rounding >= low && value - rounding <= high;
            (
                inside && telling,
                low * value > 0.0 && high * value > 0.0,
                value,
            )
        }
        (None, Some([least, most])) => {
            let same = low * most > 0.0 && high * most > 0.0 && least * most >= 0.0;
            (
                (least..=most).contains(&ours),
                same,
                if most.is_finite() {
                    f64::midpoint(least, most)
                } else {
                    least
                },
            )
        }
        (None, None) => return head,
    };
    let verdict = if agrees && enough {
        StatementVerdict::Reproduced
    } else if is_change && same_sign {
        StatementVerdict::Direction
    } else {
        StatementVerdict::Differs
    };
    JudgedStatement {
        ours: words,
        verdict,
        numbers: Some(PaperNumber {
            paper,
            ours,
            interval: [low, high],
        }),
        ..head
    }
}

/// Formats a number with three significant digits, and without decimals if it is large.
fn short(value: f64) -> String {
    let digits = 2 - value.abs().max(1e-3).log10().floor() as i32;
    format!("{value:.*}", digits.max(0) as usize)
}

/// Returns half of the last digit's unit in a number as it is written.
fn rounding(value: f64) -> f64 {
    let text = value.to_string();
    let digits = text.split_once('.').map_or(0, |(_, digits)| digits.len());
    0.5 * 10f64.powi(-(digits as i32))
}

/// Returns the paper's number or range as text.
fn paper(finding: &PaperFinding) -> String {
    let unit = unit(finding.expect);
    match (finding.value, finding.range) {
        (Some(value), _) if finding.expect != Expect::Correlation => format!("{value}{unit}"),
        (_, Some([low, high])) if high.is_infinite() => format!("at least {low}{unit}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(text: &str) -> PaperFinding {
        toml::from_str(text).unwrap()
    }

    fn values(cells: &[(&str, &str, &'static str, f64)]) -> CaseValues {
        let mut values = CaseValues::default();
        for (row, arm, measure, value) in cells {
            if !values.rows().iter().any(|r| r == row) {
                values.add_row(row);
            }
            values.add(row, arm, measure, *value);
        }
        values
    }

    fn verdict(finding_text: &str, values: &CaseValues) -> StatementVerdict {
        let draws = values.draws();
        judged(&finding(finding_text), values, &draws, true).verdict
    }

    /// Ten draws of two arms; the value of `a` alternates by `spread` up and down.
    fn drawn(measure: &'static str, a: f64, b: f64, spread: f64) -> CaseValues {
        let mut values = CaseValues::default();
        values.add_row("m");
        for draw in 0..DRAWS {
            let side = if draw % 2 == 0 { spread } else { -spread };
            values.begin(draw);
            values.add("m", "a", measure, a + side);
            values.add("m", "b", measure, b);
        }
        values
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
        assert_eq!(verdict(text, &values), StatementVerdict::Direction);
        let most = format!("{text}quantifier = \"most\"\n");
        assert_eq!(verdict(&most, &values), StatementVerdict::Reproduced);
        let lowest = text.replace("highest", "lowest");
        assert_eq!(verdict(&lowest, &values), StatementVerdict::Differs);
    }

    const FALL: &str = "says = \"\"\nmeasure = \"unfairness\"\narm = \"a\"\nagainst = [\"b\"]\nexpect = \"fall\"\nvalue = 10\n";

    #[test]
    fn a_number_is_reproduced_inside_the_interval_of_ten_draws() {
        let fall = |a, spread| verdict(FALL, &drawn("unfairness", a, 2.0, spread));
        // 10.5 % with 1.96 standard deviations of half a per cent.
        assert_eq!(fall(1.79, 0.01), StatementVerdict::Reproduced);
        // 10.5 % to a hundredth: the paper's 10 stands for at most half a unit more.
        assert_eq!(fall(1.785, 1e-5), StatementVerdict::Direction);
        assert_eq!(fall(1.5, 0.01), StatementVerdict::Direction);
        assert_eq!(fall(2.1, 0.01), StatementVerdict::Differs);
        // An interval this wide contains everything and shows nothing.
        assert_eq!(fall(1.79, 0.3), StatementVerdict::Differs);
    }

    #[test]
    fn fewer_draws_or_other_programs_reproduce_no_number() {
        let once = values(&[("m", "a", "unfairness", 1.8), ("m", "b", "unfairness", 2.0)]);
        assert_eq!(verdict(FALL, &once), StatementVerdict::Direction);
        let ten = drawn("unfairness", 1.8, 2.0, 0.01);
        let of = |genuine| judged(&finding(FALL), &ten, &ten.draws(), genuine).verdict;
        assert_eq!(of(true), StatementVerdict::Reproduced);
        assert_eq!(of(false), StatementVerdict::Direction);
    }

    #[test]
    fn shares_and_ratios_have_no_direction() {
        let text =
            "says = \"\"\nmeasure = \"fast_share\"\narm = \"a\"\nexpect = \"value\"\nvalue = 90\n";
        let share = |a| verdict(text, &drawn("fast_share", a, 0.0, 1.0));
        assert_eq!(share(89.5), StatementVerdict::Reproduced);
        assert_eq!(share(67.0), StatementVerdict::Differs);
    }

    #[test]
    fn words_that_hold_on_the_mean_alone_are_an_order() {
        let text =
            "says = \"\"\nmeasure = \"asp\"\narm = \"a\"\nagainst = [\"b\"]\nexpect = \"higher\"\n";
        assert_eq!(
            verdict(text, &drawn("asp", 2.0, 1.9, 0.05)),
            StatementVerdict::Reproduced
        );
        assert_eq!(
            verdict(text, &drawn("asp", 2.0, 1.9, 0.2)),
            StatementVerdict::Order
        );
        assert_eq!(
            verdict(text, &drawn("asp", 1.8, 1.9, 0.05)),
            StatementVerdict::Differs
        );
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
        assert_eq!(verdict(&same, &values), StatementVerdict::Reproduced);
        assert_eq!(verdict(&other, &values), StatementVerdict::Reproduced);
        let narrowed = other.replace(", \"c\"", "");
        assert_eq!(verdict(&narrowed, &values), StatementVerdict::Differs);
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let text = "says = \"\"\nmeasure = \"sf\"\narm = \"a\"\nexpect = \"value\"\nvalue = 1\n";
        let values = values(&[("m", "a", "asp", 1.0)]);
        assert_eq!(verdict(text, &values), StatementVerdict::LeftOut);
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_mean() {
        let written = [
            (0.0123, "0.0123"),
            (1.2345, "1.23"),
            (123.4, "123"),
            (-7.89, "-7.89"),
        ];
        for (value, text) in written {
            assert_eq!(short(value), text);
        }
        assert_eq!((rounding(9.2), rounding(13.0)), (0.05, 0.5));
    }
}
