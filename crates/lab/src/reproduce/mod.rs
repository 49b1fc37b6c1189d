//! Reproduction of the papers' experiments: cases as data, values from the simulator, verdicts by fixed rules.

mod alone;
mod bars;
mod case;
mod composite;
mod document;
mod found;
mod inputs;
mod judge;
mod measure;
mod mixes;
mod models;
mod moves;
mod occupancy;
mod over_time;
mod programs;
mod run;
mod slices;
mod speed;
mod statements;
mod tools;
mod turns;
mod values;
mod watch;
mod watched;
mod windows;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use countersteer_model::suggestion::suggestion;
use serde::Serialize;

use self::case::{Case, CaseFile, Method, PaperFinding};
pub use self::document::{html, markdown, section};
pub use self::judge::{JudgedStatement, StatementVerdict};
use self::programs::{Cast, StandInTraces};
use self::statements::Statement;
use crate::error::{FaultKind, failure};
use crate::experiment::Fidelity;
use crate::library;

/// All cases with their programs and statements.
pub struct Catalogue {
    papers: Vec<Paper>,
    /// Cases, each with the title of its paper.
    cases: Vec<(String, Case)>,
    /// Statements of all papers.
    statements: Vec<Statement>,
    /// Stand-ins and mixes.
    cast: Cast,
}

/// Paper with its venue and our conclusion.
struct Paper {
    title: String,
    venue: String,
    conclusion: String,
}

/// Case that was run, with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduced {
    pub name: String,
    pub paper: String,
    pub item: String,
    pub title: String,
    pub machine: String,
    /// Source of cache misses in the simulation.
    pub fidelity: &'static str,
    /// Differences from the set-up in the paper.
    pub note: String,
    /// Stand-in of each program of the case, as `program: profile`.
    pub stand_ins: Vec<String>,
    /// Verdict on the case.
    pub verdict: StatementVerdict,
    /// Verdicts on its findings.
    pub findings: Vec<JudgedStatement>,
    /// Sentences with results that depend on the host; documents omit them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_this_host: Vec<String>,
}

/// Entry of the list of cases.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    pub name: String,
    pub paper: String,
    pub item: String,
    pub title: String,
}

impl Catalogue {
    /// Loads the shipped cases.
    ///
    /// # Errors
    /// Fails if a case file is invalid; the error contains the line.
    pub fn shipped() -> anyhow::Result<Self> {
        let mut programs = "";
        let mut mixes = "";
        let mut statements = "";
        let mut papers = Vec::new();
        let mut cases = Vec::new();
        for (name, text) in library::cases() {
            match name {
                "programs.toml" => programs = text,
                "mixes.toml" => mixes = text,
                "statements.tsv" => statements = text,
                _ => {
                    let file: CaseFile =
                        toml::from_str(text).with_context(|| format!("reproduce/{name}"))?;
                    let with_paper = |case: Case| (file.paper.clone(), case.with_cells());
                    cases.extend(file.case.into_iter().map(with_paper));
                    papers.push(Paper {
                        title: file.paper,
                        venue: file.venue,
                        conclusion: file.conclusion,
                    });
                }
            }
        }
        Ok(Self {
            papers,
            cases,
            statements: statements::parse(statements)?,
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

    /// Returns a catalogue that simulates traces of the stand-ins from a folder.
    #[must_use]
    pub fn traced(mut self, fidelity: Fidelity, folder: PathBuf) -> Self {
        self.cast.traced = Some(StandInTraces { fidelity, folder });
        self
    }

    /// Returns the cases whose name or prefix is in `names`, or all cases for the name `all`.
    ///
    /// # Errors
    /// Fails if there is no case for a name.
    pub fn named(&self, names: &[String]) -> anyhow::Result<Vec<&(String, Case)>> {
        let mut wanted = BTreeSet::new();
        for name in names {
            let fits = |case: &Case| {
                name == "all" || case.name == *name || case.name.starts_with(&format!("{name}-"))
            };
            let found = (0..self.cases.len()).filter(|row| fits(&self.cases[*row].1));
            let found: Vec<usize> = found.collect();
            if found.is_empty() {
                let near = suggestion(name, self.cases.iter().map(|(_, case)| &*case.name));
                let why =
                    format!("there is no case `{name}`{near}; `steer reproduce list` names them");
                return Err(failure(FaultKind::Usage, why));
            }
            wanted.extend(found);
        }
        Ok(wanted.into_iter().map(|row| &self.cases[row]).collect())
    }

    /// Runs a case and judges its findings.
    ///
    /// # Errors
    /// Fails with the errors of the simulator, and if a name in the case does not exist.
    pub fn run(&self, paper: &str, case: &Case) -> anyhow::Result<Reproduced> {
        let values =
            measure::measure(case, &self.cast).with_context(|| format!("case {}", case.name))?;
        let genuine = |finding: &PaperFinding| match case.method {
            // Models and simulators are no programs of the paper.
            Method::Models { .. } | Method::Inputs { .. } | Method::Speed { .. } => false,
            Method::Signature { ref program } => self.cast.is_itself(program),
            _ => self.cast.genuine(finding, values.rows()),
        };
        let findings = judge::judge(case, &values, &genuine);
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
            fidelity: self.fidelity().name(),
            note,
            stand_ins: self.stand_ins(case)?,
            verdict,
            findings,
            on_this_host: speed::words(case, &values),
        })
    }

    fn fidelity(&self) -> Fidelity {
        let traced = self.cast.traced.as_ref();
        traced.map_or(Fidelity::Analytic, |traced| traced.fidelity)
    }

    /// Returns the names of all programs in these mixes. Fails if a mix does not exist.
    fn members(&self, mixes: &[String]) -> anyhow::Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for mix in mixes {
            let members = &self.cast.mix(mix)?.members;
            all.extend(members.iter().map(|(program, _)| program.clone()));
        }
        Ok(all)
    }

