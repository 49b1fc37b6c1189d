//! Sentences of a machine's `source`: values read, values not found, and oddities.
//!
//! Input: the detected facts. Output: sentences.

use super::classify::CoreClass;
use super::clock::Reported;
use super::cpus::{CpuFacts, Cpus};
use super::platform::Platform;

/// Returns sentences about values read, values not found, and oddities.
pub(super) fn notes(
    platform: &Platform,
    cpus: &Cpus,
    classes: &[CoreClass],
    capacities: &[u32],
) -> Vec<String> {
    let names: Vec<&str> = classes.iter().map(|c| c.name.as_str()).collect();
    let mut notes = vec![
        "Read from sysfs and /proc: CPUs, siblings, sockets, cache sizes and ways, capacities, memory nodes, highest clocks.".into(),
        format!("From a table of microarchitectures ({}): widths, windows, penalties, cache latencies, counters.", names.join(", ")),
        "Estimates: all power figures, memory latency and bandwidth. Clocks are the highest that every core of a type \
         reaches, not what it sustains."
            .into(),
    ];
    let mut note = |when: bool, text: String| notes.extend(when.then_some(text));
    note(
        platform.virtual_machine,
        "A virtual machine: sockets, caches and siblings are what the hypervisor makes up.".into(),
    );
    note(
        !cpus.offline.is_empty(),
        format!("Offline when read: CPUs {}.", cpus.offline),
    );
    let unknown = classes.iter().any(|c| c.uarch.name == "generic");
    note(
        unknown,
        "The processor is in no table: figures of a generic core.".into(),
    );
    let no_clock = classes.iter().any(|c| c.khz.is_none());
    let clock = platform.clock.map_or("a guess", |clock| clock.what);
    note(
        no_clock,
        format!("The kernel reports no highest clock: the one here is {clock}."),
    );
    note(
        cpus.reported == Reported::Nominal,
        "The kernel reports no highest clock: those here are nominal ones.".into(),
    );
    let one_clock = classes.len() > 1
        && classes
            .iter()
            .all(|c| c.khz.is_some() && c.khz == classes[0].khz);
    note(
        one_clock,
        "The kernel reports one highest clock for all core types, which cannot be right for all."
            .into(),
    );
    let vague = |c: &CpuFacts| {
        c.outer.is_empty() || c.l1d.iter().chain(&c.outer).any(|cache| cache.guessed)
    };
    note(
        cpus.list.iter().any(vague),
        "The kernel does not know all caches or their sizes: what is missing is guessed.".into(),
    );
    let blind = classes.len() > 1 && capacities.iter().all(|c| *c == 1024);
    note(
        blind,
        "The kernel gives all core types the same capacity; `why` says what sets each apart."
            .into(),
    );
    note(
        platform.hz.is_none(),
        "The timer frequency is the usual 250 Hz: no kernel configuration was found.".into(),
    );
    notes
}
