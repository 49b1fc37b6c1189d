//! Statements of the papers: every number and every ordering, with its findings or the reason for omitting it.
//!
//! Input: `reproduce/statements.tsv`. Output: numbers of verdicts by paper, and the list of omitted
//! statements.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Reproduced;
use super::judge::StatementVerdict;
use crate::error::{FaultKind, failure};

/// Statement of a paper, with its findings or the reason for omitting it.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// Paper, given by the prefix of its cases' names.
    pub paper: String,
    /// Figure, table or section of the paper.
    pub item: String,
    /// Text of the statement.
    pub says: String,
    /// Machine and workload.
    pub on: String,
    /// Policy.
    pub policy: String,
    /// Number or ordering that is stated.
    pub value: String,
    pub by: Coverage,
}

/// Coverage of a statement by cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Cases that judge the statement, each with the number of its finding, from 1.
    Findings(Vec<(String, usize)>),
    /// Reason for omitting the statement.
    LeftOut(String),
}

/// Parses the table of statements.
///
/// # Errors
/// Fails if a line does not have seven cells, or if the number of a finding is invalid.
pub fn parse(text: &str) -> anyhow::Result<Vec<Statement>> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(nth, line)| {
            let wrong = || {
                let at = nth + 1;
                failure(
                    FaultKind::BadInput,
                    format!("reproduce/statements.tsv:{at}: seven cells, the last of findings or a reason"),
                )
            };
            let cells: Vec<&str> = line.split('\t').collect();
            let [paper, item, says, on, policy, value, by] = cells[..] else {
                return Err(wrong());
            };
            Ok(Statement {
                paper: paper.to_owned(),
                item: item.to_owned(),
                says: says.to_owned(),
                on: on.to_owned(),
                policy: policy.to_owned(),
                value: value.to_owned(),
                by: Coverage::parse(by).ok_or_else(wrong)?,
            })
        })
        .collect()
}

impl Coverage {
    fn parse(text: &str) -> Option<Self> {
        if let Some(why) = text.strip_prefix("- ") {
            return Some(Self::LeftOut(why.to_owned()));
        }
        let finding = |part: &str| {
            let (case, nth) = part.rsplit_once('/')?;
            Some((case.to_owned(), nth.parse().ok()?))
        };
        let findings = text.split(' ').map(finding);
        findings.collect::<Option<_>>().map(Self::Findings)
    }
}

impl Statement {
    /// Returns the paper, item, text and value of the statement as one line.
    fn words(&self) -> String {
        let Self {
            paper, item, says, ..
        } = self;
        let about = [self.on.as_str(), self.policy.as_str()];
        let about = about.into_iter().filter(|part| !part.is_empty());
        let about = about.collect::<Vec<_>>().join(", ");
        format!("{paper}, {item}: {says} ({about}): {}", self.value)
    }

    /// Returns the worst verdict of the statement's findings; `None` if one of their cases was not run.
    fn verdict(&self, cases: &[Reproduced]) -> Option<StatementVerdict> {
        let Coverage::Findings(findings) = &self.by else {
            return Some(StatementVerdict::LeftOut);
        };
        let of = |(case, nth): &(String, usize)| {
            let case = cases.iter().find(|c| c.name == *case)?;
            Some(case.findings.get(nth.checked_sub(1)?)?.verdict)
        };
        let verdicts: Option<Vec<StatementVerdict>> = findings.iter().map(of).collect();
        verdicts?.into_iter().min()
    }
}

/// Returns the number of statements by paper and verdict, in the order of [`StatementVerdict::ALL`].
fn counts(statements: &[Statement], cases: &[Reproduced]) -> BTreeMap<String, [usize; 5]> {
    let mut counts: BTreeMap<String, [usize; 5]> = BTreeMap::new();
    for statement in statements {
        let Some(verdict) = statement.verdict(cases) else {
            continue;
        };
        let row = StatementVerdict::ALL.iter().position(|v| *v == verdict);
        let of = counts.entry(statement.paper.clone()).or_default();
        of[row.unwrap_or_default()] += 1;
    }
    counts
}

/// Writes a table with one row per paper.
pub(crate) fn overview(text: &mut String, statements: &[Statement], cases: &[Reproduced]) {
    let heads = StatementVerdict::ALL
        .map(StatementVerdict::words)
        .join(" | ");
    let _ = writeln!(
        text,
        "| paper | statements | {heads} |\n|---|---|---|---|---|---|---|"
    );
    let counts = counts(statements, cases);
    let mut all = [0; 5];
    for (paper, of) in &counts {
        row(text, paper, *of);
        all.iter_mut().zip(of).for_each(|(sum, n)| *sum += n);
    }
    if counts.len() > 1 {
        row(text, "all", all);
    }
}

fn row(text: &mut String, paper: &str, of: [usize; 5]) {
    let sum: usize = of.iter().sum();
    let cells = of.map(|n| n.to_string()).join(" | ");
    let _ = writeln!(text, "| {paper} | {sum} | {cells} |");
}

/// Writes the statements without findings, by reason.
pub fn left_out(text: &mut String, statements: &[Statement]) {
    let mut by_reason: BTreeMap<&str, Vec<&Statement>> = BTreeMap::new();
    for statement in statements {
        if let Coverage::LeftOut(why) = &statement.by {
            by_reason.entry(why).or_default().push(statement);
        }
    }
    text.push_str("\n## Left out\n\nStatements that no case judges, by reason.\n");
    for (why, of) in by_reason {
        let _ = writeln!(text, "\n- {why} ({}):", of.len());
        for statement in of {
            let _ = writeln!(text, "  - {}", statement.words());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::Catalogue;

    #[test]
    fn every_statement_of_the_papers_is_judged_or_left_out_with_a_reason() {
        let catalogue = Catalogue::shipped().unwrap();
        let statements = &catalogue.statements;
        assert_eq!(statements.len(), 500);
        let mut judged = 0;
        for statement in statements {
            let Coverage::Findings(findings) = &statement.by else {
                continue;
            };
            judged += 1;
            for (name, nth) in findings {
                let case = catalogue.cases.iter().find(|(_, case)| case.name == *name);
                let (_, case) = case.unwrap_or_else(|| panic!("no case {name}"));
                assert!((1..=case.finding.len()).contains(nth), "{name}/{nth}");
                assert!(name.starts_with(&statement.paper), "{name}");
            }
        }
        // Omitted statements are counted, so that no statement disappears unnoticed.
        assert_eq!(statements.len() - judged, LEFT_OUT);
    }

    const LEFT_OUT: usize = 151;
}
