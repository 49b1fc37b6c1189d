//! Watchdog of a run: the run's own thread is left behind if a call of its policy never returns.
//!
//! Input: work that calls a policy, and a time limit of each call. Output: the result of the work, or none if a call exceeded
//! the limit. No thread can be interrupted, so the work's thread remains in that call. Should the call return after all, the
//! thread unwinds: it drops everything that it holds, and makes no other change.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Size of the thread's stack in bytes: as large as a main thread usually has, for policies that recurse.
const STACK_BYTES: usize = 8 << 20;

/// Number of looks at a call after which it is given up. A time would also pass while this process is stopped.
const LOOKS: u32 = 10;

/// Calls of a policy, as seen by another thread.
#[derive(Clone, Debug, Default)]
pub struct PolicyCalls {
    state: Arc<AtomicU64>,
    /// Held while a call is given up and its consequences are drawn.
    giving_up: Arc<Mutex<()>>,
}

/// State of the calls once one was given up. Otherwise they have an odd number during a call, and an even one between two calls.
const GIVEN_UP: u64 = u64::MAX;

/// Payload with which the thread of a call that was given up unwinds.
struct LeftBehind;

impl PolicyCalls {
    /// Calls a policy. Unwinds if the call was given up meanwhile.
    pub fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let number = self.state.load(Ordering::SeqCst) + 1;
        self.state.store(number, Ordering::SeqCst);
        let result = call();
        if !self.replace(number, number + 1) {
            drop(self.giving_up());
            resume_unwind(Box::new(LeftBehind));
        }
        result
    }

    /// Returns the number of the current call; `None` between calls.
    fn current(&self) -> Option<u64> {
        Some(self.state.load(Ordering::SeqCst)).filter(|number| number % 2 == 1)
    }

    /// Gives a call up, which has no effect any more when it returns, and calls `undo`. Returns false if the call has returned.
    fn give_up(&self, number: u64, undo: impl Fn()) -> bool {
        let _held = self.giving_up();
        let given_up = self.replace(number, GIVEN_UP);
        if given_up {
            undo();
        }
        given_up
    }

    fn giving_up(&self) -> MutexGuard<'_, ()> {
        self.giving_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, before: u64, after: u64) -> bool {
        let replaced =
            self.state
                .compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
        replaced.is_ok()
    }
}

/// Works on a thread of its own and returns the result. Returns `None` if one of the `calls` takes longer than `limit`. Then
/// `undo` undoes the work; should the call return meanwhile, its thread waits for that.
///
/// # Errors
/// The thread cannot be created.
///
/// # Panics
/// Panics as the work does.
pub fn watched<T: Send + 'static>(
    calls: &PolicyCalls,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
    undo: impl Fn(),
) -> io::Result<Option<T>> {
    let (done, result) = channel();
    let worker = thread::Builder::new()
        .name("steer-deciding".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Without a receiver, the work was given up after its last call.
            let _ = done.send(work());
        })?;
    let mut call = None;
    let mut looks = 0;
    loop {
        match result.recv_timeout(limit / LOOKS) {
            Ok(result) => {
                // Everything that the thread holds is dropped.
                let _ = worker.join();
                return Ok(Some(result));
            }
            Err(RecvTimeoutError::Timeout) => {
                let before = std::mem::replace(&mut call, calls.current());
                looks = if call == before { looks + 1 } else { 0 };
                if looks >= LOOKS && call.is_some_and(|call| calls.give_up(call, &undo)) {
                    return Ok(None);
                }
            }
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Ok(()) => unreachable!("the thread sends before it ends"),
                Err(payload) => resume_unwind(payload),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// Value that sends when it is dropped.
    struct Held(std::sync::mpsc::Sender<&'static str>);

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn work_ends_with_its_result_or_its_panic() {
        let calls = PolicyCalls::default();
        let own = calls.clone();
        let sum = move || (1..=4).map(|n| own.call(|| n)).sum::<u32>();
        assert_eq!(watched(&calls, LIMIT, sum, || {}).unwrap(), Some(10));
        let own = calls.clone();
        let unwound = std::panic::catch_unwind(move || {
            let work = move || own.call(|| resume_unwind(Box::new("on purpose")));
            watched(&calls, LIMIT, work, || {})
        });
        assert_eq!(
            unwound.unwrap_err().downcast_ref(),
            Some(&"on purpose"),
            "the panic is the caller's"
        );
    }

    #[test]
    fn long_work_of_short_calls_is_not_given_up() {
        let calls = PolicyCalls::default();
        let own = calls.clone();
        // Long enough that a short call does not exceed it on a busy machine.
        let limit = LIMIT * 10;
        let work = move || {
            for _ in 0..40 {
                own.call(|| thread::sleep(limit / 50));
                thread::sleep(limit / 50);
            }
            thread::sleep(limit * 2);
        };
        assert_eq!(watched(&calls, limit, work, || {}).unwrap(), Some(()));
    }

    #[test]
    fn a_call_without_an_end_is_given_up_and_has_no_effect_when_it_ends_after_all() {
        let calls = PolicyCalls::default();
        let own = calls.clone();
        let (go_on, wait) = channel();
        let (said, heard): (_, Receiver<&str>) = channel();
        let wait = Mutex::new(wait);
        let work = move || {
            let held = Held(said);
            own.call(|| wait.lock().unwrap().recv().unwrap());
            held.0.send("continued").unwrap();
        };
        let begun = Instant::now();
        // The call returns while the work is undone.
        let undo = || {
            go_on.send(()).unwrap();
            assert!(
                heard.recv_timeout(LIMIT).is_err(),
                "the thread waits until all is undone"
            );
        };
        assert_eq!(watched(&calls, LIMIT, work, undo).unwrap(), None);
        assert!(begun.elapsed() > LIMIT);
        assert_eq!(heard.recv(), Ok("dropped"), "and nothing before");
        assert!(heard.recv().is_err());
    }
}
