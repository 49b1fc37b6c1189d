//! Files as perf writes them, of one event and of several.

use super::super::perf_data;
use super::*;

const SWITCH: &str = "sched:sched_switch";
const WAKING: &str = "sched:sched_waking";
const OTHER: &str = "sched:sched_migrate_task";

const TIME: u64 = 1 << 2;
const RAW: u64 = 1 << 10;
const IDENTIFIER: u64 = 1 << 16;
/// Flag of an attribute: records of all types have an id.
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// File to build.
#[derive(Clone, Copy)]
struct PerfForm<'a> {
    /// Names of the events, in the order of their attributes.
    events: &'a [&'a str],
    /// Fields of samples.
    sample: u64,
    /// Bits of optional sections before and behind the event descriptions.
    sections: [usize; 2],
    is_described: bool,
    /// Exits of threads, with their times in ms.
    exits: &'a [(u32, u64)],
}

const ONE: PerfForm<'static> = PerfForm {
    events: &[SWITCH],
    sample: TIME | RAW,
    sections: [0; 2],
    is_described: true,
    exits: &[],
};

const SEVERAL: PerfForm<'static> = PerfForm {
    events: &[WAKING, OTHER, SWITCH],
    sample: TIME | RAW | IDENTIFIER,
    sections: [2, 3],
    is_described: true,
    exits: &[],
};

fn comm(tid: i32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..name(tid).len()].copy_from_slice(name(tid).as_bytes());
    bytes
}

/// Fields of one thread in events: its name, TID and priority.
fn thread(tid: i32) -> Vec<u8> {
    [&comm(tid)[..], &tid.to_le_bytes(), &120_i32.to_le_bytes()].concat()
}

/// Samples of the example: the event, the time in ns, and the fields behind the common ones.
fn samples() -> Vec<(&'static str, u64, Vec<u8>)> {
    let mut samples = Vec::new();
    let first = (0, 0, 'R', 7);
    let last = (END_MS, 7, 'S', 0);
    for (at, prev, state, next) in std::iter::once(first).chain(SWITCHES).chain([last]) {
        let state = state_of(state).to_le_bytes();
        let fields = [&thread(prev)[..], &state, &thread(next)].concat();
        samples.push((SWITCH, at * 1_000_000, fields));
    }
    for at in WAKES_MS {
        samples.push((WAKING, at * 1_000_000 - 1000, thread(7)));
        samples.push((OTHER, at * 1_000_000 - 500, thread(8)));
    }
    samples.sort_by_key(|(_, at, _)| *at);
    samples
}

/// Id of the samples of the event at a place among the events.
fn id_of(nth: usize) -> u64 {
    700 + nth as u64
}

/// Appends a record, whose type has a number.
fn record(kind: u32, body: &[u8], records: &mut Vec<u8>) {
    records.extend(kind.to_le_bytes());
    records.extend(0_u16.to_le_bytes());
    records.extend(((8 + body.len()) as u16).to_le_bytes());
    records.extend(body);
}

/// Appends the record of a thread's exit at a time in ns.
fn exit(tid: u32, at: u64, records: &mut Vec<u8>) {
    let time = 5_000_000_000 + at;
    let mut body: Vec<u8> = [tid, 1, tid, 1]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    body.extend(time.to_le_bytes());
    // Fields of all records: the time and the id.
    body.extend(time.to_le_bytes());
    body.extend(id_of(0).to_le_bytes());
    record(4, &body, records);
}

fn records(form: PerfForm<'_>) -> Vec<u8> {
    let mut records = Vec::new();
    for (event, at, fields) in samples() {
        let Some(nth) = form.events.iter().position(|name| *name == event) else {
            continue;
        };
        // perf pads raw data to eight bytes, including the size field.
        let raw = [&[0; 8][..], &fields, &[0; 4]].concat();
        let mut body = Vec::new();
        if form.sample & IDENTIFIER != 0 {
            body.extend(id_of(nth).to_le_bytes());
        }
        if form.sample & TIME != 0 {
            body.extend((5_000_000_000 + at).to_le_bytes());
        }
        if form.sample & RAW != 0 {
            body.extend((raw.len() as u32).to_le_bytes());
            body.extend(raw);
        }
        record(9, &body, &mut records);
    }
    for (tid, at_ms) in form.exits {
        exit(*tid, at_ms * 1_000_000, &mut records);
    }
    records
}

fn attribute(form: PerfForm<'_>) -> Vec<u8> {
    let mut attr = vec![0; 128];
    attr[0..4].copy_from_slice(&2_u32.to_le_bytes());
    attr[4..8].copy_from_slice(&128_u32.to_le_bytes());
    attr[24..32].copy_from_slice(&form.sample.to_le_bytes());
    attr[40..48].copy_from_slice(&SAMPLE_ID_ALL.to_le_bytes());
    attr
}

/// EVENT_DESC: number of events, size of an attribute. For each event: attribute, number of ids, name, ids.
fn description(form: PerfForm<'_>) -> Vec<u8> {
    let mut description = Vec::new();
    description.extend((form.events.len() as u32).to_le_bytes());
    description.extend(128_u32.to_le_bytes());
    for (nth, name) in form.events.iter().enumerate() {
        let mut name = name.as_bytes().to_vec();
        name.resize((name.len() + 1).next_multiple_of(8), 0);
        description.extend(attribute(form));
        description.extend(1_u32.to_le_bytes());
        description.extend((name.len() as u32).to_le_bytes());
        description.extend(name);
        description.extend(id_of(nth).to_le_bytes());
    }
    description
}

