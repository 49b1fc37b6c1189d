//! Grids: large sweeps of experiments described by a file, which any number of processes run chunk by chunk.
//!
//! Input: a TOML file with the names of machines, workloads and policies, and the number of random mixes of recorded programs.
//! Output: a folder with two Parquet files per chunk of experiments (`scores-N.parquet`, `programs-N.parquet`). The files of a
//! chunk depend only on the grid and N, and appear atomically. So chunks may run in any order, on any machine, and again after a
//! kill.
//!
//! ```
//! use countersteer_lab::grid::Grid;
//!
//! let text = "machines = ['quickia-2b-2s']\npolicies = ['linux', 'hsf']\nmixes = { count = 3, programs = 4 }\noptions = { rounds = 1 }";
//! let grid = Grid::parse("grid.toml", text)?;
//! assert_eq!((grid.len(), grid.chunks()), (6, 1));
//! assert_eq!(grid.run(0)?.len(), 6);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use countersteer_files::read;
use countersteer_model::profile::Profile;
use countersteer_model::textfile::{TextError, parse_toml};
use countersteer_model::workload::{Workload, WorkloadProgram};
use countersteer_report::table::{CompareRun, program_columns, score_columns};
use countersteer_report::{write_atomically, write_table};
use countersteer_sim::progress::Traces;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::{FaultKind, failure};
use crate::experiment::{self, Experiment, LoadedMachine, SimOptions};
use crate::library::{self, LibraryText, cannot_read};
use crate::plan::{self, Loaded};

/// Name of the copy of the grid's file in a folder of results.
const KEPT: &str = "grid.toml";

/// Contents of a grid's file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GridText {
    machines: Vec<String>,
    #[serde(default)]
    workloads: Vec<String>,
    policies: Vec<String>,
    /// Number of seeds; the first is 1.
    #[serde(default = "one")]
    seeds: u64,
    /// Number of experiments per chunk.
    #[serde(default = "chunk")]
    chunk: usize,
    #[serde(default)]
    mixes: Mixes,
    #[serde(default)]
    options: SimOptions,
}

/// Random mixes of the shipped recorded programs; each mix is a workload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mixes {
    count: u64,
    programs: usize,
    /// Factor on the length of the programs' runs.
    #[serde(default = "scale")]
    scale: f64,
    /// Base seed of the mixes: mix N is drawn with this seed plus N.
    #[serde(default)]
    seed: u64,
}

const fn one() -> u64 {
    1
}

const fn chunk() -> usize {
    64
}

const fn scale() -> f64 {
    1.0
}

/// Grid of experiments: every policy on every machine with every workload and seed.
pub struct Grid {
    text: String,
    written: GridText,
    machines: Vec<Arc<LoadedMachine>>,
    workloads: Vec<Arc<Loaded>>,
    /// Profiles of the recorded programs from which mixes are drawn.
    programs: Vec<Arc<Profile>>,
}

