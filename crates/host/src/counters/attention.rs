//! What a session waits for besides time and counters: ends of processes, signals, somebody who stops it.
//!
//! Input: files, how long. Output: why waiting ended.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use countersteer_model::units::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
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

/// What ends waiting besides time and counters.
#[derive(Debug)]
pub(super) struct Attention {
    /// Processes that are waited for.
    processes: Vec<OwnedFd>,
    signals: Signals,
    /// A byte here ends the session, as a signal would.
    stop: (UnixStream, UnixStream),
}

impl Attention {
    /// For processes whose end is awaited.
    pub(super) fn new(processes: Vec<OwnedFd>) -> Result<Self, CounterError> {
        let system = CounterError::system("listening for signals");
        let stop = UnixStream::pair().map_err(&system)?;
        stop.0.set_nonblocking(true).map_err(&system)?;
        let signals = Signals::listen().map_err(&system)?;
        Ok(Self {
            processes,
            signals,
            stop,
        })
    }

    /// Waits for this one too, once.
    pub(super) fn await_also(&mut self, process: OwnedFd) {
        self.processes.push(process);
    }

    /// Waits for what another one waited for.
    pub(super) fn take_over(&mut self, from: &mut Self) {
        self.processes.append(&mut from.processes);
    }

    /// Waits so long, or until something can be read in one of these files; what came in them.
    pub(super) fn wait(
        &mut self,
        left: Nanos,
        files: &[BorrowedFd<'_>],
    ) -> Result<(Wake, Came), CounterError> {
        let own = [self.signals.as_fd(), self.stop.0.as_fd()];
        let processes = self.processes.iter().map(AsFd::as_fd);
        let all = files.iter().copied().chain(own).chain(processes);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let time = TimeSpec::from_duration(Duration::from_nanos(left.0));
        let interrupted = match ppoll(&mut fds, Some(time), None) {
            Ok(_) => false,
            Err(Errno::EINTR) => true,
            Err(e) => return Err(CounterError::system("waiting for counters")(e.into())),
        };
        let told = |fd: &PollFd<'_>| match fd.revents() {
            // Of an interruption the kernel tells nothing else.
            Some(flags) if !interrupted => flags,
            _ => PollFlags::empty(),
        };
        let mut came: Came = fds.iter().map(told).collect();
        let mut own = came
            .split_off(files.len())
            .into_iter()
            .map(|f| !f.is_empty());
        let signalled = own.next() == Some(true) || interrupted;
        let stopped = own.next() == Some(true) || interrupted;
        let before = self.processes.len();
        self.processes.retain(|_| own.next() != Some(true));
        let signal = signalled.then(|| self.signals.pending()).flatten();
        let stopped = stopped && self.stop.0.read(&mut [0]).is_ok_and(|n| n > 0);
        let wake = Wake {
            ended: before > 0 && self.processes.is_empty(),
            signal: signal.or(stopped.then_some((SIGTERM, true))),
            file: self.processes.len() < before,
        };
        Ok((wake, came))
    }

    /// Where a byte ends the session.
    pub(super) fn stopper(&self) -> Result<UnixStream, CounterError> {
        self.stop
            .1
            .try_clone()
            .map_err(CounterError::system("preparing the end of counting"))
    }
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
        let some = Wake {
            file: true,
            ..Wake::default()
        };
        assert_eq!(attention.wait(LONG, &[]).unwrap().0, some);
        assert_eq!(attention.processes.len(), 1);
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
}
