//! Profile of a whole run at native speed, as a value: counters of the run, and a recorded window of its first instructions.
//!
//! Input: a [`Native`], which names a program. The program runs twice: at full speed under counters, and under the recorder up to a
//! number of instructions. Output: a profile of the whole run, by [`countersteer_lab::native::extend`]. With sampled addresses, the
//! program runs once more, under [`countersteer_counters::reuse`].
//!
//! ```no_run
//! use countersteer_session::native::Native;
//!
//! let native = Native::new(["xz", "-kc", "file"].map(String::from).to_vec());
//! let found = native.run()?;
//! println!("{} instructions", found.extended.profile.instructions);
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context;
use countersteer_counters::reuse::{self, Reuses};
use countersteer_lab::native::addresses::correct;
use countersteer_lab::native::{Extended, extend, intervals};
use countersteer_model::profile::Recorded;
use countersteer_model::profile::reuse::StackDistances;
use countersteer_model::units::Nanos;
use countersteer_profiler::{ProfileOptions, ProgramEnding, profile};
use countersteer_report::record::Record;

use crate::count::{Count, CountTarget, Planned};
use crate::counting_record::{self, About};
use crate::error::{FaultKind, failure};
use crate::interrupt::TemporaryFolder;
use crate::{library, notice};

/// Event sets of the native run: one with all events, and two that take turns, for processors with fewer counters.
const ALL: &[&str] = &["instructions,cycles,llc_misses,branch_misses,branches,loads,stores"];
const IN_TURNS: &[&str] = &[
    "instructions,cycles,llc_misses,branch_misses",
    "instructions,cycles,branches,loads,stores",
];
/// Event sets for processors that cannot count all of these events.
const FEW: &[&str] = &["instructions,cycles,llc_misses,branch_misses"];
/// Instructions that are recorded by default.
const WINDOW: u64 = 1_000_000_000;

/// Program whose whole run is profiled.
#[derive(Clone, Debug)]
pub struct Native {
    /// Program and its arguments.
    pub command: Vec<String>,
    /// Name of the profile; `None` for the program's file name.
    pub name: Option<String>,
    /// Number of instructions to record.
    pub window: u64,
    /// Interval of the counts.
    pub interval: Nanos,
    /// Record with the counts of an earlier run (`steer stat -o`), instead of a run now; and the name of the program in it, `None` for all
    /// threads.
    pub counters: Option<(PathBuf, Option<String>)>,
    /// Sampling of data addresses, for stack distances beyond those of the window; `None` for none.
    pub addresses: Option<Addresses>,
}

/// Sampling of data addresses.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Event that is sampled; `None` for that of the machine.
    pub event: Option<String>,
    /// Number of events per sample.
    pub period: u64,
}

impl Default for Addresses {
    fn default() -> Self {
        Self {
            event: None,
            period: reuse::PERIOD,
        }
    }
}

impl Addresses {
    /// Returns the event and the period, if the event can be sampled.
    fn sampled(&self) -> anyhow::Result<(String, u64)> {
        let event = match &self.event {
            Some(event) => event.clone(),
            None => reuse::event()?,
        };
        reuse::check(&event)?;
        Ok((event, self.period))
    }
}

/// Profile of a whole run, and the part of sampled addresses in it.
#[derive(Clone, Debug)]
pub struct NativeProfile {
    pub extended: Extended,
    /// Sampled accesses, and the number of octaves of distances that they corrected; `None` if none were sampled.
    pub addresses: Option<(Reuses, u32)>,
}

impl Native {
    /// Begins with the defaults of `steer profile --native`: 1,000 M recorded instructions, and counts every 20 ms.
    #[must_use]
    pub const fn new(command: Vec<String>) -> Self {
        Self {
            command,
            name: None,
            window: WINDOW,
            interval: Nanos::from_millis(20),
            counters: None,
            addresses: None,
        }
    }

