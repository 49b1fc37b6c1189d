//! Import of text lines with `sched_switch` and `sched_wakeup`, in the formats of ftrace's `trace` file, `trace-cmd report`
//! and `perf script`.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use anyhow::Context;
use countersteer_model::textfile::TextError;

use super::Tasks;
use super::timeline::{SchedEvent, SchedTimeline};
use crate::library;

pub fn detects(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1 << 20)];
    std::str::from_utf8(head)
        .or_else(|e| std::str::from_utf8(&head[..e.valid_up_to()]))
        .is_ok_and(|text| text.lines().any(|line| line.contains("sched_switch:")))
}

/// Bytes of a line at most. Those of events have a few hundred.
const LINE: u64 = 1 << 20;

/// Reads a text line by line, because texts of traces are much longer than what is kept of them.
pub fn read(path: &str, lines: &mut dyn BufRead) -> anyhow::Result<Tasks> {
    let mut text = TraceText {
        timeline: SchedTimeline::default(),
        lost: false,
        others: BTreeMap::new(),
    };
    let mut bytes = Vec::new();
    for nth in 1.. {
        bytes.clear();
        let mut line = Read::take(&mut *lines, LINE);
        let length = line.read_until(b'\n', &mut bytes);
        let length = length.with_context(|| library::cannot_read(path.as_ref()))?;
        if length == 0 {
            break;
        }
        let line = String::from_utf8_lossy(&bytes);
        let read = if length as u64 == LINE {
            Err(format!("this line has {LINE} bytes or more"))
        } else {
            text.see(line.trim_end_matches(['\n', '\r']))
                .map_err(String::from)
        };
        read.map_err(|why| TextError {
            line: Some(nth),
            shown: Some(line.trim_end().chars().take(SHOWN).collect()),
            ..TextError::value(path, why)
        })?;
    }
    text.tasks(path)
}

/// Characters of a line that an error shows.
const SHOWN: usize = 120;

/// Events of a text, of which some lines were read.
struct TraceText {
    timeline: SchedTimeline,
    lost: bool,
    /// Number of events of each kind that is not used.
    others: BTreeMap<String, u64>,
}

impl TraceText {
    fn see(&mut self, line: &str) -> Result<(), &'static str> {
        self.lost |= line.contains("LOST ") && line.contains("EVENTS");
        let Some((head, event, fields)) = event_of(line) else {
            if let Some(event) = name_of_event(line) {
                *self.others.entry(event.to_owned()).or_default() += 1;
            }
            return Ok(());
        };
        let time_ns = time_ns(head).ok_or("there is no time before the event")?;
        let place = (time_ns, cpu(head));
        let seen = match event {
            "sched_switch" => switch(&mut self.timeline, place, fields),
            _ => wakeup(&mut self.timeline, place, fields),
        };
        seen.ok_or("the fields of this event are not those of the kernel")
    }

    fn tasks(mut self, path: &str) -> anyhow::Result<Tasks> {
        if self.timeline.is_empty() {
            let why = "there is no line with `sched_switch:`";
            return Err(TextError::value(path, why).into());
        }
        for (event, count) in self.others {
            self.timeline.skip(format!("{count} x {event}"));
        }
        let mut warnings = Vec::new();
        if self.lost {
            warnings.push("events were lost while this was recorded: times are too short".into());
        }
        Ok(self.timeline.tasks(warnings))
    }
}

/// Splits a line into the text before the event, the event's name, and its fields. `None` if the line contains no such
/// event.
fn event_of(line: &str) -> Option<(&str, &str, &str)> {
    let events = [
        "sched_switch",
        "sched_waking",
        "sched_wakeup_new",
        "sched_wakeup",
    ];
    events.into_iter().find_map(|event| {
        let at = line.find(&format!("{event}: "))?;
        let fields = line[at + event.len() + 1..].trim();
        Some((
            line[..at].trim_end().trim_end_matches("sched:"),
            event,
            fields,
        ))
    })
}

/// Returns the name of the event in a line of any event, behind the time.
fn name_of_event(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    words.find(|word| time_ns(word).is_some())?;
    words.next()?.strip_suffix(':')
}

/// Time of an event in ns, and its CPU.
type EventPlace = (u64, Option<u32>);

/// Parses the CPU in brackets before the time, as in `[003]`. A name in brackets would be further ahead.
fn cpu(head: &str) -> Option<u32> {
    let mut words = head.split_whitespace().rev().skip(1);
    words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']')?.parse().ok())
}

/// Parses the time at the end of the text before the event, as in `12.345678:`. Returns ns.
fn time_ns(head: &str) -> Option<u64> {
    let word = head.split_whitespace().last()?.strip_suffix(':')?;
    let (seconds, fraction) = word.split_once('.')?;
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|d| (1..=9).contains(d))?;
    let fraction: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * 10_u64.pow(9 - digits))
}

fn switch(timeline: &mut SchedTimeline, (time_ns, cpu): EventPlace, fields: &str) -> Option<()> {
    let (prev, next) = fields.split_once(" ==> ")?;
    let prev = FtraceThread::parse(prev, "prev_")?;
    let next = FtraceThread::parse(next, "next_")?;
    // R means runnable and R+ preempted; in every other state, the thread waits.
    let sleeps = !prev.state.starts_with('R');
    prev.describe(timeline, time_ns);
    next.describe(timeline, time_ns);
    timeline.push(time_ns, cpu, prev.tid, SchedEvent::Out { sleeps });
    timeline.push(time_ns, cpu, next.tid, SchedEvent::In);
    Some(())
}

fn wakeup(timeline: &mut SchedTimeline, (time_ns, cpu): EventPlace, fields: &str) -> Option<()> {
    let thread = FtraceThread::parse(fields, "")?;
    thread.describe(timeline, time_ns);
    timeline.push(time_ns, cpu, thread.tid, SchedEvent::Woken);
    Some(())
}

/// Fields of one thread in an event.
struct FtraceThread<'a> {
    name: &'a str,
    tid: i32,
    priority: Option<i32>,
    state: &'a str,
}

impl<'a> FtraceThread<'a> {
    /// Parses `prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S`, or `a b:7 [120] S`.
    fn parse(fields: &'a str, prefix: &str) -> Option<Self> {
        if let Some(rest) = fields.strip_prefix(&format!("{prefix}comm=")) {
            let (name, rest) = rest.split_once(&format!(" {prefix}pid="))?;
            let value = |field: &str| Some(rest.split_once(&format!("{prefix}{field}="))?.1);
            return Some(Self {
                name,
                tid: rest.split_whitespace().next()?.parse().ok()?,
                priority: value("prio").and_then(|text| text.split(' ').next()?.parse().ok()),
                state: value("state").unwrap_or_default(),
            });
        }
        let (thread, rest) = fields.rsplit_once(" [")?;
        let (name, tid) = thread.rsplit_once(':')?;
        let (priority, state) = rest.split_once(']')?;
        Some(Self {
            name,
            tid: tid.parse().ok()?,
            priority: priority.parse().ok(),
            state: state.trim(),
        })
    }

    fn describe(&self, timeline: &mut SchedTimeline, time_ns: u64) {
        timeline.name(time_ns, self.tid, self.name);
        if let Some(priority) = self.priority {
            timeline.priority(self.tid, priority);
        }
    }
}
