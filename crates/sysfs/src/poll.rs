//! Poller for several descriptors: exits of processes, signals, a stop from another thread, and files of the caller.
//!
//! Input: files, and a timeout. Output: the reason for the wake-up.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use countersteer_model::units::Nanos;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use signal_hook::consts::SIGTERM;

use crate::signals::EndSignals;

/// Reason for a wake-up; all fields are false or `None` after a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wake {
    pub ended: bool,
    /// Signal, and true if it was sent to this process alone.
    pub signal: Option<(i32, bool)>,
    /// True if an awaited process has ended, or a file is readable.
    pub file: bool,
}

/// Poll flags of each file.
pub type Came = Vec<PollFlags>;

/// Sources of wake-ups besides the timeout and the caller's files.
#[derive(Debug)]
pub struct Poller {
    /// Awaited processes.
    processes: Vec<OwnedFd>,
    signals: EndSignals,
    /// A byte on this stream ends the session, as a signal would.
    stop: (UnixStream, UnixStream),
}

impl Poller {
    /// Creates a poller for the exits of these processes.
    ///
    /// # Errors
    /// Fails with EMFILE if no descriptor is left for signals.
    pub fn new(processes: Vec<OwnedFd>) -> io::Result<Self> {
        let stop = UnixStream::pair()?;
        stop.0.set_nonblocking(true)?;
        Ok(Self {
            processes,
            signals: EndSignals::listen()?,
            stop,
        })
    }

    /// Awaits the exit of this process too, once.
    pub fn await_also(&mut self, process: OwnedFd) {
        self.processes.push(process);
    }

    /// Takes over the awaited processes of another poller, and the signals that it has not reported.
    pub fn take_over(&mut self, from: &mut Self) {
        self.processes.append(&mut from.processes);
        std::mem::swap(&mut self.signals, &mut from.signals);
    }

    /// Waits up to `left`, or until one of these files is readable. Returns the reason and the poll flags of each file.
    ///
    /// # Errors
    /// Fails if the kernel cannot wait for this number of files.
    pub fn wait(&mut self, left: Nanos, files: &[BorrowedFd<'_>]) -> io::Result<(Wake, Came)> {
        let own = [self.signals.as_fd(), self.stop.0.as_fd()];
        let processes = self.processes.iter().map(AsFd::as_fd);
        let all = files.iter().copied().chain(own).chain(processes);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let time = TimeSpec::from_duration(Duration::from_nanos(left.0));
        let interrupted = match ppoll(&mut fds, Some(time), None) {
            Ok(_) => false,
            Err(Errno::EINTR) => true,
            Err(errno) => return Err(errno.into()),
        };
        let flags_of = |fd: &PollFd<'_>| match fd.revents() {
            // The kernel sets no flags if the call is interrupted.
            Some(flags) if !interrupted => flags,
            _ => PollFlags::empty(),
        };
        let mut came: Came = fds.iter().map(flags_of).collect();
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

    /// Returns a stream: a byte written to it ends the session.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn stopper(&self) -> io::Result<UnixStream> {
        self.stop.1.try_clone()
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
        let mut poller = Poller::new(Vec::new()).unwrap();
        let (mut mine, others): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        others
            .into_iter()
            .for_each(|file| poller.await_also(file.into()));
        let last = mine.pop().unwrap();
        drop(mine);
        let some = Wake {
            file: true,
            ..Wake::default()
        };
        assert_eq!(poller.wait(LONG, &[]).unwrap().0, some);
        assert_eq!(poller.processes.len(), 1);
        let short = Nanos::from_millis(2);
        let begun = Instant::now();
        assert_eq!(poller.wait(short, &[]).unwrap().0, Wake::default());
        assert!(begun.elapsed().as_nanos() >= short.0.into());
        drop(last);
        assert_eq!(
            poller.wait(LONG, &[]).unwrap().0,
            Wake {
                ended: true,
                file: true,
                signal: None
            }
        );
    }

    #[test]
    fn files_of_the_caller_and_its_own_are_distinguished() {
        let ((mut one, read), (end, process)) = (pair(), pair());
        let mut former = Poller::new(vec![process.into()]).unwrap();
        let mut poller = Poller::new(Vec::new()).unwrap();
        poller.take_over(&mut former);
        let files = [read.as_fd()];
        assert_eq!(
            poller.wait(Nanos::ZERO, &files).unwrap(),
            (Wake::default(), vec![PollFlags::empty()])
        );
        one.write_all(b"x").unwrap();
        assert_eq!(
            poller.wait(LONG, &files).unwrap(),
            (Wake::default(), vec![PollFlags::POLLIN])
        );
        drop(end);
        let ended = Wake {
            ended: true,
            file: true,
            signal: None,
        };
        assert_eq!(
            poller.wait(LONG, &files).unwrap(),
            (ended, vec![PollFlags::POLLIN])
        );
        poller.stopper().unwrap().write_all(b"x").unwrap();
        let stopped = Wake {
            signal: Some((SIGTERM, true)),
            ..Wake::default()
        };
        assert_eq!(poller.wait(LONG, &[]).unwrap().0, stopped);
        assert_eq!(
            poller.wait(Nanos::ZERO, &[]).unwrap().0,
            Wake::default(),
            "once"
        );
    }

    #[test]
    fn what_came_once_is_left_alone_though_it_is_still_open() {
        let (mut one, file) = pair();
        let mut poller = Poller::new(vec![file.try_clone().unwrap().into()]).unwrap();
        one.write_all(b"x").unwrap();
        assert!(poller.wait(LONG, &[]).unwrap().0.file);
        let begun = Instant::now();
        let short = Nanos::from_millis(2);
        assert_eq!(poller.wait(short, &[]).unwrap().0, Wake::default());
        assert!(begun.elapsed().as_nanos() >= short.0.into());
    }
}
