//! Counted sets for events and metrics that fit together, and for those that do not.

use super::*;

/// Creates a machine with or without a core PMU.
fn pmus(with: bool) -> Pmus {
    let root = tempfile::tempdir().unwrap();
    let cpu = root.path().join("sys/bus/event_source/devices/cpu");
    std::fs::create_dir_all(if with { &cpu } else { root.path() }).unwrap();
    if with {
        std::fs::write(cpu.join("type"), "4\n").unwrap();
    }
    let online = root.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&online).unwrap();
    std::fs::write(online.join("online"), "0-1\n").unwrap();
    Pmus::read(root.path()).unwrap()
}

/// Names of the events that a formula needs, its unit, and its number of virtual counters.
fn bound(
    text: &str,
    with_pmu: bool,
    counts: fn(&str, &Pmus) -> bool,
) -> Result<(Vec<String>, String, usize), SpecError> {
    let mut outside = Vec::new();
    let mut derived = Vec::new();
    let pmus = pmus(with_pmu);
    let fits = |_: &[Resolved]| true;
    let mut found = OfMetrics {
        pmus: &pmus,
        counts,
        fits,
        outside: &mut outside,
        derived: &mut derived,
    };
    let bound = found.bind(&Metric::choose(text, &[])?, 0)?;
    let names = bound.sets[0]
        .iter()
        .map(|e| e.planned.name.clone())
        .collect();
    Ok((names, bound.metrics[0].unit.clone(), derived.len()))
}

/// As [`bound`], with a limited number of counters: events by set, and the set of each metric.
fn divided(list: &str, fits: fn(&[Resolved]) -> bool) -> (Vec<String>, Vec<u32>) {
    let mut outside = Vec::new();
    let mut derived = Vec::new();
    let pmus = pmus(true);
    let mut found = OfMetrics {
        pmus: &pmus,
        counts: |_, _| true,
        fits,
        outside: &mut outside,
        derived: &mut derived,
    };
    let bound = found.bind(&Metric::choose(list, &[]).unwrap(), 3).unwrap();
    let names = |set: &Vec<Resolved>| {
        set.iter()
            .map(|e| &e.planned.name[..])
            .collect::<Vec<_>>()
            .join(" ")
    };
    (
        bound.sets.iter().map(names).collect(),
        bound.metrics.iter().map(|m| m.set).collect(),
    )
}

#[test]
fn metrics_that_do_not_fit_together_take_turns() {
    let list =
        "instructions/cycles,llc_misses/instructions,branch_misses/branches,branches/instructions";
    let (sets, of) = divided(list, |set| set.len() <= 3);
    let wanted = [
        "instructions cycles llc_misses",
        "branch_misses branches instructions",
    ];
    assert_eq!(
        (sets, of),
        (wanted.map(str::to_owned).to_vec(), vec![3, 3, 4, 4])
    );
    // The kernel refuses a metric that does not fit even alone.
    assert_eq!(
        divided("instructions/cycles", |set| set.len() <= 1).0,
        ["instructions cycles"]
    );
}

#[test]
fn what_helps_a_derived_virtual_counter_takes_turns_where_it_must() {
    let (sets, of) = divided("sf*branches,ipc", |set| set.len() <= 4);
    let wanted = [
        "instructions cycles branches llc_references",
        "instructions cycles llc_misses branch_misses",
    ];
    assert_eq!((sets, of), (wanted.map(str::to_owned).to_vec(), vec![3, 3]));
}

#[test]
fn formulas_count_what_their_derived_virtual_counters_come_of() {
    let (events, unit, derived) =
        bound("sf*ipc/llc_misses", true, |name, _| name != "branch_misses").unwrap();
    assert_eq!(
        events,
        ["instructions", "cycles", "llc_misses", "llc_references"]
    );
    assert_eq!((unit.as_str(), derived), ("event^-1", 2));
    assert_eq!(bound("ips", true, |_, _| true).unwrap().1, "event s^-1");
}

#[test]
fn derived_virtual_counters_that_cannot_be_had_or_fit_are_pointed_at() {
    let wrong = |text, with_pmu, counts| {
        let error = bound(text, with_pmu, counts).unwrap_err();
        (error.column(), error.message)
    };
    let (column, why) = wrong("1 + sf", false, |_, _| true);
    assert!(
        column == 5
            && why.starts_with("`sf` is derived from instructions, cycles, ")
            && why.contains("no hardware"),
        "{why}"
    );
    let (column, why) = wrong("2*sf", true, |name, _| name != "cycles");
    assert!(
        column == 3
            && why.contains("`sf` is derived from `cycles`, which this machine does not count"),
        "{why}"
    );
    let (column, why) = wrong("sf + ips", true, |_, _| true);
    assert!(
        column == 4 && why.contains("not a number and event s^-1"),
        "{why}"
    );
}
