//! Signals that arrive while one poller replaces another. The test is alone in its process, since all its threads would get them.

#![allow(clippy::unwrap_used)] // a test that cannot set itself up has failed

use countersteer_model::units::Nanos;
use countersteer_sysfs::poll::Poller;
use nix::sys::signal::{Signal, raise};

#[test]
fn a_signal_that_a_poller_has_not_reported_is_reported_by_the_next_one() {
    let mut first = Poller::new(Vec::new()).unwrap();
    raise(Signal::SIGHUP).unwrap();
    let mut next = Poller::new(Vec::new()).unwrap();
    next.take_over(&mut first);
    drop(first);
    let reported = |poller: &mut Poller| poller.wait(Nanos(1), &[]).unwrap().0.signal;
    assert_eq!(reported(&mut next).unwrap().0, Signal::SIGHUP as i32);
    assert_eq!(reported(&mut next), None);
}
