//! Command lines of a program with a number of threads.
//!
//! Input: words and assignments with `{n}`. Output: what is run, and what a user would type for it.

use countersteer_model::cpuset::CpuSet;
use countersteer_profiler::quoted;
use countersteer_sysfs::launch::find_program;

use super::error::ThreadsError;
use crate::bench::commands::{Timed, filled, words_of};
use crate::bench::places::Place;
use crate::bench::series::Arm;

/// Name of the parameter.
const NAME: &str = "n";
/// Long form of the parameter. `--help` shows it, because there `{n}` is replaced by a line break (clap).
const LONG: &str = "{threads}";
/// Variable by which OpenMP programs take their number of threads.
const OPENMP: &str = "OMP_NUM_THREADS";

/// Command with `{n}`.
#[derive(Clone, Debug)]
pub struct Form {
    words: Vec<String>,
    assignments: Vec<(String, String)>,
}

impl Form {
    /// Checks a command and assignments.
    ///
    /// # Errors
    /// `{n}` stands nowhere, an assignment is none, or the program does not exist.
    pub fn new(command: &[String], assignments: &[String]) -> anyhow::Result<Self> {
        let split = |given: &String| match given.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(ThreadsError::NoAssignment {
                given: given.clone(),
            }),
        };
        let place = format!("{{{NAME}}}");
        let short = |text: &String| text.replace(LONG, &place);
        let command: Vec<String> = command.iter().map(short).collect();
        let command = command.as_slice();
        let assignments: Vec<String> = assignments.iter().map(short).collect();
        let assignments = assignments
            .iter()
            .map(split)
            .collect::<Result<Vec<_>, _>>()?;
        let values = assignments.iter().map(|(_, value)| value);
        if !command
            .iter()
            .chain(values)
            .any(|text| text.contains(&place))
        {
            let command = quoted(command);
            return Err(ThreadsError::NoPlace { command }.into());
        }
        let words = match command {
            [text] => words_of(text),
            _ => command.to_vec(),
        };
        find_program(&words)?;
        Ok(Self { words, assignments })
    }

    /// The command with this number of threads, on these CPUs.
    pub fn arm(&self, place: Place, threads: usize) -> Arm {
        let parameters = vec![(NAME.to_owned(), threads.to_string())];
        let mut words = Vec::new();
        if !self.assignments.is_empty() {
            words.push("env".to_owned());
            let given = self.assignments.iter();
            words.extend(
                given.map(|(name, value)| format!("{name}={}", filled(value, &parameters))),
            );
        }
        words.extend(self.words.iter().map(|word| filled(word, &parameters)));
        Arm {
            command: Timed {
                text: self.typed(threads, place.mask()),
                words,
                parameters,
            },
            place,
        }
    }

    /// Command line to type; `cpus` by the kernel's numbers.
    pub fn typed(&self, threads: usize, cpus: Option<&CpuSet>) -> String {
        let parameters = [(NAME.to_owned(), threads.to_string())];
        let assigned = |(name, value): &(String, String)| {
            format!("{name}={}", quoted(&[filled(value, &parameters)]))
        };
        let mut parts: Vec<String> = self.assignments.iter().map(assigned).collect();
        parts.extend(cpus.map(|cpus| format!("taskset -c {cpus}")));
        let words: Vec<String> = self.words.iter().map(|w| filled(w, &parameters)).collect();
        parts.push(quoted(&words));
        parts.join(" ")
    }

    /// Command line that binds each thread of an OpenMP program to a CPU of its own; `None` if it is not known to be one.
    pub fn bound(&self, threads: usize, cpus: &CpuSet) -> Option<String> {
        self.assignments.iter().find(|(name, _)| name == OPENMP)?;
        let places = quoted(&[places(cpus)]);
        let command = self.typed(threads, None);
        Some(format!("OMP_PLACES={places} OMP_PROC_BIND=close {command}"))
    }
}

/// CPUs in the notation of `OMP_PLACES`: `{0}:8:2` is eight places from CPU 0 in steps of two.
fn places(cpus: &CpuSet) -> String {
    let all: Vec<u32> = cpus.iter().map(|cpu| cpu.0).collect();
    let mut parts = Vec::new();
    let mut rest = all.as_slice();
    while let [first, others @ ..] = rest {
        let stride = others.first().map_or(1, |next| next - first);
        let is_next = |(nth, cpu): &(usize, &u32)| **cpu == first + (*nth as u32 + 1) * stride;
        let length = 1 + others.iter().enumerate().take_while(is_next).count();
        let length = if length == 2 && stride > 1 { 1 } else { length };
        parts.push(match (length, stride) {
            (1, _) => format!("{{{first}}}"),
            (_, 1) => format!("{{{first}}}:{length}"),
            _ => format!("{{{first}}}:{length}:{stride}"),
        });
        rest = &rest[length..];
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn places_are_runs_with_their_stride() {
        for (list, expected) in [
            ("0-7", "{0}:8"),
            ("0,2,4,6", "{0}:4:2"),
            ("3", "{3}"),
            ("0,5", "{0},{5}"),
            ("0,2,4,6,16-19", "{0}:4:2,{16}:4"),
        ] {
            assert_eq!(places(&cpus(list)), expected);
        }
    }

    #[test]
    fn the_number_stands_in_words_or_assignments() {
        let form = Form::new(&words("sh -c {n}"), &[]).unwrap();
        assert_eq!(form.typed(4, Some(&cpus("0-3"))), "taskset -c 0-3 sh -c 4");
        assert_eq!(form.bound(4, &cpus("0-3")), None);
        let form = Form::new(&words("sh"), &["OMP_NUM_THREADS={n}".into()]).unwrap();
        assert_eq!(form.typed(2, None), "OMP_NUM_THREADS=2 sh");
        assert_eq!(
            form.bound(2, &cpus("0-1")).unwrap(),
            "OMP_PLACES='{0}:2' OMP_PROC_BIND=close OMP_NUM_THREADS=2 sh"
        );
        let long = Form::new(&words("sh -c {threads}"), &[]).unwrap();
        assert_eq!(long.typed(4, None), "sh -c 4");
        let text = Form::new(&["echo {n} | cat".to_owned()], &[]).unwrap();
        assert_eq!(text.typed(3, None), "sh -c 'echo 3 | cat'");
    }

    #[test]
    fn a_command_that_takes_no_number_is_refused_with_both_remedies() {
        let error = Form::new(&words("sh -c x"), &[]).unwrap_err().to_string();
        assert!(
            error.contains("`{n}`") && error.contains("--env OMP_NUM_THREADS={n}"),
            "{error}"
        );
        assert!(Form::new(&words("sh {n}"), &["x".into()]).is_err());
        assert!(Form::new(&words("./nosuch {n}"), &[]).is_err());
    }
}