fn file(form: PerfForm<'_>) -> Vec<u8> {
    let records = records(form);
    let attrs: Vec<u8> = (form.events.iter())
        .flat_map(|_| [attribute(form), vec![0; 16]].concat())
        .collect();
    let attrs_at = 104_u64;
    let data_at = attrs_at + attrs.len() as u64;
    let entries_at = data_at + records.len() as u64;
    // The other optional sections have counts that no file can have.
    let other = [0xff; 24].to_vec();
    let mut sections: Vec<(u64, Vec<u8>)> = Vec::new();
    sections.extend(
        [(2, other.clone()), (11, other.clone())]
            .into_iter()
            .take(form.sections[0]),
    );
    if form.is_described {
        sections.push((12, description(form)));
    }
    let behind = [(13, other.clone()), (14, other.clone()), (18, other)];
    sections.extend(behind.into_iter().take(form.sections[1]));
    let features = sections.iter().fold(0, |bits, (bit, _)| bits | 1 << bit);
    let mut file = b"PERFILE2".to_vec();
    let mut words = vec![104, 144, attrs_at, attrs.len() as u64, data_at];
    words.extend([records.len() as u64, 0, 0, features, 0, 0, 0]);
    file.extend(words.into_iter().flat_map(u64::to_le_bytes));
    file.extend(attrs);
    file.extend(records);
    let mut at = entries_at + 16 * sections.len() as u64;
    for (_, section) in &sections {
        file.extend(at.to_le_bytes());
        file.extend((section.len() as u64).to_le_bytes());
        at += section.len() as u64;
    }
    file.extend(sections.into_iter().flat_map(|(_, section)| section));
    file
}

/// Examples for readers of changed bytes.
pub fn examples() -> [Vec<u8>; 2] {
    [file(ONE), file(SEVERAL)]
}

#[test]
fn tracepoints_of_perf_give_what_ftrace_does() {
    let tasks = tasks("perf", &file(ONE));
    let [no_wakes] = &tasks.warnings[..] else {
        panic!("{:?}", tasks.warnings);
    };
    assert!(no_wakes.contains("no wake-ups"), "{no_wakes}");
    check(&tasks, "perf");
}

#[test]
fn samples_belong_to_the_event_with_their_id() {
    let orders: [&[&str]; 4] = [
        &[SWITCH, WAKING],
        &[WAKING, SWITCH],
        &[SWITCH, OTHER, WAKING],
        &[OTHER, WAKING, SWITCH],
    ];
    for events in orders {
        let read = tasks("perf", &file(PerfForm { events, ..SEVERAL }));
        check(&read, &events.join(", "));
        let wanted: &[&str] = match events.len() {
            2 => &[],
            _ => &["not kept: 3 x sched:sched_migrate_task"],
        };
        assert_eq!(read.warnings, wanted, "{events:?}");
    }
}

#[test]
fn threads_run_until_the_switch_behind_their_exit() {
    // The samples have no thread 99, which ended when they had not begun on its CPU.
    let exits = &[(7, 125), (99, 1)];
    let read = tasks("perf", &file(PerfForm { exits, ..SEVERAL }));
    check(&read, "exits");
}

#[test]
fn samples_that_are_not_read_are_counted_with_the_reason() {
    let refused = |form: PerfForm<'_>| {
        perf_data::read("p.data", file(form))
            .unwrap_err()
            .to_string()
    };
    let said = refused(PerfForm {
        sample: TIME | IDENTIFIER,
        exits: &[(7, 125)],
        ..SEVERAL
    });
    for part in [
        "8 samples of sched:sched_switch could not be read: they have no fields",
        "3 x sched:sched_migrate_task",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said = refused(PerfForm {
        sample: RAW | IDENTIFIER,
        ..SEVERAL
    });
    assert!(
        said.contains("3 samples of sched:sched_waking could not be read: they have no time"),
        "{said}"
    );
    let said = refused(PerfForm {
        is_described: false,
        ..SEVERAL
    });
    assert!(said.contains("14 samples of an unknown event"), "{said}");
    let said = refused(PerfForm {
        is_described: false,
        ..ONE
    });
    assert!(said.contains("8 x an event without a name"), "{said}");
}

#[test]
fn counts_of_event_descriptions_are_checked_before_memory_is_taken() {
    let whole = file(SEVERAL);
    let description = description(SEVERAL);
    let at = whole
        .windows(description.len())
        .position(|w| w == description);
    let at = at.unwrap();
    // Number of events, size of an attribute, then number of ids and length of the name of the first event.
    for place in [at, at + 4, at + 136, at + 140] {
        for count in [0_u32, 1 << 20, u32::MAX] {
            if place == at && count == 0 {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[place..place + 4].copy_from_slice(&count.to_le_bytes());
            let refused = perf_data::read("p.data", bytes).unwrap_err().to_string();
            assert!(
                refused.contains("damaged perf.data"),
                "{place}, {count}: {refused}"
            );
        }
    }
}