impl Grid {
    /// Parses the file of a grid, and reads the files that it names.
    ///
    /// # Errors
    /// Fails on a syntax error or an unknown field, with the line; if a name does not exist; and if a machine cannot run a
    /// policy.
    pub fn parse(path: &str, text: &str) -> anyhow::Result<Self> {
        let written: GridText = parse_toml(path, text)?;
        let refuse = |message: &str| TextError::value(path, message);
        if written.chunk == 0 || written.seeds == 0 {
            return Err(refuse("`chunk` and `seeds` must be at least 1").into());
        }
        if written.workloads.is_empty() && written.mixes.count == 0 {
            return Err(
                refuse("name `workloads`, or `mixes = { count = 100, programs = 16 }`").into(),
            );
        }
        let machines = written
            .machines
            .iter()
            .map(|name| experiment::machine(name));
        let machines: Vec<_> = machines.collect::<Result<_, _>>()?;
        for machine in &machines {
            for policy in &written.policies {
                countersteer_policies::parse(policy, &machine.topology)?;
            }
        }
        let load = |name: &String| plan::load_recorded(name).map(Arc::new);
        let workloads = written
            .workloads
            .iter()
            .map(load)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            machines,
            workloads,
            programs: recorded(written.mixes.count > 0)?,
            written,
        })
    }

    /// Returns the number of experiments in the grid.
    #[must_use]
    pub fn len(&self) -> usize {
        self.machines.len() * self.all_workloads() * self.written.policies.len() * self.seeds()
    }

    /// True if the grid has no experiments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of chunks in the grid.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.len().div_ceil(self.written.chunk)
    }

    /// Runs the experiments of a chunk on this thread. Returns their scores in the order of the grid.
    ///
    /// # Errors
    /// Fails with the errors of [`Experiment::run`].
    pub fn run(&self, chunk: usize) -> anyhow::Result<Vec<CompareRun>> {
        self.range(chunk)
            .map(|row| {
                let experiment = self.experiment(row);
                let finished = experiment
                    .run()
                    .with_context(|| format!("experiment {row}"))?;
                Ok(experiment.scored(&finished))
            })
            .collect()
    }

    /// Runs a chunk and writes its files to a folder. Does nothing if the files exist.
    ///
    /// # Errors
    /// Fails with the errors of [`Grid::run`], and if a file cannot be written.
    pub fn run_into(&self, folder: &Path, chunk: usize) -> anyhow::Result<()> {
        if is_done(folder, chunk) {
            return Ok(());
        }
        let runs = self.run(chunk)?;
        let [scores, programs] = files(folder, chunk);
        write_table(&scores, &score_columns(&runs)?)?;
        // This file is written last, so a chunk is complete if it exists.
        write_table(&programs, &program_columns(&runs)?)?;
        Ok(())
    }

    /// Prepares a folder for results, or checks that its results belong to this grid.
    ///
    /// # Errors
    /// Fails if the folder has results of another grid, or cannot be written.
    pub fn open(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let kept = folder.join(KEPT);
        match read::text(&kept) {
            Ok(text) if text == self.text => Ok(()),
            Ok(_) => Err(failure(
                FaultKind::Usage,
                format!(
                    "{} is another grid: give an empty folder, or delete this one",
                    kept.display()
                ),
            )),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(write_atomically(&kept, self.text.as_bytes())?)
            }
            Err(error) => Err(error).with_context(|| cannot_read(&kept)),
        }
    }

    /// Returns the chunks without files in a folder, from every `shards`-th chunk beginning with `shard`.
    #[must_use]
    pub fn missing(&self, folder: &Path, shard: usize, shards: usize) -> Vec<usize> {
        let own = (shard..self.chunks()).step_by(shards.max(1));
        own.filter(|chunk| !is_done(folder, *chunk)).collect()
    }

    fn range(&self, chunk: usize) -> Range<usize> {
        let start = chunk * self.written.chunk;
        start..(start + self.written.chunk).min(self.len())
    }

    fn seeds(&self) -> usize {
        usize::try_from(self.written.seeds).unwrap_or(usize::MAX)
    }

    fn all_workloads(&self) -> usize {
        self.workloads.len() + usize::try_from(self.written.mixes.count).unwrap_or(usize::MAX)
    }

    /// Returns the experiment with an index. The order is machine, workload, policy, seed; the seed changes fastest.
    fn experiment(&self, row: usize) -> Experiment {
        let (row, seed) = (row / self.seeds(), row % self.seeds());
        let policies = &self.written.policies;
        let (row, policy) = (row / policies.len(), row % policies.len());
        let machine = row / self.all_workloads();
        let workload = row % self.all_workloads();
        Experiment {
            machine: Arc::clone(&self.machines[machine]),
            workload: self.workload(workload),
            policy: policies[policy].clone(),
            seed: seed as u64 + 1,
            options: self.written.options.clone(),
            detail: None,
        }
    }

    fn workload(&self, number: usize) -> Arc<Loaded> {
        match self.workloads.get(number) {
            Some(loaded) => Arc::clone(loaded),
            None => Arc::new(self.mix((number - self.workloads.len()) as u64 + 1)),
        }
    }

    fn mix(&self, number: u64) -> Loaded {
        let mixes = &self.written.mixes;
        let mut rng = rand_pcg::Pcg64::seed_from_u64(mixes.seed.wrapping_add(number));
        let draw = |place: usize| {
            let profile = &self.programs[rng.random_range(0..self.programs.len())];
            let program = WorkloadProgram {
                name: Some(format!("{}-{place}", profile.name())),
                scale: mixes.scale,
                ..WorkloadProgram::default()
            };
            (program, Arc::clone(profile))
        };
        let name = format!("mix-{number}");
        Loaded {
            text: LibraryText {
                path: format!("{name}.toml"),
                text: String::new(),
                shipped: false,
            },
            name,
            programs: (1..=mixes.programs).map(draw).collect(),
            settings: Workload::default(),
            profiles: BTreeMap::new(),
            traces: Traces::default(),
            alone: Arc::default(),
        }
    }
}

