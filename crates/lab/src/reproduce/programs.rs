//! Stand-ins: which shipped profile plays which program of a paper, and the papers' mixes.
//!
//! Input: `reproduce/programs.toml` and `reproduce/mixes.toml`. Output: workload texts that the simulator runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context;
use serde::Deserialize;

use crate::error::{Kind, told};
use crate::plan::{self, Loaded};

/// Instructions that every thread of a program runs between start and completion. The papers' programs run for minutes;
/// recorded ones run for a second or less, so they are stretched, phases and all.
const INSTRUCTIONS_PER_THREAD: f64 = 20e9;

/// A program of a paper and who plays it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandIn {
    /// Path of a shipped profile below `profiles/`.
    pub profile: String,
    /// What kind of program it is.
    pub class: String,
    /// A program of today that does the same work.
    pub like: String,
    /// Where the class is from.
    pub basis: String,
    /// Share of the work that one thread does alone.
    pub serial_share: Option<f64>,
}

/// A mix as a paper lists it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Where the paper lists it.
    pub item: String,
    /// Programs and their threads.
    pub members: Vec<(String, u32)>,
    /// What the paper leaves open.
    #[serde(default)]
    pub uncertain: String,
}

#[derive(Deserialize)]
struct Group {
    programs: Vec<String>,
}

#[derive(Deserialize)]
struct ProgramFile {
    program: BTreeMap<String, StandIn>,
}

#[derive(Deserialize)]
struct MixFile {
    mix: BTreeMap<String, Mix>,
    group: BTreeMap<String, Group>,
}

/// All stand-ins and mixes.
pub struct Cast {
    programs: BTreeMap<String, StandIn>,
    mixes: BTreeMap<String, Mix>,
    groups: BTreeMap<String, Group>,
}

/// One member of a workload to be made.
pub struct Member<'a> {
    pub program: &'a str,
    pub threads: u32,
    pub copies: u32,
    /// Where it starts.
    pub launch_on: Option<&'a str>,
}

impl Cast {
    /// Parses the two files.
    pub fn parse(programs: &str, mixes: &str) -> anyhow::Result<Self> {
        let programs: ProgramFile = toml::from_str(programs).context("reproduce/programs.toml")?;
        let mixes: MixFile = toml::from_str(mixes).context("reproduce/mixes.toml")?;
        Ok(Self {
            programs: programs.program,
            mixes: mixes.mix,
            groups: mixes.group,
        })
    }

    /// All stand-ins by the name of the program they play.
    pub fn stand_ins(&self) -> impl Iterator<Item = (&String, &StandIn)> {
        self.programs.iter()
    }

    /// All mixes by name.
    pub fn mixes(&self) -> impl Iterator<Item = (&String, &Mix)> {
        self.mixes.iter()
    }

    pub fn mix(&self, name: &str) -> anyhow::Result<&Mix> {
        let known = self.mixes.get(name);
        known.ok_or_else(|| told(Kind::Missing, format!("mixes.toml has no mix `{name}`")))
    }

    pub fn stand_in(&self, program: &str) -> anyhow::Result<&StandIn> {
        let known = self.programs.get(program);
        known.ok_or_else(|| {
            let why = format!("programs.toml has no program `{program}`");
            told(Kind::Missing, why)
        })
    }

    /// Programs by name, groups of programs replaced by their members.
    pub fn expand(&self, names: &[String]) -> Vec<String> {
        let members = |name: &String| match self.groups.get(name) {
            Some(group) => group.programs.clone(),
            None => vec![name.clone()],
        };
        names.iter().flat_map(members).collect()
    }

    /// The workload of some members; programs are named without their suite.
    pub fn workload(&self, name: &str, members: &[Member<'_>]) -> anyhow::Result<Arc<Loaded>> {
        let mut text = String::new();
        for member in members {
            let stand_in = self.stand_in(member.program)?;
            let scale = scale(stand_in, member.threads)?;
            let short = short(member.program);
            let profile = &stand_in.profile;
            write!(
                text,
                "[[program]]\nname = \"{short}\"\nprofile = \"../profiles/{profile}\"\nthreads = {}\ncopies = {}\nscale = {scale}\n",
                member.threads, member.copies
            )?;
            if member.threads > 1 {
                writeln!(
                    text,
                    "serial_share = {}",
                    stand_in.serial_share.unwrap_or(0.0)
                )?;
            }
            if let Some(place) = member.launch_on {
                writeln!(text, "launch_on = \"{place}\"")?;
            }
        }
        Ok(Arc::new(plan::of_text(name, text)?))
    }
}

/// A program's name without its suite: `mcf` of `cpu2006.mcf`.
pub fn short(program: &str) -> &str {
    program.split_once('.').map_or(program, |(_, name)| name)
}

fn scale(stand_in: &StandIn, threads: u32) -> anyhow::Result<f64> {
    let text = crate::library::shipped_profile(&stand_in.profile).ok_or_else(|| {
        let why = format!("there is no shipped profile `{}`", stand_in.profile);
        told(Kind::Missing, why)
    })?;
    let profile = countersteer_core::profile::Profile::parse(&text.path, &text.text)?;
    Ok(INSTRUCTIONS_PER_THREAD * f64::from(threads) / profile.instructions() as f64)
}
