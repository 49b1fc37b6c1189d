//! Import of trace-cmd's binary files (`trace.dat`), versions 6 and 7: switches and wake-ups of the first buffer
//! that has any.

mod cursor;
mod file;
mod format;
mod ring;
mod sections;

use std::collections::HashMap;

use countersteer_model::textfile::TextError;

use self::cursor::ByteOrder;
use self::file::{Contents, TraceBuffer, Tsc};
use self::format::{EventFields, Field};
use super::timeline::{SchedEvent, SchedTimeline};
use super::{Tasks, ftrace};

pub fn detects(bytes: &[u8]) -> bool {
    bytes.starts_with(file::MAGIC)
}

/// Refuses files of other versions, or without a head.
pub fn check(head: &[u8]) -> Result<(), String> {
    file::check(head).map_err(|why| format!("damaged trace.dat: {why}"))
}

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let damaged = |why: String| TextError::value(path, format!("damaged trace.dat: {why}"));
    let contents = Contents::read(&bytes).map_err(damaged)?;
    let has_pages = contents.buffers.iter().any(|b| !b.cpus.is_empty());
    if let (Some(text), false) = (&contents.text, has_pages) {
        let read = ftrace::read(path, &mut &**text);
        return read.map_err(|e| match e.downcast::<TextError>() {
            Ok(error) => error,
            Err(other) => damaged(other.to_string()),
        });
    }
    for (nth, buffer) in contents.buffers.iter().enumerate() {
        let clock = TraceClock::of(&contents, buffer).map_err(|why| TextError::value(path, why))?;
        let mut reader = TraceDatReader::new(&contents);
        let layout = layout(&contents, buffer)
            .ok_or_else(|| damaged("its pages have no known format".into()))?;
        let mut lost = contents.lost.get(&buffer.name).copied().unwrap_or(0);
        for (cpu, pages) in &buffer.cpus {
            let missed = ring::read(pages, layout, |time, data| {
                reader.see(clock.ns(time), *cpu, data);
            });
            lost = lost.max(missed.map_err(damaged)?);
        }
        if !reader.timeline.is_empty() {
            return Ok(reader.tasks(contents, nth, lost));
        }
    }
    let why = "there is no `sched_switch` in this file: record with `trace-cmd record -e sched_switch -e sched_waking`";
    Err(TextError::value(path, why))
}

fn layout(contents: &Contents<'_>, buffer: &TraceBuffer<'_>) -> Option<ring::RingLayout> {
    let format = EventFields::parse(&contents.page_format);
    let (commit, data) = (format.field("commit")?, format.field("data")?);
    (data.at < buffer.page && format.field("timestamp")?.at == 0).then_some(ring::RingLayout {
        order: contents.order,
        page: buffer.page,
        commit: (commit.at, commit.size),
        data: data.at,
    })
}

/// Conversion of a file's times to ns.
struct TraceClock(Option<Tsc>);

impl TraceClock {
    fn of(contents: &Contents<'_>, buffer: &TraceBuffer<'_>) -> Result<Self, String> {
        let marked = buffer.clock.split_once('[');
        let marked = marked.and_then(|(_, rest)| rest.split_once(']'));
        let name = marked.map_or(buffer.clock.trim(), |(name, _)| name);
        check_clock(name, contents.tsc.is_some())?;
        Ok(Self(contents.tsc.filter(|_| name == "x86-tsc")))
    }

    fn ns(&self, time: u64) -> u64 {
        let Some(tsc) = self.0 else {
            return time;
        };
        let scaled = u128::from(time) * u128::from(tsc.multiplier);
        scaled.checked_shr(tsc.shift).unwrap_or(0) as u64
    }
}

/// Refuses clocks that do not count ns. The rate of the time-stamp counter may be in the file.
pub(super) fn check_clock(name: &str, has_rate: bool) -> Result<(), String> {
    let why = match name {
        "counter" | "uptime" => "does not count ns",
        "x86-tsc" if !has_rate => "has a rate that the file does not contain",
        _ => return Ok(()),
    };
    Err(format!(
        "its clock `{name}` {why}: record with `trace-cmd record -C mono`"
    ))
}

/// Kinds of events that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UsedEvent {
    Switch,
    Woken,
    Fork,
    Exit,
}

/// Events that are used, with the fields of theirs that are used.
const USED: [(&str, UsedEvent, &[&str]); 6] = [
    ("sched_switch", UsedEvent::Switch, &SWITCH),
    ("sched_waking", UsedEvent::Woken, &["comm", "pid", "prio"]),
    ("sched_wakeup", UsedEvent::Woken, &["comm", "pid", "prio"]),
    (
        "sched_wakeup_new",
        UsedEvent::Woken,
        &["comm", "pid", "prio"],
    ),
    (
        "sched_process_fork",
        UsedEvent::Fork,
        &["child_comm", "child_pid"],
    ),
    ("sched_process_exit", UsedEvent::Exit, &["pid"]),
];

const SWITCH: [&str; 7] = [
    "prev_comm",
    "prev_pid",
    "prev_prio",
    "prev_state",
    "next_comm",
    "next_pid",
    "next_prio",
];