fn recorded(wanted: bool) -> anyhow::Result<Vec<Arc<Profile>>> {
    let texts = if wanted {
        library::recorded()
    } else {
        Vec::new()
    };
    let parse = |text: &LibraryText| Ok(Arc::new(Profile::parse(&text.path, &text.text)?));
    texts.iter().map(parse).collect()
}

fn files(folder: &Path, chunk: usize) -> [std::path::PathBuf; 2] {
    ["scores", "programs"].map(|table| folder.join(format!("{table}-{chunk:05}.parquet")))
}

fn is_done(folder: &Path, chunk: usize) -> bool {
    files(folder, chunk).iter().all(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "machines = ['quickia-2b-2s', 'core2-quad']\npolicies = ['linux', 'aarr']\nseeds = 2\nchunk = 5\n\
                        mixes = { count = 3, programs = 4, seed = 7 }\noptions = { rounds = 1 }";

    #[test]
    fn chunks_give_the_same_files_in_any_order_and_after_an_interruption() {
        let grid = Grid::parse("grid.toml", TEXT).unwrap();
        assert_eq!((grid.len(), grid.chunks()), (24, 5));
        let forward = tempfile::tempdir().unwrap();
        let backward = tempfile::tempdir().unwrap();
        for chunk in 0..5 {
            grid.run_into(forward.path(), chunk).unwrap();
        }
        // One of a chunk's two files, as a kill between both leaves it.
        grid.run_into(backward.path(), 3).unwrap();
        std::fs::remove_file(&files(backward.path(), 3)[1]).unwrap();
        grid.open(backward.path()).unwrap();
        assert_eq!(grid.missing(backward.path(), 0, 1).len(), 5);
        for shard in [1, 0] {
            for chunk in grid.missing(backward.path(), shard, 2) {
                grid.run_into(backward.path(), chunk).unwrap();
            }
        }
        assert!(grid.missing(backward.path(), 0, 1).is_empty());
        for chunk in 0..5 {
            let read = |folder: &Path| files(folder, chunk).map(|f| std::fs::read(f).unwrap());
            assert!(
                read(forward.path()) == read(backward.path()),
                "chunk {chunk}"
            );
        }
    }

    #[test]
    fn a_mix_is_the_same_under_every_policy_and_differs_from_the_next() {
        let grid = Grid::parse("grid.toml", TEXT).unwrap();
        let runs: Vec<CompareRun> = (0..2).flat_map(|chunk| grid.run(chunk).unwrap()).collect();
        let names = |run: &CompareRun| {
            let names = run.programs.iter().map(|p| p.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!((&*runs[0].policy, &*runs[2].policy), ("linux", "aarr"));
        assert_eq!(names(&runs[0]), names(&runs[2]));
        assert_ne!(names(&runs[0]), names(&runs[4]));
    }

    #[test]
    fn a_folder_of_another_grid_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        Grid::parse("grid.toml", TEXT)
            .unwrap()
            .open(folder.path())
            .unwrap();
        let other = TEXT.replace("seeds = 2", "seeds = 3");
        let other = Grid::parse("grid.toml", &other).unwrap();
        assert!(
            other
                .open(folder.path())
                .unwrap_err()
                .to_string()
                .contains("another grid")
        );
        assert!(Grid::parse("g.toml", "machines = []\npolicies = []").is_err());
    }
}
