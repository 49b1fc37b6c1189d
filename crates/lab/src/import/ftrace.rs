//! Import of text lines with `sched_switch` and `sched_wakeup`, in the formats of ftrace's `trace` file, `trace-cmd report`
//! and `perf script`.

use countersteer_model::textfile::TextError;

use super::Tasks;
use super::timeline::{Timeline, What};

pub fn detects(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(1 << 20)];
    std::str::from_utf8(head)
        .or_else(|e| std::str::from_utf8(&head[..e.valid_up_to()]))
        .is_ok_and(|text| text.lines().any(|line| line.contains("sched_switch:")))
}

pub fn read(path: &str, bytes: Vec<u8>) -> Result<Tasks, TextError> {
    let text = String::from_utf8_lossy(&bytes);
    let mut timeline = Timeline::default();
    let mut lost = false;
    for (nth, line) in text.lines().enumerate() {
        lost |= line.contains("LOST ") && line.contains("EVENTS");
        let Some((head, event, fields)) = event_of(line) else {
            continue;
        };
        let at = |why: &str| TextError::at_line(path, &text, nth + 1, why);
        let time_ns = time_ns(head).ok_or_else(|| at("there is no time before the event"))?;
        let seen = match event {
            "sched_switch" => switch(&mut timeline, time_ns, fields),
            _ => wakeup(&mut timeline, time_ns, fields),
        };
        seen.ok_or_else(|| at("the fields of this event are not those of the kernel"))?;
    }
    if timeline.is_empty() {
        return Err(TextError::value(
            path,
            "there is no line with `sched_switch:`",
        ));
    }
    let lost = lost.then(|| "events were lost while this was recorded: times are too short".into());
    Ok(timeline.tasks(lost.into_iter().collect()))
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

fn switch(timeline: &mut Timeline, time_ns: u64, fields: &str) -> Option<()> {
    let (prev, next) = fields.split_once(" ==> ")?;
    let (prev_name, prev_tid, state) = thread(prev, "prev_")?;
    let (next_name, next_tid, _) = thread(next, "next_")?;
    timeline.name(prev_tid, prev_name);
    timeline.name(next_tid, next_name);
    // R means runnable and R+ preempted; in every other state, the thread waits.
    let sleeps = !state.starts_with('R');
    timeline.push(time_ns, prev_tid, What::Out { sleeps });
    timeline.push(time_ns, next_tid, What::In);
    Some(())
}

fn wakeup(timeline: &mut Timeline, time_ns: u64, fields: &str) -> Option<()> {
    let (name, tid, _) = thread(fields, "")?;
    timeline.name(tid, name);
    timeline.push(time_ns, tid, What::Woken);
    Some(())
}

/// Parses a thread's name, TID and state: `prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S`, or `a b:7 [120] S`.
fn thread<'a>(fields: &'a str, prefix: &str) -> Option<(&'a str, i32, &'a str)> {
    if let Some(rest) = fields.strip_prefix(&format!("{prefix}comm=")) {
        let (name, rest) = rest.split_once(&format!(" {prefix}pid="))?;
        let tid = rest.split_whitespace().next()?.parse().ok()?;
        let state = rest.split_once(&format!("{prefix}state="));
        return Some((name, tid, state.map_or("", |(_, state)| state)));
    }
    let (thread, rest) = fields.rsplit_once(" [")?;
    let (name, tid) = thread.rsplit_once(':')?;
    let state = rest.split_once(']')?.1.trim();
    Some((name, tid.parse().ok()?, state))
}
