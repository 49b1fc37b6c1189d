//! Runs command lines one after the other, each as its rules say.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::folder::Folder;
use crate::running::{PATIENCE, Started};

/// Longest time from an interrupt to the end, also on a busy machine.
const ENDING: Duration = Duration::from_secs(30);
/// Messages of a kernel or container that lets this user count nothing.
const NOT_PERMITTED: [&str; 2] = ["perf_event_paranoid permits", "not permitted"];

/// Treatment of a command line that does not just run to its end and succeed. Several may hold for one line.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// It has no end: it is interrupted when its output contains this text.
    Endless(&'static str),
    /// It has no end, and later lines need it: it works when this file exists, and is interrupted after the last line.
    Beside(&'static str),
    /// Some machines lack what it needs. There it ends with this exit code, and its output contains this text.
    Refused(i32, &'static str),
    /// It starts programs in the recorder.
    Records,
    /// It does not run, for this reason.
    NotRun(&'static str),
}

pub const NO_COUNTERS: Rule = Rule::Refused(4, "this machine has no hardware counters");

/// Beginnings of command lines, without `steer`, with their rules. A `$` at the end stands for the end of the line or for a comment.
pub type Rules = [(&'static str, Rule)];
/// Parts of command lines, with what stands in their place.
pub type Substitutions = [(&'static str, &'static str)];

fn begins(line: &str, beginning: &str) -> bool {
    let args = line.strip_prefix("steer ").unwrap_or_default();
    let command = args.split(" #").next().unwrap_or_default().trim_end();
    match beginning.strip_suffix('$') {
        Some(whole) => command == whole,
        None => command.starts_with(beginning),
    }
}

/// Fails if a rule or a substitution fits none of the lines.
pub fn assert_used(lines: &[String], rules: &Rules, substitutions: &Substitutions) {
    for (beginning, _) in rules {
        let fits = lines.iter().any(|line| begins(line, beginning));
        assert!(fits, "no line begins with `steer {beginning}`");
    }
    for (part, _) in substitutions {
        let fits = lines.iter().any(|line| line.contains(part));
        assert!(fits, "no line contains `{part}`");
    }
}

/// Lines that ran, and how they ended.
pub struct Session<'a> {
    folder: &'a Folder,
    rules: &'a Rules,
    substitutions: &'a Substitutions,
    beside: Vec<(String, Started)>,
    failed: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

impl<'a> Session<'a> {
    pub fn new(folder: &'a Folder, rules: &'a Rules, substitutions: &'a Substitutions) -> Self {
        Self {
            folder,
            rules,
            substitutions,
            beside: Vec::new(),
            failed: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Runs a line that begins with `steer `.
    pub fn run(&mut self, line: &str) {
        let rules = self.rules.iter();
        let rules = rules.filter(|(beginning, _)| begins(line, beginning));
        let rules: Vec<Rule> = rules.map(|(_, rule)| *rule).collect();
        let begun = std::time::Instant::now();
        match self.outcome(line, &rules) {
            Ok(outcome) => *self.counts.entry(outcome).or_default() += 1,
            Err(why) => self.failed.push(format!("{line}: {why}")),
        }
        println!("{:6.2} s  {line}", begun.elapsed().as_secs_f64());
    }

    fn outcome(&mut self, line: &str, rules: &[Rule]) -> Result<&'static str, String> {
        let reason = rules.iter().find_map(|rule| match rule {
            Rule::NotRun(why) => Some(why),
            _ => None,
        });
        if let Some(why) = reason {
            println!("not run, since it {why}:");
            return Ok("not run");
        }
        let records = rules.iter().any(|rule| matches!(rule, Rule::Records));
        if let Some(why) = self.folder.no_recorder().filter(|_| records) {
            countersteer_fuzz::skipped(format_args!("`{line}` does not run: {why}"));
            return Ok("without a recorder");
        }
        let mut started = self.started(line);
        let mut works = None;
        for rule in rules {
            match rule {
                Rule::Endless(text) => works = Some(started.says(text)),
                Rule::Beside(file) => works = Some(started.makes(&self.folder.path().join(file))),
                _ => {}
            }
        }
        match works {
            Some(true) if rules.iter().any(|rule| matches!(rule, Rule::Beside(_))) => {
                self.beside.push((line.to_owned(), started));
                Ok("beside the others")
            }
            Some(true) => interrupted(started).map(|()| "interrupted"),
            Some(false) => refused(line, &mut started, rules),
            None => {
                let Some(status) = started.end(PATIENCE) else {
                    return Err(format!("it does not end: {}", started.said()));
                };
                if status.success() {
                    return Ok("run");
                }
                refused(line, &mut started, rules)
            }
        }
    }

    fn started(&self, line: &str) -> Started {
        let mut line = line.to_owned();
        for pid in ["4711", "1234"] {
            line = line.replace(&format!(" {pid}"), &format!(" {}", self.folder.pid()));
        }
        for (part, other) in self.substitutions {
            line = line.replace(part, other);
        }
        let mut command = self.folder.command("sh");
        // Without a shell between, the exit code and the interrupt are those of `steer`.
        Started::new(command.args(["-c", &format!("exec {line}")]))
    }

    /// Interrupts what runs beside the others, and fails if any line failed.
    pub fn end(mut self, of: &str) {
        for (line, started) in self.beside.drain(..) {
            if let Err(why) = interrupted(started) {
                self.failed.push(format!("{line}: {why}"));
            }
        }
        println!("{of}: {:?}", self.counts);
        assert!(self.failed.is_empty(), "{of}:\n{}", self.failed.join("\n"));
    }
}

fn interrupted(mut started: Started) -> Result<(), String> {
    started.interrupt();
    let status = started.end(ENDING);
    let code = status.map(|status| status.code());
    if matches!(code, Some(Some(0 | 130))) {
        return Ok(());
    }
    Err(format!("{status:?} after an interrupt: {}", started.said()))
}

/// Checks the end of a line that failed: the machine must lack what it needs, and the message must name it.
fn refused(line: &str, started: &mut Started, rules: &[Rule]) -> Result<&'static str, String> {
    let code = started.end(PATIENCE).and_then(|status| status.code());
    let said = started.said();
    if NOT_PERMITTED.iter().any(|text| said.contains(text)) {
        countersteer_fuzz::skipped(format_args!("`{line}`: counting is not permitted here"));
        return Ok("not permitted");
    }
    for rule in rules {
        if let Rule::Refused(with, text) = rule
            && code == Some(*with)
            && said.contains(text)
        {
            countersteer_fuzz::skipped(format_args!("`{line}` is refused here: {text}"));
            return Ok("refused");
        }
    }
    Err(format!("exit code {code:?}: {said}"))
}
