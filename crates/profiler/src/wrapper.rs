//! Scripts that only start another program, as version managers put them in PATH.
//!
//! Input: logs of the threads of a script. Output: those of the program that it became. Such scripts start dozens of short processes to
//! find out which program is meant, and these are none of the program's own threads.

use std::collections::BTreeSet;

use super::layout::{ENDED_EXEC, ENDED_PROCESS, record};
use super::raw::ThreadLog;

/// Leaves out what ended before the first process executed its last program; the instructions that were left out. Nothing is where
/// it executed none.
pub fn leave_out(threads: &mut Vec<ThreadLog>) -> u64 {
    let Some(first) = threads.iter().min_by_key(|t| t.ordinal).map(|t| t.pid) else {
        return 0;
    };
    let own = || threads.iter().filter(|t| t.pid == first);
    let executed = own().filter(|t| t.ended == ENDED_EXEC).map(|t| t.ordinal);
    let became = executed.max().and_then(|last| {
        let behind = own().filter(|t| t.ordinal > last);
        behind.min_by_key(|t| t.ordinal)
    });
    let Some((ordinal, began)) = became.and_then(|t| Some((t.ordinal, began(t)?))) else {
        return 0;
    };
    // All threads of a process end with the one that ends it.
    let enders = threads.iter().filter(|t| t.ended == ENDED_PROCESS);
    let over: BTreeSet<u64> = enders.map(|t| t.pid).collect();
    let is_before = |t: &ThreadLog| {
        let ended = t.windows.last().is_none_or(|w| w[record::STAMP] <= began);
        t.ordinal < ordinal && (t.ended != 0 || over.contains(&t.pid)) && ended
    };
    let before = threads.iter().filter(|t| is_before(t));
    let windows = before.flat_map(|t| &t.windows);
    let left_out = windows.map(|w| w[record::INSTRUCTIONS]).sum();
    threads.retain(|t| !is_before(t));
    left_out
}

/// The recording's instruction count when a thread's first window began.
fn began(thread: &ThreadLog) -> Option<u64> {
    let first = thread.windows.first()?;
    Some(first[record::STAMP].saturating_sub(first[record::INSTRUCTIONS]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(ordinal: u64, pid: u64, ended: u64, stamp: u64, instructions: u64) -> ThreadLog {
        let mut window = vec![0; record::WORDS];
        window[record::STAMP] = stamp;
        window[record::INSTRUCTIONS] = instructions;
        ThreadLog {
            ordinal,
            pid,
            ended,
            windows: vec![window],
        }
    }

    fn kept(mut threads: Vec<ThreadLog>) -> (Vec<u64>, u64) {
        let left_out = leave_out(&mut threads);
        (threads.iter().map(|t| t.ordinal).collect(), left_out)
    }

    #[test]
    fn only_the_program_that_a_wrapper_becomes_is_kept() {
        // A shell, two processes that it starts, another shell, and the program with a thread.
        let threads = vec![
            log(1, 10, ENDED_EXEC, 500, 300),
            log(2, 11, ENDED_PROCESS, 200, 100),
            log(3, 12, ENDED_PROCESS, 400, 100),
            log(4, 10, ENDED_EXEC, 600, 100),
            log(5, 10, ENDED_PROCESS, 9_000, 8_400),
            log(6, 10, 0, 8_000, 1_000),
        ];
        assert_eq!(kept(threads.clone()), (vec![5, 6], 600));
        // Threads of a process that has ended are over, too.
        let mut helper = threads.clone();
        helper.insert(2, log(3, 11, 0, 150, 50));
        assert_eq!(kept(helper), (vec![5, 6], 650));
        // What goes on beside the program stays, and so does what was killed.
        let mut daemon = threads[..5].to_vec();
        daemon[1].windows[0][record::STAMP] = 5_000;
        daemon[2].ended = 0;
        assert_eq!(kept(daemon), (vec![2, 3, 5], 400));
    }

    #[test]
    fn a_script_that_does_its_work_itself_is_kept_whole() {
        let threads = vec![
            log(1, 10, ENDED_PROCESS, 500, 300),
            log(2, 11, ENDED_EXEC, 200, 100),
            log(3, 11, ENDED_PROCESS, 400, 100),
        ];
        assert_eq!(kept(threads), (vec![1, 2, 3], 0));
        assert_eq!(kept(Vec::new()), (Vec::new(), 0));
        // Killed before its last program has executed anything.
        let unfinished = vec![log(1, 10, ENDED_EXEC, 500, 300)];
        assert_eq!(kept(unfinished), (vec![1], 0));
    }
}
