//! What a session waits for besides time and counters: ends of processes, signals, somebody who stops it.
//!
//! Most waiting is for these alone, a hundred times a second, so the kernel keeps the list of them. Input: files, how long. Output:
//! why waiting ended.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use countersteer_core::units::Nanos;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::io::Errno;
use signal_hook::consts::SIGTERM;

use super::CounterError;
use crate::signals::Signals;

/// Why waiting ended; all false for time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wake {
    pub(super) ended: bool,
    /// A signal, and whether it was sent to this process alone.
    pub(super) signal: Option<(i32, bool)>,
    /// A process that was waited for has ended, or a file can be read.
    pub(super) file: bool,
}

/// What came of one file each.
pub(super) type Came = Vec<PollFlags>;

/// What the kernel calls a file when something came of it.
const SIGNALS: u64 = 0;
const STOP: u64 = 1;
const FIRST_PROCESS: u64 = 2;
/// So many things are taken note of at once; more come with the next call.
const AT_ONCE: usize = 8;

/// What ends waiting besides time and counters.
#[derive(Debug)]
pub(super) struct Attention {
    set: OwnedFd,
    /// Processes that are waited for, by what the kernel calls them.
    processes: Vec<(u64, OwnedFd)>,
    next: u64,
    signals: Signals,
    /// A byte here ends the session, as a signal would.
    stop: (UnixStream, UnixStream),
    /// Why it does not wait for something.
    trouble: Option<CounterError>,
}

impl Attention {
    /// For processes whose end is awaited.
    pub(super) fn new(processes: Vec<OwnedFd>) -> Result<Self, CounterError> {
        let system = CounterError::system("listening for signals");
        let stop = UnixStream::pair().map_err(&system)?;
        stop.0.set_nonblocking(true).map_err(&system)?;
        let signals = Signals::listen().map_err(&system)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| system(e.into()))?;
        let mut attention = Self {
            set,
            processes: Vec::new(),
            next: FIRST_PROCESS,
            signals,
            stop,
            trouble: None,
        };
        attention.heed(&attention.signals, SIGNALS)?;
        attention.heed(&attention.stop.0, STOP)?;
        processes
            .into_iter()
            .for_each(|process| attention.await_also(process));
        Ok(attention)
    }

    fn heed(&self, file: &impl AsFd, name: u64) -> Result<(), CounterError> {
        let data = epoll::EventData::new_u64(name);
        let added = epoll::add(&self.set, file, data, epoll::EventFlags::IN);
        added.map_err(|e| CounterError::system("watching a file")(e.into()))
    }

    /// Waits for this one too, once. If that cannot be done, waiting says so.
    pub(super) fn await_also(&mut self, process: OwnedFd) {
        match self.heed(&process, self.next) {
            Ok(()) => self.processes.push((self.next, process)),
            Err(error) => self.trouble = Some(error),
        }
        self.next += 1;
    }

    /// Waits for what another one waited for.
    pub(super) fn take_over(&mut self, from: &mut Self) {
        for (_, process) in std::mem::take(&mut from.processes) {
            ignore(&from.set, &process);
            self.await_also(process);
        }
    }

    /// Waits so long, or until something can be read in one of these files; what came in them.
    pub(super) fn wait(
        &mut self,
        left: Nanos,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Wake, Came), CounterError> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        if files.is_empty() {
            return Ok((self.wait_for_own(left)?, Came::new()));
        }
        let time = timespec(left);
        let all = files.iter().copied().chain([self.set.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let interrupted = match ppoll(
            &mut fds,
            Some(TimeSpec::new(time.tv_sec, time.tv_nsec)),
            None,
        ) {
            Ok(_) => false,
            Err(nix::errno::Errno::EINTR) => true,
            Err(e) => return Err(CounterError::system("waiting for counters")(e.into())),
        };
        let mut came: Came = fds
            .iter()
            .map(|fd| fd.revents().unwrap_or(PollFlags::empty()))
            .collect();
        let own = came.pop().is_some_and(|own| !own.is_empty());
        let wake = if own || interrupted {
            self.wait_for_own(Nanos::ZERO)?
        } else {
            Wake::default()
        };
        Ok((wake, came))
    }

    /// The same, for nothing else.
    fn wait_for_own(&mut self, left: Nanos) -> Result<Wake, CounterError> {
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let waited = match epoll::wait(&self.set, &mut events, Some(&timespec(left))) {
            // Before Linux 5.11 time is told in milliseconds.
            Err(Errno::NOSYS) => {
                let left = Nanos(left.0.div_ceil(1_000_000).saturating_mul(1_000_000));
                epoll::wait(&self.set, &mut events, Some(&timespec(left)))
            }
            waited => waited,
        };
        let (came, interrupted) = match waited {
            Ok((came, _)) => (&*came, false),
            Err(Errno::INTR) => (&[][..], true),
            Err(e) => return Err(CounterError::system("waiting for counters")(e.into())),
        };
        let heard = |name: u64| came.iter().any(|event| event.data.u64() == name);
        let before = self.processes.len();
        for (_, process) in self.processes.extract_if(.., |(name, _)| heard(*name)) {
            ignore(&self.set, &process);
        }
        let ended = before > 0 && self.processes.is_empty();
        let signal = if interrupted || heard(SIGNALS) {
            self.signals.pending()
        } else {
            None
        };
        let stopped =
            (interrupted || heard(STOP)) && self.stop.0.read(&mut [0]).is_ok_and(|n| n > 0);
        let file = self.processes.len() < before;
        Ok(Wake {
            ended,
            signal: signal.or(stopped.then_some((SIGTERM, true))),
            file,
        })
    }

    /// Where a byte ends the session.
    pub(super) fn stopper(&self) -> Result<UnixStream, CounterError> {
        self.stop
            .1
            .try_clone()
            .map_err(CounterError::system("preparing the end of counting"))
    }
}

const fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: (time.0 / 1_000_000_000) as i64,
        tv_nsec: (time.0 % 1_000_000_000) as i64,
    }
}

/// Closing a file would not do as long as it is open under another number.
fn ignore(set: &OwnedFd, file: &OwnedFd) {
    // It is one of the set.
    let _ = epoll::delete(set, file);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    const LONG: Nanos = Nanos::from_millis(20_000);

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn it_is_over_when_all_have_ended_and_not_before() {
        let ends: Vec<_> = (0..20).map(|_| pair()).collect();
        let mut attention = Attention::new(Vec::new()).unwrap();
        let (mut mine, others): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        others
            .into_iter()
            .for_each(|file| attention.await_also(file.into()));
        let last = mine.pop().unwrap();
        drop(mine);
        // All of those at once are more than are taken note of at once.
        let mut rounds = 0;
        while attention.processes.len() > 1 {
            let (wake, _) = attention.wait(LONG, &[]).unwrap();
            assert_eq!(
                wake,
                Wake {
                    file: true,
                    ..Wake::default()
                }
            );
            rounds += 1;
        }
        assert_eq!(rounds, 3);
        let short = Nanos::from_millis(2);
        let begun = Instant::now();
        assert_eq!(attention.wait(short, &[]).unwrap().0, Wake::default());
        assert!(begun.elapsed().as_nanos() >= short.0.into());
        drop(last);
        assert_eq!(
            attention.wait(LONG, &[]).unwrap().0,
            Wake {
                ended: true,
                file: true,
                signal: None
            }
        );
    }

    #[test]
    fn files_and_what_it_heeds_itself_are_told_apart() {
        let ((mut one, read), (end, process)) = (pair(), pair());
        let mut former = Attention::new(vec![process.into()]).unwrap();
        let mut attention = Attention::new(Vec::new()).unwrap();
        attention.take_over(&mut former);
        let files = [read.as_fd()];
        assert_eq!(
            attention.wait(Nanos::ZERO, &files).unwrap(),
            (Wake::default(), vec![PollFlags::empty()])
        );
        one.write_all(b"x").unwrap();
        assert_eq!(
            attention.wait(LONG, &files).unwrap(),
            (Wake::default(), vec![PollFlags::POLLIN])
        );
        drop(end);
        let ended = Wake {
            ended: true,
            file: true,
            signal: None,
        };
        assert_eq!(
            attention.wait(LONG, &files).unwrap(),
            (ended, vec![PollFlags::POLLIN])
        );
        attention.stopper().unwrap().write_all(b"x").unwrap();
        let stopped = Wake {
            signal: Some((SIGTERM, true)),
            ..Wake::default()
        };
        assert_eq!(attention.wait(LONG, &[]).unwrap().0, stopped);
        assert_eq!(
            attention.wait(Nanos::ZERO, &[]).unwrap().0,
            Wake::default(),
            "once"
        );
    }

    #[test]
    fn what_came_once_is_left_alone_though_it_is_still_open() {
        let (mut one, file) = pair();
        let mut attention = Attention::new(vec![file.try_clone().unwrap().into()]).unwrap();
        one.write_all(b"x").unwrap();
        assert!(attention.wait(LONG, &[]).unwrap().0.file);
        let begun = Instant::now();
        let short = Nanos::from_millis(2);
        assert_eq!(attention.wait(short, &[]).unwrap().0, Wake::default());
        assert!(begun.elapsed().as_nanos() >= short.0.into());
    }

    #[test]
    fn what_cannot_be_waited_for_is_an_error() {
        let plain = tempfile::tempfile().unwrap();
        let mut attention = Attention::new(vec![plain.into()]).unwrap();
        let error = attention.wait(Nanos::ZERO, &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "watching a file failed: Operation not permitted (os error 1)"
        );
    }
}
