//! Parsers of /proc files.
//!
//! Input: text written by the kernel. Output: its values, or the expected form and the line of the mismatch.

use countersteer_model::units::CpuId;

use super::{SchedstatSums, StallTime, Stat, Status, field};

/// Expected form, and the line number, counted from one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) line: usize,
    pub(super) expected: &'static str,
}

/// Parses a `status` file.
pub(super) fn status(text: &str) -> Result<Status, Error> {
    let number = |name: &'static str| {
        let line = text.lines().position(|line| line.starts_with(name));
        let value = field(text, name).and_then(|value| value.parse().ok());
        value.ok_or(Error {
            line: line.unwrap_or_default() + 1,
            expected: name,
        })
    };
    let users = field(text, "Uid").unwrap_or_default().split_whitespace();
    Ok(Status {
        process: number("Tgid")?,
        parent: number("PPid")?,
        own_number: field(text, "NSpid")
            .and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok()),
        users: users.filter_map(|id| id.parse().ok()).collect(),
        capabilities: field(text, "CapEff")
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .unwrap_or_default(),
        has_memory: field(text, "VmSize").is_some(),
    })
}

/// Parses the line of a `stat` file of a thread or a process.
pub(super) fn stat(line: &[u8]) -> Option<Stat> {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    const EXITING: u64 = 4;
    // A name may contain blanks and parentheses; only numbers follow the last parenthesis.
    let name_ends = line.iter().rposition(|b| *b == b')')?;
    let mut fields = str::from_utf8(&line[name_ends + 1..])
        .ok()?
        .split_ascii_whitespace();
    let state = fields.next()?;
    // `skip` fields are skipped before each number.
    let mut number = |skip: usize| fields.nth(skip)?.parse::<i64>().ok();
    let parent = u32::try_from(number(0)?).ok()?;
    let session = u32::try_from(number(1)?).ok()?;
    let flags = number(2)? as u64;
    let user_ticks = u64::try_from(number(4)?).ok()?;
    let system_ticks = u64::try_from(number(0)?).ok()?;
    let nice = i8::try_from(number(3)?).ok()?;
    let threads = u64::try_from(number(0)?).ok()?;
    let started = u64::try_from(number(1)?).ok()?;
    let cpu = CpuId(u32::try_from(number(16)?).ok()?);
    Some(Stat {
        runnable: state == "R",
        zombie: matches!(state, "Z" | "X" | "x"),
        exiting: flags & EXITING != 0,
        parent,
        session,
        nice,
        ran_ticks: user_ticks.saturating_add(system_ticks),
        threads,
        started,
        cpu,
        kernel: flags & KERNEL_THREAD != 0,
    })
}

/// Parses a `schedstat` file of a thread.
pub(super) fn sums(text: &str) -> Result<SchedstatSums, Error> {
    let mut fields = text.split_whitespace().map(|f| f.parse().ok());
    let mut next = || {
        fields.next().flatten().ok_or(Error {
            line: 1,
            expected: "three numbers",
        })
    };
    Ok(SchedstatSums {
        ran_ns: next()?,
        waited_ns: next()?,
        times: next()?,
    })
}

/// Parses a `pressure` file, with lines `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
pub(super) fn pressure(text: &str) -> Result<StallTime, Error> {
    let mut pressure = StallTime::default();
    for (nth, line) in text.lines().enumerate() {
        let (whose, fields) = line.split_once(' ').unwrap_or((line, ""));
        let mut fields = fields.split_whitespace();
        let total = fields.find_map(|f| f.strip_prefix("total=")?.parse().ok());
        let total = total.ok_or(Error {
            line: nth + 1,
            expected: "`some` or `full`, and `total=MICROSECONDS`",
        })?;
        match whose {
            "some" => pressure.some_us = Some(total),
            "full" => pressure.full_us = Some(total),
            _ => {}
        }
    }
    Ok(pressure)
}