    fn stand_ins(&self, case: &Case) -> anyhow::Result<Vec<String>> {
        let programs: BTreeSet<String> = match &case.method {
            Method::Mixes { mixes, .. } | Method::Occupancy { mixes, .. } => self.members(mixes)?,
            Method::Speed { mix } => self.members(std::slice::from_ref(mix))?,
            Method::Models { .. } => BTreeSet::new(),
            Method::Signature { program } => [program.clone()].into(),
            Method::Windows { programs, .. }
            | Method::Alone { programs, .. }
            | Method::Pairs { programs, .. }
            | Method::Readers { programs, .. }
            | Method::Turns { programs, .. }
            | Method::OverTime { programs, .. }
            | Method::CacheSizes { programs, .. } => {
                self.cast.expand(programs).into_iter().collect()
            }
            Method::Inputs { .. } | Method::NotAttempted { .. } => BTreeSet::new(),
        };
        programs
            .iter()
            .map(|program| {
                let by = self.cast.stand_in(program)?;
                let file = by.profile.rsplit('/').next().unwrap_or(&by.profile);
                let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
                let mark = if by.is_itself() { "" } else { " (stand-in)" };
                Ok(format!("{program} by {name}{mark}"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::programs::short;
    use super::values::MEASURES;
    use super::*;

    /// All rows of a case.
    fn rows(catalogue: &Catalogue, case: &Case) -> BTreeSet<String> {
        match &case.method {
            Method::Mixes { mixes, .. } | Method::Occupancy { mixes, .. } => {
                let mut rows = BTreeSet::new();
                for mix in mixes {
                    rows.insert(mix.clone());
                    let members = &catalogue.cast.mix(mix).unwrap().members;
                    rows.extend(members.iter().map(|(p, _)| format!("{mix}/{}", short(p))));
                }
                rows
            }
            Method::Alone { programs, .. }
            | Method::Windows { programs, .. }
            | Method::Readers { programs, .. }
            | Method::Turns { programs, .. }
            | Method::OverTime { programs, .. }
            | Method::CacheSizes { programs, .. } => {
                catalogue.cast.expand(programs).into_iter().collect()
            }
            Method::Models { .. } => {
                let machine = crate::experiment::machine(&case.machine).unwrap();
                let types = &machine.topology.core_types;
                types.iter().map(|t| t.name.clone()).collect()
            }
            Method::Pairs { programs, .. } => {
                let all = catalogue.cast.expand(programs);
                let pair = |a: &String| all.iter().map(|b| format!("{a}+{b}")).collect::<Vec<_>>();
                all.iter().flat_map(pair).collect()
            }
            Method::Inputs { profiles, .. } => profiles.keys().cloned().collect(),
            Method::Speed { .. } => speed::ROWS.map(str::to_owned).into(),
            Method::Signature { .. } => inputs::signature_rows().into_iter().collect(),
            Method::NotAttempted { .. } => BTreeSet::new(),
        }
    }

    fn arms(case: &Case) -> BTreeSet<String> {
        match &case.method {
            Method::Mixes { arms, .. } => arms.keys().cloned().collect(),
            Method::Windows { .. } => ["ratio".to_owned()].into(),
            Method::Models { target } => [target.clone()].into(),
            Method::Alone { groups, .. } => {
                groups.iter().cloned().chain(["ratio".to_owned()]).collect()
            }
            Method::Readers { .. } => tools::READERS.map(|r| r.arm.to_owned()).into(),
            Method::Turns { .. } => turns::ARMS.map(str::to_owned).into(),
            Method::OverTime { groups, .. } => groups.iter().cloned().collect(),
            Method::Occupancy { .. } => occupancy::READERS.map(|r| r.arm.to_owned()).into(),
            Method::Speed { .. } => [speed::ARM.to_owned()].into(),
            Method::Signature { program } => [short(program).to_owned()].into(),
            Method::Pairs { .. } => ["pair".to_owned()].into(),
            Method::CacheSizes { sizes_kib, .. } => sizes_kib.iter().map(f64::to_string).collect(),
            Method::Inputs { profiles, .. } => {
                let names = profiles.values().flatten().cloned();
                names.chain(["inputs".to_owned()]).collect()
            }
            Method::NotAttempted { .. } => BTreeSet::new(),
        }
    }

    fn check(
        case: &Case,
        finding: &PaperFinding,
        rows: &BTreeSet<String>,
        arms: &BTreeSet<String>,
    ) {
        let at = format!("{}: {}", case.name, finding.says);
        assert!(MEASURES.iter().any(|m| m.name == finding.measure), "{at}");
        assert!(arms.contains(&finding.arm), "{at}: arm {}", finding.arm);
        for arm in &finding.against {
            assert!(arms.contains(arm), "{at}: arm {arm}");
        }
        for row in finding.rows.iter().chain(&finding.then) {
            assert!(rows.contains(row), "{at}: row {row}");
        }
    }

    #[test]
    fn every_finding_names_rows_arms_and_measures_that_its_case_has() {
        let catalogue = Catalogue::shipped().unwrap();
        assert!(catalogue.cases.len() >= 40);
        for (_, case) in &catalogue.cases {
            let (rows, arms) = (rows(&catalogue, case), arms(case));
            for finding in &case.finding {
                check(case, finding, &rows, &arms);
            }
        }
    }

    #[test]
    fn every_case_names_a_shipped_machine_and_shipped_profiles() {
        let catalogue = Catalogue::shipped().unwrap();
        for (_, case) in &catalogue.cases {
            if !case.machine.is_empty() {
                crate::experiment::machine(&case.machine).unwrap();
            }
            catalogue.stand_ins(case).unwrap();
        }
        for (program, by) in catalogue.cast.stand_ins() {
            assert!(library::shipped_profile(&by.profile).is_some(), "{program}");
        }
    }

    #[test]
    fn frequency_asymmetry_reproduces_twice_alike() {
        let catalogue = Catalogue::shipped().unwrap();
        let cases = catalogue.named(&["pmctrack-fig6a".to_owned()]).unwrap();
        let (paper, case) = cases[0];
        let once = serde_json::to_string(&catalogue.run(paper, case).unwrap()).unwrap();
        let again = serde_json::to_string(&catalogue.run(paper, case).unwrap()).unwrap();
        assert_eq!(once, again);
        assert!(once.contains("\"verdict\":\"reproduced\""), "{once}");
    }

    #[test]
    fn stand_ins_are_marked_in_each_case() {
        let catalogue = Catalogue::shipped().unwrap();
        let played = |name: &str| {
            let (_, case) = catalogue.named(&[name.to_owned()]).unwrap()[0];
            catalogue.stand_ins(case).unwrap().join(", ")
        };
        assert!(played("metasched-fig3").contains("parsec.canneal by chase (stand-in)"));
        assert!(played("hass-fig3").starts_with("cpu2000.art by art-2000, "));
        assert!(played("pmcsched-fig2").contains(" by 505.mcf_r"));
    }

    #[test]
    fn verdicts_are_the_same_with_ten_and_with_forty_seeds() {
        let catalogue = Catalogue::shipped().unwrap();
        for name in ["hass-intel", "hass-rest-intel-2-2", "hass-table2-intel-2-2"] {
            let verdicts = |wanted: u64| {
                let (paper, case) = catalogue.named(&[name.to_owned()]).unwrap()[0];
                let mut case = case.clone();
                if let Method::Mixes { seeds, .. } = &mut case.method {
                    *seeds = wanted;
                }
                let findings = catalogue.run(paper, &case).unwrap().findings;
                let verdict = |f: &JudgedStatement| (f.says.clone(), f.verdict);
                findings.iter().map(verdict).collect::<Vec<_>>()
            };
            assert_eq!(verdicts(10), verdicts(40), "{name}");
        }
    }

    #[test]
    fn a_name_begins_a_family_of_cases() {
        let catalogue = Catalogue::shipped().unwrap();
        assert!(catalogue.named(&["hass".to_owned()]).unwrap().len() >= 10);
        assert!(catalogue.named(&["has".to_owned()]).is_err());
        let both = ["hass-table2", "hass-table2-intel-2-2"].map(str::to_owned);
        assert!(catalogue.named(&both).is_ok(), "the first has the second");
    }
}
