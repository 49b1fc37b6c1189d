//! Page faults stand for accesses: a page's first use is a sample.

use super::*;
use crate::perf::pmu::Pmus;

/// Reads a new page, then touches 9 others and the first one again, 300 times. Each page is used once more at once, because the
/// instruction that faulted is repeated.
const PAGES: &str = "
import mmap
for _ in range(300):
    with mmap.mmap(-1, 40960) as memory:
        for page in range(10):
            memory[4096 * page] = 1
";

#[test]
fn a_sampled_line_is_seen_again_by_the_instruction_that_faulted() {
    let command = ["python3", "-c", PAGES].map(String::from);
    let found = match run(&command, "page_faults", 7) {
        Ok(found) => found,
        Err(error @ (CounterError::Forbidden { .. } | CounterError::Refused { .. })) => {
            countersteer_fuzz::skipped(error);
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found.exit_code, 0);
    assert!(
        found.samples > 400 && found.addresses == found.samples,
        "{found:?}"
    );
    let again = found.watched.iter();
    let again = again.filter(|w| w.again && w.accesses <= 1.0).count();
    let all = found.watched.len();
    assert!(all > 50 && again > all * 8 / 10, "{again} of {all}");
}

#[test]
fn a_program_that_fails_or_is_killed_is_said_to() {
    let sh = |text: &str| ["sh", "-c", text].map(String::from);
    let Ok(found) = run(&sh("exit 3"), "page_faults", 1_000_000) else {
        countersteer_fuzz::skipped("page faults cannot be sampled here");
        return;
    };
    assert_eq!((found.exit_code, found.samples), (3, 0));
    let found = run(&sh("kill -9 $$"), "page_faults", 1_000_000).unwrap();
    assert_eq!(found.exit_code, 137);
    let found = run(&sh("kill -USR1 $$; exit 0"), "page_faults", 3).unwrap();
    assert_eq!(
        found.exit_code,
        128 + libc::SIGUSR1,
        "signals of the program are its own"
    );
    let found = run(&sh("kill -36 $$"), "page_faults", 3).unwrap();
    assert_eq!(found.exit_code, 128 + 36, "a real-time signal");
    let missing = run(&["/no/such/program".into()], "page_faults", 9).unwrap_err();
    assert!(
        missing.to_string().contains("starting the program"),
        "{missing}"
    );
}

#[test]
fn the_event_is_that_of_the_machine() {
    let none = Pmus::read(std::path::Path::new("/nowhere")).map(|pmus| named(&pmus));
    assert!(none.is_ok_and(|name| name.is_none()));
}

/// Threads that end in different ways: with their work done, and by the end of the program while they are sampled.
const THREADS: &str = "
import mmap, os, threading, time
def touch():
    while True:
        with mmap.mmap(-1, 40960) as memory:
            for page in range(10):
                memory[4096 * page] = 1
def brief():
    bytearray(1 << 20)
for _ in range(20):
    threading.Thread(target=brief).start()
for _ in range(4):
    threading.Thread(target=touch, daemon=True).start()
time.sleep(.2)
os._exit(5)
";

#[test]
fn threads_that_are_killed_while_they_are_sampled_end_the_run_well() {
    let command = ["python3", "-c", THREADS].map(String::from);
    for _ in 0..5 {
        let Ok(found) = run(&command, "page_faults", 3) else {
            countersteer_fuzz::skipped("page faults cannot be sampled here");
            return;
        };
        assert_eq!(found.exit_code, 5);
        assert!(found.samples > 100, "{}", found.samples);
    }
}

#[test]
fn events_that_cannot_be_sampled_are_refused_before_a_run() {
    assert!(check("page_faults,task_clock").is_err() && check("no_such_event").is_err());
}
