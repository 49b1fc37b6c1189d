//! Watchdog of a run: the run's own thread is left behind if a call of its policy never returns.
//!
//! Input: work that calls a policy, and a time limit of each call. Output: the result of the work, or none if a call exceeded
//! the limit. No thread can be interrupted, so the work's thread remains in that call. Should the call return after all, the
//! thread unwinds: it makes no further change, and drops everything that it holds.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// States of a [`CallClock`] that are no time.
const IDLE: u64 = 0;
const GIVEN_UP: u64 = u64::MAX;

/// Size of the thread's stack in bytes: as large as a main thread usually has, for policies that recurse.
const STACK_BYTES: usize = 8 << 20;

/// Clock of the calls of a policy.
#[derive(Clone)]
pub struct CallClock {
    /// Start of the current call in milliseconds since `created`, or one of the other states.
    begun_ms: Arc<AtomicU64>,
    created: Instant,
}

/// Payload with which the thread of a call that was given up unwinds.
struct LeftBehind;

impl CallClock {
    pub fn new() -> Self {
        Self {
            begun_ms: Arc::default(),
            created: Instant::now(),
        }
    }

    /// Calls a policy. Unwinds if the call was given up meanwhile.
    pub fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        self.begun_ms.store(self.now_ms().max(1), Ordering::SeqCst);
        let result = call();
        if self.begun_ms.swap(IDLE, Ordering::SeqCst) == GIVEN_UP {
            resume_unwind(Box::new(LeftBehind));
        }
        result
    }

    fn now_ms(&self) -> u64 {
        self.created.elapsed().as_millis() as u64
    }

    /// Gives the current call up if it has taken longer than `limit`. Returns true if it has; it has then no effect any more.
    fn give_up(&self, limit: Duration) -> bool {
        let begun_ms = self.begun_ms.load(Ordering::SeqCst);
        let is_late = begun_ms != IDLE
            && u128::from(self.now_ms().saturating_sub(begun_ms)) > limit.as_millis();
        // A call that returns at this moment is not given up.
        is_late
            && self
                .begun_ms
                .compare_exchange(begun_ms, GIVEN_UP, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }
}

/// Works on a thread of its own and returns the result. Returns `None` if a call of `clock` takes longer than `limit`.
///
/// # Errors
/// The thread cannot be created.
///
/// # Panics
/// Panics as the work does.
pub fn watched<T: Send + 'static>(
    clock: &CallClock,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (done, result) = channel();
    let worker = thread::Builder::new()
        .name("steer-deciding".into())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            // Without a receiver, the work was given up after its last call.
            let _ = done.send(work());
        })?;
    loop {
        match result.recv_timeout(limit / 10) {
            Ok(result) => {
                // Everything that the thread holds is dropped.
                let _ = worker.join();
                return Ok(Some(result));
            }
            Err(RecvTimeoutError::Timeout) if clock.give_up(limit) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Ok(()) => unreachable!("the thread sends before it ends"),
                Err(payload) => resume_unwind(payload),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

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
        let clock = CallClock::new();
        let timed = clock.clone();
        let sum = move || (1..=4).map(|n| timed.time(|| n)).sum::<u32>();
        assert_eq!(watched(&clock, LIMIT, sum).unwrap(), Some(10));
        let timed = clock.clone();
        let unwound = std::panic::catch_unwind(move || {
            watched(&clock, LIMIT, move || {
                timed.time(|| resume_unwind(Box::new("on purpose")))
            })
        });
        assert_eq!(
            unwound.unwrap_err().downcast_ref(),
            Some(&"on purpose"),
            "the panic is the caller's"
        );
    }

    #[test]
    fn long_work_of_short_calls_is_not_given_up() {
        let clock = CallClock::new();
        let timed = clock.clone();
        let work = move || {
            for _ in 0..40 {
                timed.time(|| thread::sleep(LIMIT / 20));
                thread::sleep(LIMIT / 20);
            }
            thread::sleep(LIMIT * 2);
        };
        assert_eq!(watched(&clock, LIMIT, work).unwrap(), Some(()));
    }

    #[test]
    fn a_call_without_an_end_is_given_up_and_has_no_effect_when_it_ends_after_all() {
        let clock = CallClock::new();
        let timed = clock.clone();
        let (go_on, wait) = channel();
        let (said, heard): (_, Receiver<&str>) = channel();
        let wait = Mutex::new(wait);
        let work = move || {
            let held = Held(said);
            timed.time(|| wait.lock().unwrap().recv().unwrap());
            held.0.send("continued").unwrap();
        };
        let begun = Instant::now();
        assert_eq!(watched(&clock, LIMIT, work).unwrap(), None);
        assert!(begun.elapsed() > LIMIT);
        assert!(heard.try_recv().is_err(), "the thread is in its call");
        go_on.send(()).unwrap();
        assert_eq!(heard.recv(), Ok("dropped"), "and nothing before");
        assert!(heard.recv().is_err());
    }
}