/// Format of a used event with its used fields, in the order of [`USED`].
struct EventFormat {
    kind: UsedEvent,
    fields: Vec<Field>,
}

struct TraceDatReader {
    order: ByteOrder,
    type_of_event: Option<Field>,
    used: HashMap<u64, EventFormat>,
    /// Names of the other events, and how often each was seen.
    others: HashMap<u64, (String, u64)>,
    timeline: SchedTimeline,
    /// Number of events that are shorter than their formats, or have none.
    unread: u64,
}

impl TraceDatReader {
    fn new(contents: &Contents<'_>) -> Self {
        let mut reader = Self {
            order: contents.order,
            type_of_event: None,
            used: HashMap::new(),
            others: HashMap::new(),
            timeline: SchedTimeline::default(),
            unread: 0,
        };
        for line in contents.names.lines() {
            if let Some((tid, name)) = line.split_once(' ')
                && let Ok(tid) = tid.parse()
            {
                reader.timeline.name(0, tid, name);
            }
        }
        for text in &contents.event_formats {
            reader.learn(EventFields::parse(text));
        }
        reader
    }

    fn learn(&mut self, format: EventFields) {
        if let Some(field) = format.field("common_type") {
            self.type_of_event.get_or_insert_with(|| field.clone());
        }
        let used = USED.iter().find(|(name, ..)| *name == format.name);
        let event = used.and_then(|(_, kind, names)| {
            let fields = names.iter().map(|name| format.field(name).cloned());
            let fields = fields.collect::<Option<_>>()?;
            Some(EventFormat {
                kind: *kind,
                fields,
            })
        });
        match event {
            Some(event) => drop(self.used.insert(format.id, event)),
            None => drop(self.others.insert(format.id, (format.name, 0))),
        }
        if let Some((name, _, names)) = used {
            let unused = format.fields.iter().filter(|f| !names.contains(&&*f.name));
            for field in unused.filter(|f| f.name != "common_type") {
                self.timeline.skip(if field.name.starts_with("common_") {
                    field.name.clone()
                } else {
                    format!("{name}.{}", field.name)
                });
            }
        }
    }

    fn see(&mut self, time_ns: u64, cpu: u32, data: &[u8]) {
        let id = self.type_of_event.as_ref();
        let id = id.and_then(|field| field.number(data, self.order));
        let Some(id) = id else {
            self.unread += 1;
            return;
        };
        if let Some((_, count)) = self.others.get_mut(&id) {
            *count += 1;
        } else if self.see_used(id, time_ns, cpu, data).is_none() {
            self.unread += 1;
        }
    }

    fn see_used(&mut self, id: u64, time_ns: u64, cpu: u32, data: &[u8]) -> Option<()> {
        let EventFormat { kind, fields } = self.used.get(&id)?;
        let int = |nth: usize| fields[nth].int(data, self.order);
        let text = |nth: usize| fields[nth].text(data, self.order);
        let timeline = &mut self.timeline;
        match kind {
            UsedEvent::Switch => {
                let (prev, next) = (int(1)?, int(5)?);
                timeline.name(time_ns, prev, &text(0)?);
                timeline.name(time_ns, next, &text(4)?);
                timeline.priority(prev, int(2)?);
                timeline.priority(next, int(6)?);
                // The low eight bits are those of `TASK_REPORT`; the next one means that the thread was preempted.
                let sleeps = fields[3].number(data, self.order)? & 0xff != 0;
                timeline.push(time_ns, Some(cpu), prev, SchedEvent::Out { sleeps });
                timeline.push(time_ns, Some(cpu), next, SchedEvent::In);
            }
            UsedEvent::Woken => {
                let tid = int(1)?;
                timeline.name(time_ns, tid, &text(0)?);
                timeline.priority(tid, int(2)?);
                timeline.push(time_ns, Some(cpu), tid, SchedEvent::Woken);
            }
            UsedEvent::Fork => timeline.name(time_ns, int(1)?, &text(0)?),
            // The last switch of the thread follows.
            UsedEvent::Exit => drop(int(0)?),
        }
        Some(())
    }

    /// Returns the tasks of a buffer.
    fn tasks(mut self, contents: Contents<'_>, nth: usize, lost: u64) -> Tasks {
        let mut warnings = Vec::new();
        if lost > 0 {
            warnings.push(format!(
                "{lost} or more events were lost while this was recorded: times are too short"
            ));
        }
        if self.unread > 0 {
            warnings.push(format!("{} events could not be read", self.unread));
        }
        let others = std::mem::take(&mut self.others).into_values();
        for (name, count) in others.filter(|(_, count)| *count > 0) {
            self.timeline.skip(format!("{count} x {name}"));
        }
        for part in contents.not_kept {
            self.timeline.skip(part);
        }
        for (other, buffer) in contents.buffers.into_iter().enumerate() {
            if other != nth && buffer.cpus.iter().any(|(_, pages)| !pages.is_empty()) {
                self.timeline.skip(match &*buffer.name {
                    "" => "main buffer".to_owned(),
                    name => format!("instance `{name}`"),
                });
            }
        }
        self.timeline.tasks(warnings)
    }
}