    /// Runs the program under counters, then under the recorder, and joins both.
    ///
    /// # Errors
    /// The events cannot be counted, the program fails or cannot be recorded, or its run is unlike the recorded window.
    pub fn run(&self) -> anyhow::Result<NativeProfile> {
        let sampled = match &self.addresses {
            Some(addresses) => Some(addresses.sampled()?),
            None => None,
        };
        let (record, program) = match &self.counters {
            Some((path, program)) => (library::record(path)?, program.as_deref()),
            None => (self.counted()?, None),
        };
        let (core_type, intervals) = intervals(&record, program)?;
        let window = self.recorded()?;
        let mut extended = extend(&window, &record.topology()?, core_type, &intervals)?;
        let addresses = match &sampled {
            Some((event, period)) => Some(self.corrected(event, *period, &mut extended.profile)?),
            None => None,
        };
        Ok(NativeProfile {
            extended,
            addresses,
        })
    }

    /// Corrects far stack distances by sampled addresses of another run.
    fn corrected(
        &self,
        event: &str,
        period: u64,
        profile: &mut Recorded,
    ) -> anyhow::Result<(Reuses, u32)> {
        let busy = notice::busy("sampling addresses");
        let sampled = reuse::run(&self.command, event, period)?;
        drop(busy);
        completed(sampled.exit_code, "while its addresses were sampled")?;
        let distances = StackDistances::of(&sampled.watched);
        let octaves = distances.map_or(0, |found| correct(profile, &found));
        profile.source.method += &format!(
            "; {octaves} octaves of stack distances by {} sampled addresses (StatStack)",
            sampled.watched.len()
        );
        Ok((sampled, octaves))
    }

    /// Plans the count with as many of the events as this machine can count.
    fn planned(&self) -> anyhow::Result<Planned> {
        let plan = |sets: &[&str]| {
            let mut count = Count::new(CountTarget::Launch(self.command.clone()));
            count.events = sets.iter().map(|set| (*set).to_owned()).collect();
            count.interval = Some(self.interval);
            count.plan()
        };
        let hint =
            "a native profile needs hardware counters; without --native, the whole run is recorded";
        let fallback = |_| plan(IN_TURNS).or_else(|_| plan(FEW));
        plan(ALL).or_else(fallback).context(hint)
    }

    /// Counts a native run.
    fn counted(&self) -> anyhow::Result<Record> {
        let scratch = TemporaryFolder::folder("native")?;
        let dir = scratch.path().join("counts.rec");
        let planned = self.planned()?;
        let events = planned.count.events.join(" ; ");
        let counting = planned.open()?;
        let about = About {
            by: "steer profile --native",
            program: &self.command,
            events,
            metrics: String::new(),
            period: self.interval,
        };
        let counted = &counting.counted;
        let mut recorder = counting_record::recorder(&dir, &about, counted, &counting.core_types)?;
        let busy = notice::busy("counting");
        let summary = counting.run(|tick, _| {
            counting_record::keep(Some(&mut recorder), tick, None);
            counting_record::kept(Some(&mut recorder));
            busy.tick();
            std::ops::ControlFlow::Continue(())
        })?;
        drop(busy);
        completed(summary.ending.map_or(0, |e| e.code()), "under counters")?;
        recorder.finish(summary.elapsed)?;
        Ok(Record::load(&dir)?)
    }

    /// Records the window.
    fn recorded(&self) -> anyhow::Result<Recorded> {
        let mut options = ProfileOptions::new(self.command.clone());
        options.name.clone_from(&self.name);
        options.max_instructions = Some(self.window);
        let busy = notice::busy(&format!("recording {}", program(&self.command)));
        let recorded = profile(&options)?;
        drop(busy);
        match recorded.ending {
            ProgramEnding::Exited(0) | ProgramEnding::Limit => Ok(recorded.profile),
            other => completed(other.code(), "under the recorder").map(|()| recorded.profile),
        }
    }
}

/// Fails if the program did, because its work was then not done.
fn completed(code: i32, when: &str) -> anyhow::Result<()> {
    if code == 0 {
        return Ok(());
    }
    let why = format!("the program ended with exit code {code} {when}, so its work was not done");
    Err(failure(FaultKind::BadInput, why))
}

fn program(command: &[String]) -> String {
    let name = command.first().map(Path::new).and_then(Path::file_name);
    name.map_or_else(
        || "the program".into(),
        |n| n.to_string_lossy().into_owned(),
    )
}
