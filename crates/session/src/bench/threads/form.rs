//! Command lines of a program with a number of threads, and a chunking of its loops.
//!
//! Input: words and assignments with `{n}` and `{chunk}`. Output: what is run, and what a user would type for it.

use countersteer_lab::threads::candidates::Chunking;
use countersteer_model::cpuset::CpuSet;
use countersteer_profiler::quoted;
use countersteer_sysfs::launch::find_program;

use super::error::ThreadsError;
use crate::bench::commands::{TimedCommand, filled, words_of};
use crate::bench::places::NamedCpus;
use crate::bench::series::BenchArm;

/// Name of the parameter.
const NAME: &str = "n";
/// Long form of the parameter. `--help` shows it, because there `{n}` is replaced by a line break (clap).
const LONG: &str = "{threads}";
/// Variable by which OpenMP programs take their number of threads.
const OPENMP: &str = "OMP_NUM_THREADS";
/// Name of the chunking.
pub const CHUNK: &str = "chunk";
/// Chunkings that are tried by default, in the notation of `OMP_SCHEDULE`.
const CHUNKINGS: [&str; 4] = ["static", "dynamic,1", "dynamic,64", "guided"];

/// Number of threads, and row of the chunking.
pub(crate) type ThreadsWay = (usize, usize);

/// Command with `{n}`, and possibly `{chunk}`.
#[derive(Clone, Debug)]
pub struct CommandForm {
    words: Vec<String>,
    assignments: Vec<(String, String)>,
    /// Values of `{chunk}`; empty without it.
    chunkings: Vec<String>,
}

impl CommandForm {
    /// Checks a command, assignments, and the user's chunkings.
    ///
    /// # Errors
    /// `{n}` stands nowhere, an assignment is none, or the program does not exist; `{chunk}` stands nowhere, but there are chunkings.
    pub fn new(
        command: &[String],
        assignments: &[String],
        chunkings: &[String],
    ) -> anyhow::Result<Self> {
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
        let texts: Vec<&String> = command.iter().chain(values).collect();
        let names = |place: &str| texts.iter().any(|text| text.contains(place));
        if !names(&place) {
            let command = quoted(command);
            return Err(ThreadsError::NoPlace { command }.into());
        }
        let chunkings = match (names(&format!("{{{CHUNK}}}")), chunkings) {
            (false, []) => Vec::new(),
            (true, []) => CHUNKINGS.map(str::to_owned).to_vec(),
            (true, given) => given.to_vec(),
            (false, _) => {
                let command = quoted(command);
                return Err(ThreadsError::NoChunkPlace { command }.into());
            }
        };
        let words = match command {
            [text] => words_of(text),
            _ => command.to_vec(),
        };
        find_program(&words)?;
        Ok(Self {
            words,
            assignments,
            chunkings,
        })
    }

    /// Kinds of the chunkings; empty without `{chunk}`.
    pub fn chunkings(&self) -> Vec<Chunking> {
        let names = self.chunkings.iter();
        names.map(|name| Chunking::named(name)).collect()
    }

    /// Name of the chunking of a row; `None` without `{chunk}`.
    pub fn chunking(&self, row: usize) -> Option<&str> {
        self.chunkings.get(row).map(String::as_str)
    }

    fn parameters(&self, (threads, chunking): ThreadsWay) -> Vec<(String, String)> {
        let threads = (NAME.to_owned(), threads.to_string());
        let chunking = self.chunking(chunking);
        let chunking = chunking.map(|name| (CHUNK.to_owned(), name.to_owned()));
        std::iter::once(threads).chain(chunking).collect()
    }

    /// The command with this number of threads and this chunking, on these CPUs.
    pub fn arm(&self, place: NamedCpus, way: ThreadsWay) -> BenchArm {
        let parameters = self.parameters(way);
        let mut words = Vec::new();
        if !self.assignments.is_empty() {
            words.push("env".to_owned());
            let given = self.assignments.iter();
            words.extend(
                given.map(|(name, value)| format!("{name}={}", filled(value, &parameters))),
            );
        }
        words.extend(self.words.iter().map(|word| filled(word, &parameters)));
        BenchArm {
            command: TimedCommand {
                text: self.typed(way, place.mask()),
                words,
                parameters,
            },
            place,
        }
    }

