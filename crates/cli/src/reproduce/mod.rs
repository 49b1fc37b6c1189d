//! The papers' experiments, run again: cases as data, values from the simulator, verdicts by fixed rules.

mod case;
mod document;
mod judge;
mod measure;
mod programs;
mod values;

use std::collections::BTreeSet;

use anyhow::Context;
use serde::Serialize;

use self::case::{Case, CaseFile, Method};
pub use self::document::{html, markdown, section};
pub use self::judge::{Judged, Verdict};
use self::programs::Cast;
use crate::error::{Kind, told};
use crate::library;

/// All cases and what they are made of.
pub struct Catalogue {
    cases: Vec<(String, Case)>,
    cast: Cast,
}

/// A case with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduced {
    pub name: String,
    pub paper: String,
    pub item: String,
    pub title: String,
    pub machine: String,
    pub note: String,
    /// `program: profile`, for every program of the case.
    pub stand_ins: Vec<String>,
    pub verdict: Verdict,
    pub findings: Vec<Judged>,
}

/// A line of the list of cases.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    pub name: String,
    pub paper: String,
    pub item: String,
    pub title: String,
}

impl Catalogue {
    /// The shipped cases.
    ///
    /// # Errors
    /// A file that is no case file, with its line.
    pub fn shipped() -> anyhow::Result<Self> {
        let mut programs = "";
        let mut mixes = "";
        let mut cases = Vec::new();
        for (name, text) in library::cases() {
            match name {
                "programs.toml" => programs = text,
                "mixes.toml" => mixes = text,
                _ => {
                    let file: CaseFile =
                        toml::from_str(text).with_context(|| format!("reproduce/{name}"))?;
                    cases.extend(file.case.into_iter().map(|c| (file.paper.clone(), c)));
                }
            }
        }
        Ok(Self {
            cases,
            cast: Cast::parse(programs, mixes)?,
        })
    }

    pub fn list(&self) -> Vec<Listed> {
        let listed = |(paper, case): &(String, Case)| Listed {
            name: case.name.clone(),
            paper: paper.clone(),
            item: case.item.clone(),
            title: case.title.clone(),
        };
        self.cases.iter().map(listed).collect()
    }

    /// The cases whose name is, or begins with, one of `names`; all for `all`.
    ///
    /// # Errors
    /// A name that no case has.
    pub fn named(&self, names: &[String]) -> anyhow::Result<Vec<&(String, Case)>> {
        let mut wanted = BTreeSet::new();
        for name in names {
            let fits = |case: &Case| {
                name == "all" || case.name == *name || case.name.starts_with(&format!("{name}-"))
            };
            let found = (0..self.cases.len()).filter(|row| fits(&self.cases[*row].1));
            let before = wanted.len();
            wanted.extend(found);
            if wanted.len() == before {
                let why = format!("there is no case `{name}`; `steer reproduce list` names them");
                return Err(told(Kind::Missing, why));
            }
        }
        Ok(wanted.into_iter().map(|row| &self.cases[row]).collect())
    }

    /// Runs a case.
    ///
    /// # Errors
    /// Those of the simulator, and names that the case has wrong.
    pub fn run(&self, paper: &str, case: &Case) -> anyhow::Result<Reproduced> {
        let values =
            measure::measure(case, &self.cast).with_context(|| format!("case {}", case.name))?;
        let findings = judge::judge(case, &values);
        let verdict = judge::overall(case, &findings);
        let note = match &case.method {
            Method::NotAttempted { reason } => reason.clone(),
            _ => case.note.clone(),
        };
        Ok(Reproduced {
            name: case.name.clone(),
            paper: paper.to_owned(),
            item: case.item.clone(),
            title: case.title.clone(),
            machine: case.machine.clone(),
            note,
            stand_ins: self.stand_ins(case)?,
            verdict,
            findings,
        })
    }

    fn stand_ins(&self, case: &Case) -> anyhow::Result<Vec<String>> {
        let programs: BTreeSet<String> = match &case.method {
            Method::Mixes { mixes, .. } => {
                let mut all = BTreeSet::new();
                for mix in mixes {
                    let members = &self.cast.mix(mix)?.members;
                    all.extend(members.iter().map(|(program, _)| program.clone()));
                }
                all
            }
            Method::Alone { programs, .. }
            | Method::Pairs { programs, .. }
            | Method::CacheSizes { programs, .. } => {
                self.cast.expand(programs).into_iter().collect()
            }
            Method::NotAttempted { .. } => BTreeSet::new(),
        };
        programs
            .iter()
            .map(|program| {
                let profile = &self.cast.stand_in(program)?.profile;
                let file = profile.rsplit('/').next().unwrap_or(profile);
                let name = file.split('.').next().unwrap_or(file);
                Ok(format!("{program} by {name}"))
            })
            .collect()
    }
}
