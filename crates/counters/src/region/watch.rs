//! Callbacks for each [`Moment`](super::every::TriggerMoment), in a separate thread.
//!
//! Input: an [`Every`] and a closure. Output: calls of the closure, soon after each moment, until the watch ends. The thread
//! sleeps between the calls and is never the counted one.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use super::super::CounterError;
use super::every::{Every, TriggerMoment};

/// Thread that passes moments to a closure as they come. The thread ends when this value is dropped.
#[derive(Debug)]
pub struct MomentWatch {
    stop: UnixStream,
    thread: Option<JoinHandle<Result<Every, CounterError>>>,
}

impl Every {
    /// Calls `each` for every moment from now on, in a separate thread.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn watch(
        self,
        each: impl FnMut(&TriggerMoment<'_>) + Send + 'static,
    ) -> Result<MomentWatch, CounterError> {
        let failed = CounterError::system("starting the thread that watches");
        let (stop, stopped) = UnixStream::pair().map_err(&failed)?;
        let run = move || hand_on(self, &stopped, each);
        let thread = std::thread::Builder::new()
            .name("countersteer".into())
            .spawn(run)
            .map_err(failed)?;
        Ok(MomentWatch {
            stop,
            thread: Some(thread),
        })
    }
}

fn hand_on(
    mut every: Every,
    stopped: &UnixStream,
    mut each: impl FnMut(&TriggerMoment<'_>),
) -> Result<Every, CounterError> {
    let stops = || {
        stopped
            .set_nonblocking(true)
            .and_then(|()| std::io::Read::read(&mut &*stopped, &mut [0]))
    };
    loop {
        every.wait_or(None, Some(stopped.as_fd()))?;
        every.take(&mut each);
        // There is a byte to read, or the other end of the socket is closed.
        if stops().is_ok() {
            every.take(&mut each);
            return Ok(every);
        }
    }
}

impl MomentWatch {
    /// Ends the thread after it has passed on all moments. Returns the watched counters.
    ///
    /// # Errors
    /// Fails if waiting for moments failed, or the closure panicked.
    pub fn end(mut self) -> Result<Every, CounterError> {
        let panicked = |_| CounterError::Region("the callback of a watch has panicked");
        self.join()
            .map_or(Err(CounterError::Region("the watch has ended")), |end| {
                end.map_err(panicked)?
            })
    }

    fn join(&mut self) -> Option<std::thread::Result<Result<Every, CounterError>>> {
        let thread = self.thread.take()?;
        // The write fails if the thread has already failed and closed its end, which is no error.
        let _ = (&self.stop).write(&[0]);
        Some(thread.join())
    }
}

impl Drop for MomentWatch {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::RegionOptions;
    use super::*;

    /// Touches new pages, each a page fault.
    fn touch(pages: usize) {
        let length = pages * 4096;
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping, of which each page is written once before it is unmapped.
        unsafe {
            let base = libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            libc::madvise(base, length, libc::MADV_NOHUGEPAGE);
            (0..pages).for_each(|page| base.cast::<u8>().add(page * 4096).write_volatile(1));
            libc::munmap(base, length);
        }
    }

    fn opened(events: &str, number: u64) -> Option<Every> {
        match Every::open(events, number, RegionOptions::default()) {
            Ok(every) => Some(every),
            Err(error @ CounterError::Forbidden { .. }) => {
                countersteer_fuzz::skipped(format_args!("nothing is counted here ({error})"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_moment_comes_each_so_many_events_and_tells_what_happened_since() {
        let Some(mut every) = opened("page_faults,task_clock", 100) else {
            return;
        };
        touch(500);
        assert_eq!(every.take(|_| {}), 0, "it was not switched on");
        every.control().on().unwrap();
        touch(1000);
        every.control().off().unwrap();
        touch(500);
        assert!(every.wait(Some(std::time::Duration::ZERO)).unwrap());
        let mut moments = Vec::new();
        every.take(|m| {
            moments.push((
                m.at_ns,
                m.thread,
                m.counts[0].value,
                m.counts[1].value,
                m.counts[0].running_ns,
            ))
        });
        assert!((10..=11).contains(&moments.len()), "{moments:?}");
        assert!(
            moments
                .iter()
                .all(|m| m.2 == Some(100) && m.3 > Some(0) && m.4 > 0),
            "{moments:?}"
        );
        assert!(moments.is_sorted_by_key(|m| m.0) && moments.iter().all(|m| m.1 == moments[0].1));
        assert!(
            !every.wait(Some(std::time::Duration::ZERO)).unwrap() && every.control().lost() == 0
        );
    }

    #[test]
    fn what_does_not_fit_is_counted_and_is_in_the_next_moment() {
        let Some(mut every) = opened("page_faults", 1) else {
            return;
        };
        every.control().on().unwrap();
        touch(5_000);
        let mut seen = Vec::new();
        every.take(|m| seen.push(m.counts[0].value.unwrap()));
        touch(10);
        every.take(|m| seen.push(m.counts[0].value.unwrap()));
        let lost = every.control().lost();
        assert!(
            lost > 1000 && seen.iter().any(|n| *n == lost + 1),
            "{lost} {:?}",
            seen.iter().max()
        );
        assert!(seen.iter().sum::<u64>() >= 5_010);
    }

    #[test]
    fn a_watch_hands_on_every_moment_and_gives_back_what_it_watched() {
        let Some(every) = opened("page_faults", 50) else {
            return;
        };
        let control = every.control();
        let seen = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&seen);
        let watch = every
            .watch(move |m| *counted.lock().unwrap() += m.counts[0].value.unwrap())
            .unwrap();
        control.on().unwrap();
        touch(1000);
        control.off().unwrap();
        let mut every = watch.end().unwrap();
        let seen = *seen.lock().unwrap();
        assert!((1000..1100).contains(&seen), "{seen}");
        assert_eq!(every.take(|_| {}), 0);
    }

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let Some(mut every) = std::thread::spawn(|| {
            let every = opened("page_faults", 10)?;
            every.control().on().unwrap();
            touch(25);
            Some(every)
        })
        .join()
        .unwrap() else {
            return;
        };
        let begun = std::time::Instant::now();
        while every
            .wait(Some(std::time::Duration::from_secs(30)))
            .unwrap()
        {
            every.take(|_| {});
        }
        assert!(begun.elapsed().as_secs() < 20);
        drop(every.watch(|_| {}).unwrap());
    }

    #[test]
    fn zero_events_and_inheritance_are_refused() {
        let error = Every::open("page_faults", 0, RegionOptions::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("at least 1"), "{error}");
        assert!(
            Every::open(
                "page_faults",
                1,
                RegionOptions {
                    inherit: true,
                    thread: None
                }
            )
            .is_err()
        );
    }
}