    /// Command line to type; `cpus` by the kernel's numbers.
    pub fn typed(&self, way: ThreadsWay, cpus: Option<&CpuSet>) -> String {
        let parameters = self.parameters(way);
        let assigned = |(name, value): &(String, String)| {
            format!("{name}={}", quoted(&[filled(value, &parameters)]))
        };
        let mut parts: Vec<String> = self.assignments.iter().map(assigned).collect();
        parts.extend(cpus.map(|cpus| format!("taskset -c {cpus}")));
        let words: Vec<String> = self.words.iter().map(|w| filled(w, &parameters)).collect();
        parts.push(quoted(&words));
        parts.join(" ")
    }

    /// Command line that binds each thread of an OpenMP program to a CPU of its own; `None` if it is not known to be one, or has more
    /// threads than CPUs.
    pub fn bound(&self, way: ThreadsWay, cpus: &CpuSet) -> Option<String> {
        if way.0 > cpus.len() {
            return None;
        }
        self.assignments.iter().find(|(name, _)| name == OPENMP)?;
        let places = quoted(&[places(cpus)]);
        let command = self.typed(way, None);
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
        let form = CommandForm::new(&words("sh -c {n}"), &[], &[]).unwrap();
        assert_eq!(
            form.typed((4, 0), Some(&cpus("0-3"))),
            "taskset -c 0-3 sh -c 4"
        );
        assert_eq!(form.bound((4, 0), &cpus("0-3")), None);
        let form = CommandForm::new(&words("sh"), &["OMP_NUM_THREADS={n}".into()], &[]).unwrap();
        assert_eq!(form.typed((2, 0), None), "OMP_NUM_THREADS=2 sh");
        assert_eq!(
            form.bound((2, 0), &cpus("0-1")).unwrap(),
            "OMP_PLACES='{0}:2' OMP_PROC_BIND=close OMP_NUM_THREADS=2 sh"
        );
        let long = CommandForm::new(&words("sh -c {threads}"), &[], &[]).unwrap();
        assert_eq!(long.typed((4, 0), None), "sh -c 4");
        let text = CommandForm::new(&["echo {n} | cat".to_owned()], &[], &[]).unwrap();
        assert_eq!(text.typed((3, 0), None), "sh -c 'echo 3 | cat'");
    }

    #[test]
    fn a_command_that_takes_no_number_is_refused_with_both_remedies() {
        let error = CommandForm::new(&words("sh -c x"), &[], &[])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`{n}`") && error.contains("--env OMP_NUM_THREADS={n}"),
            "{error}"
        );
        assert!(CommandForm::new(&words("sh {n}"), &["x".into()], &[]).is_err());
        assert!(CommandForm::new(&words("./nosuch {n}"), &[], &[]).is_err());
    }

    #[test]
    fn chunkings_are_openmps_unless_others_are_given() {
        let env = ["OMP_NUM_THREADS={n}", "OMP_SCHEDULE={chunk}"].map(str::to_owned);
        let form = CommandForm::new(&words("sh"), &env, &[]).unwrap();
        assert_eq!(form.chunkings().len(), 4);
        assert_eq!(
            form.typed((2, 1), None),
            "OMP_NUM_THREADS=2 OMP_SCHEDULE=dynamic,1 sh"
        );
        assert!(form.bound((2, 1), &cpus("0-1")).is_some());
        assert_eq!(form.bound((3, 1), &cpus("0-1")), None, "more than CPUs");
        let own = ["8".to_owned(), "512".to_owned()];
        let form = CommandForm::new(&words("sh -c {n} {chunk}"), &[], &own).unwrap();
        assert_eq!(form.typed((2, 1), None), "sh -c 2 512");
        let error = CommandForm::new(&words("sh -c {n}"), &[], &own).unwrap_err();
        assert!(
            error.to_string().contains("OMP_SCHEDULE={chunk}"),
            "{error}"
        );
    }
}
