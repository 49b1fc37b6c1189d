//! Answer of `steer why`, as data and as text.

use std::fmt;

use serde::Serialize;

use crate::format::{number, seconds};

/// Largest width of the column of group names.
const WIDEST: usize = 80;

/// Explanation of a thread's CPU at a time of the run. All CPUs have the kernel's numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub program: String,
    pub thread: u32,
    pub at_s: f64,
    /// CPU on which the thread ran or last ran.
    pub cpu: u32,
    /// Core type of that CPU.
    pub core_type: String,
    /// Name of that CPU's last-level cache.
    pub llc: String,
    /// Time at which the thread came to that CPU, in seconds.
    pub since_s: f64,
    /// True if the thread was running or waiting for a CPU, false if it was asleep.
    pub runnable: bool,
    pub allowed: String,
    pub policy: String,
    /// Last decision about the thread; `None` if the policy had not placed it.
    pub decision: Option<Decision>,
    /// Metrics at the time.
    pub before: Vec<WhyFigure>,
    /// Metrics after the time.
    pub after: Vec<WhyFigure>,
    /// Next migration of the thread; `None` if there is none.
    pub next_move: Option<NextMove>,
}

/// Decision about a thread, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// Time of the last decision, in seconds.
    pub at_s: f64,
    /// Time since which the policy repeated this decision, in seconds.
    pub since_s: f64,
    /// Name of the target.
    pub target: String,
    /// CPUs of the target.
    pub cpus: String,
    /// Linux weight of the thread; `None` if it was not set.
    pub weight: Option<u32>,
    pub rule: String,
    pub seen: Vec<WhyFigure>,
    pub alternatives: Vec<Alternative>,
    /// Unit of the alternatives' values.
    pub unit: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhyFigure {
    pub name: String,
    pub value: f64,
}

/// Alternative core group with its predicted value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    pub group: String,
    /// Predicted value of the core group.
    pub value: f64,
    /// True if the policy chose this group.
    pub chosen: bool,
}

/// Next migration of a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextMove {
    pub at_s: f64,
    pub cpu: u32,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program,
            thread,
            at_s,
            cpu,
            core_type,
            llc,
            since_s,
            allowed,
            ..
        } = self;
        let state = if self.runnable { "" } else { ", asleep" };
        writeln!(
            f,
            "{program} (thread {thread}) at {at_s:.3} s: on CPU {cpu} ({core_type}, {llc}) since {since_s:.3} s{state}"
        )?;
        writeln!(f, "  allowed  CPUs {allowed}")?;
        match &self.decision {
            Some(decision) => write!(f, "{decision}")?,
            None => writeln!(
                f,
                "  decision none: {} had not placed it, so the kernel chose",
                self.policy
            )?,
        }
        self.what_followed(f)
    }
}

impl Explanation {
    fn what_followed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, after) in self.after.iter().enumerate() {
            let before = self.before.iter().find(|b| b.name == after.name);
            let from =
                before.map_or_else(String::new, |b| format!("{} → ", metric(&b.name, b.value)));
            let head = if i == 0 { "after   " } else { "        " };
            writeln!(
                f,
                "  {head} {} {from}{}",
                after.name,
                metric(&after.name, after.value)
            )?;
        }
        match &self.next_move {
            Some(next) => {
                let later = seconds(next.at_s - self.at_s);
                writeln!(
                    f,
                    "  next     moved to CPU {} at {:.3} s, {later} later",
                    next.cpu, next.at_s
                )
            }
            None => writeln!(f, "  next     stayed on CPU {} to the end", self.cpu),
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at_s,
            since_s,
            target,
            cpus,
            rule,
            ..
        } = self;
        let since = if since_s < at_s {
            format!(", the same since {since_s:.3} s")
        } else {
            String::new()
        };
        writeln!(f, "  decision {target} (CPUs {cpus}) at {at_s:.3} s{since}")?;
        writeln!(f, "  rule     {rule}")?;
        if let Some(weight) = self.weight {
            writeln!(f, "  weight   {weight}")?;
        }
        let seen: Vec<String> = self
            .seen
            .iter()
            .map(|s| format!("{} {}", s.name, metric(&s.name, s.value)))
            .collect();
        if !seen.is_empty() {
            writeln!(f, "  saw      {}", seen.join(", "))?;
        }
        if self.alternatives.is_empty() {
            return Ok(());
        }
        let unit = if self.unit.is_empty() {
            "predicted value"
        } else {
            &self.unit
        };
        writeln!(f, "  could    ({unit})")?;
        let width = self
            .alternatives
            .iter()
            .map(|a| a.group.chars().count())
            .max()
            .unwrap_or(0)
            .min(WIDEST);
        for a in &self.alternatives {
            let mark = if a.chosen { "  ← chosen" } else { "" };
            writeln!(f, "    {:width$}  {}{mark}", a.group, number(a.value, 4))?;
        }
        Ok(())
    }
}

/// Formats the value of a metric with its usual unit.
pub(crate) fn metric(name: &str, value: f64) -> String {
    match name {
        "llc_occupancy" => crate::format::bytes(value),
        "ips" => format!("{}/s", crate::format::prefixed(value)),
        _ => number(value, 3),
    }
}
