//! Scheduling classes of threads: in partial mode, being of this scheduler's class is what makes a thread one that it schedules.

use libc::{SCHED_BATCH, SCHED_OTHER, c_int, pid_t};

/// The class of threads that a sched_ext scheduler in partial mode schedules.
const SCHED_EXT: c_int = 7;
/// Children begin in the default class; kept when a class is changed.
const RESET_ON_FORK: c_int = libc::SCHED_RESET_ON_FORK;

fn class(tid: u32) -> Option<c_int> {
    // SAFETY: takes no memory.
    let class = unsafe { libc::sched_getscheduler(tid as pid_t) };
    (class >= 0).then_some(class)
}

fn set_class(tid: u32, class: c_int) {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters outlive the call. A thread that has ended meanwhile needs nothing.
    unsafe { libc::sched_setscheduler(tid as pid_t, class, &raw const none) };
}

/// Gives a thread to the scheduler. Those that a real-time or deadline class schedules, or that run only when nobody else wants
/// to, stay where they are.
pub(crate) fn give(tid: u32) {
    if let Some(old) =
        class(tid).filter(|c| matches!(c & !RESET_ON_FORK, SCHED_OTHER | SCHED_BATCH))
    {
        set_class(tid, SCHED_EXT | (old & RESET_ON_FORK));
    }
}

/// Gives a thread back to the kernel's own scheduler; whether it was this one's.
pub(crate) fn take_back(tid: u32) -> bool {
    let Some(old) = class(tid).filter(|c| c & !RESET_ON_FORK == SCHED_EXT) else {
        return false;
    };
    set_class(tid, SCHED_OTHER | (old & RESET_ON_FORK));
    true
}