/// Parses a line `cpu3 user nice system idle iowait irq softirq ...`. Returns the CPU and the ticks in which it was busy.
pub(super) fn busy_ticks(line: &str) -> Option<(CpuId, f64)> {
    let mut fields = line.strip_prefix("cpu")?.split_whitespace();
    // The line of the sum over all CPUs has no number.
    let number = fields.next().filter(|_| !line.starts_with("cpu "))?;
    let ticks: Vec<f64> = fields.map_while(|f| f.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = ticks[..] else {
        return None;
    };
    let busy = user + nice + system + irq + softirq;
    Some((CpuId(number.parse().ok()?), busy))
}

#[cfg(test)]
mod tests {
    use countersteer_fuzz::storm;

    use super::*;

    const LINE: &str = "42 (a ) b) R 7 42 41 0 -1 4194304 1 0 0 0 30 12 0 0 20 5 3 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0";
    const STATUS: &str = "Name:\tsh\nTgid:\t42\nPPid:\t7\nUid:\t1000\t0\t0\t0\nNSpid:\t42\t12\t3\nVmSize:\t 9 kB\nCapEff:\t0000000000800000\n";
    const PRESSURE: &str = "some avg10=2.15 avg60=27.05 avg300=25.49 total=5000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";

    #[test]
    fn a_line_of_stat_is_read_behind_the_name() {
        let read = stat(LINE.as_bytes()).unwrap();
        assert_eq!((read.parent, read.session, read.nice), (7, 41, 5));
        assert_eq!((read.ran_ticks, read.threads), (42, 3));
        assert_eq!((read.started, read.cpu), (99, CpuId(3)));
        assert!(read.runnable && !read.kernel && !read.exiting && !read.zombie);
        let read = |from: &str, to: &str| stat(LINE.replace(from, to).as_bytes()).unwrap();
        assert!(read("4194304", "4194308").exiting);
        assert!(read("4194304", "2129984").kernel);
        assert!(read(") R ", ") Z ").zombie);
        assert_eq!(stat(b"42 (cut"), None);
    }

    #[test]
    fn what_was_expected_is_said_with_its_line() {
        let error = |line, expected| Err(Error { line, expected });
        assert_eq!(status(STATUS).map(|s| s.own_number), Ok(Some(3)));
        assert_eq!(
            status(&STATUS.replace("7", "x")).map(drop),
            error(3, "PPid")
        );
        assert_eq!(sums("100 50").map(drop), error(1, "three numbers"));
        assert_eq!(pressure(PRESSURE).map(|p| p.full_us), Ok(Some(7)));
        assert_eq!(
            pressure(&PRESSURE.replace("total=7", "")).unwrap_err().line,
            2
        );
    }

    #[test]
    fn ticks_are_those_in_which_a_cpu_ran_something() {
        assert_eq!(
            busy_ticks("cpu3 1 2 3 100 100 4 5 0 0 0"),
            Some((CpuId(3), 15.0))
        );
        assert_eq!(
            busy_ticks("cpu  1 2 3 100 100 4 5 0 0 0"),
            None,
            "of all CPUs"
        );
        assert_eq!(busy_ticks("intr 1 2 3"), None);
    }

    #[test]
    fn no_text_of_proc_makes_it_fall() {
        let text = String::from_utf8_lossy;
        storm("stat of a thread", &[LINE.as_bytes()], 1.0, |input| {
            let _ = stat(input);
        });
        storm("status", &[STATUS.as_bytes()], 1.0, |input| {
            let _ = status(&text(input));
        });
        storm("schedstat", &[b"100 50 5\n"], 1.0, |input| {
            let _ = sums(&text(input));
        });
        storm("pressure", &[PRESSURE.as_bytes()], 1.0, |input| {
            let _ = pressure(&text(input));
        });
        let stat = b"cpu  1 2 3 4 5 6 7 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n";
        storm("stat", &[stat], 1.0, |input| {
            let _ = text(input).lines().filter_map(busy_ticks).count();
        });
    }
}
