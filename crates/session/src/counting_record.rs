//! Record of a counting session.
//!
//! Input: the ticks of a counting session and its result. Output: a record in a folder, and the exit code of the started program.

use std::path::Path;

use anyhow::Context;
use countersteer_counters::{CoreTypes, CountingSummary, Tick};
use countersteer_model::counters::Outside;
use countersteer_model::topology::Topology;
use countersteer_model::units::Nanos;
use countersteer_report::record::{CountingRecorder, Manifest};

use crate::counted::CountedMetrics;
use crate::interrupt::survive_limits;
use crate::virtuals::Bank;

/// Description of a counting session, stored in its record.
pub struct About<'a> {
    pub by: &'a str,
    /// Command line of the started program; empty if none was started.
    pub program: &'a [String],
    /// Requested event sets and metrics, separated by ` ; `.
    pub events: String,
    pub metrics: String,
    pub period: Nanos,
}

/// Starts a record of this machine in a folder. In its manifest, a description of the session stands in place of a workload.
pub fn recorder(
    dir: &Path,
    about: &About<'_>,
    counted: &CountedMetrics,
    core_types: &CoreTypes,
) -> anyhow::Result<CountingRecorder> {
    let machine = countersteer_sysfs::topology::detect(Path::new("/"))?;
    let text = machine
        .to_toml()
        .context("this machine cannot be written as TOML")?;
    let name = about.program.first().map_or("what ran", String::as_str);
    let workload = format!("# {}, of: {}\n", about.by, about.program.join(" "));
    let options = [
        ("events", about.events.clone()),
        ("metrics", about.metrics.clone()),
    ];
    let options = options.map(|(k, v)| (k.to_owned(), v));
    let machine_text = (&*machine.name, &*text);
    let profiles = std::collections::BTreeMap::new();
    let manifest = Manifest::new(
        machine_text,
        (name, &workload),
        countersteer_policies::LINUX,
        0,
        about.period,
        options,
        profiles,
    );
    let topology = Topology::new(&machine);
    let os_cpus = machine.os_cpu_numbers();
    let what = (counted.plan.clone(), counted.metrics.clone());
    survive_limits()?;
    Ok(CountingRecorder::begin(
        dir,
        manifest,
        (topology, &os_cpus),
        what,
        core_types.names.clone(),
    )?)
}

/// Adds the samples of one interval to the record, if there is one.
pub fn keep(recorder: Option<&mut CountingRecorder>, tick: &Tick<'_>, bank: Option<&Bank>) {
    let Some(recorder) = recorder else { return };
    let nothing: Box<Outside<'_>> = Box::new(|_, _| None);
    let outside = bank.map_or(nothing, Bank::outside);
    recorder.period(
        tick.origin,
        tick.at,
        tick.last,
        tick.readings,
        |id| tick.name(id),
        &*outside,
    );
    if let Some(bank) = bank {
        bank.each(
            |id| tick.name(id),
            |scope, value| recorder.value(tick.origin, tick.at, scope, value),
        );
    }
}

/// Ends an interval of the record. Prints a message if the record cannot be written; counting continues.
pub fn kept(recorder: Option<&mut CountingRecorder>) {
    if let Some(why) = recorder.and_then(CountingRecorder::done) {
        say!("{why}; counting continues");
    }
}

pub fn save(
    recorder: Option<CountingRecorder>,
    dir: Option<&Path>,
    summary: &CountingSummary,
) -> anyhow::Result<()> {
    if let (Some(recorder), Some(dir)) = (recorder, dir) {
        recorder.finish(summary.elapsed)?;
        say!("record in {}", dir.display());
    }
    Ok(())
}

/// Returns the exit code of the started program, or 0 if none was started.
pub fn exit_code(summary: &CountingSummary) -> u8 {
    summary.ending.map_or(0, |e| e.code()) as u8
}
