//! Check of whether events can count at the same time.
//!
//! Input: an event set. Output: true if the kernel opens the whole set as one group on each PMU, and that group counts. Some
//! counters are permanently in use, such as that of the watchdog for hung CPUs. They are noticed only because the group does
//! not count.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use countersteer_model::units::CpuId;

use super::catalog::{EventProbe, TASK_CLOCK, probe};
use super::resolve::{Encoding, Resolved};
use super::sys::{self, Attr, EventScope, abi};

/// Limit on the time until a group is scheduled: several ticks of the clock, at which the kernel rotates groups.
const PATIENCE: Duration = Duration::from_millis(12);

/// True if these events can count together, by a trial with the calling thread. An event that cannot be counted even alone is
/// ignored: it is unavailable with or without the others.
#[must_use]
pub fn fit_together(events: &[Resolved]) -> bool {
    let encodings = || {
        events.iter().flat_map(|event| {
            event
                .encodings
                .iter()
                .map(move |encoding| (event, encoding))
        })
    };
    let mut pmus: Vec<&str> = encodings()
        .filter(|(_, e)| !e.software && !e.system)
        .map(|(_, e)| e.pmu.as_str())
        .collect();
    pmus.sort_unstable();
    pmus.dedup();
    let user_only = probe(abi::PERF_TYPE_SOFTWARE, TASK_CLOCK) == EventProbe::UserOnly;
    pmus.iter().all(|pmu| {
        let of_pmu: Vec<_> = encodings().filter(|(_, e)| e.pmu == *pmu).collect();
        fit_on_pmu(&of_pmu, user_only)
    })
}

fn fit_on_pmu(members: &[(&Resolved, &Encoding)], user_only: bool) -> bool {
    let mut group: Vec<OwnedFd> = Vec::new();
    for (event, encoding) in members {
        let attr = |leads| Attr {
            kind: encoding.kind,
            config: encoding.config,
            exclude_user: !event.space.user,
            exclude_kernel: !event.space.kernel || user_only,
            disabled: leads,
            ..Attr::default()
        };
        let open = |leader: Option<&OwnedFd>| {
            sys::open(&attr(leader.is_none()), EventScope::Thread(0, None), leader)
        };
        match open(group.first()) {
            Ok(file) => group.push(file),
            Err(_) if group.is_empty() || open(None).is_err() => {}
            Err(_) => return false,
        }
    }
    let here = || {
        let cpu = CpuId(nix::sched::sched_getcpu().unwrap_or(0) as u32);
        members
            .iter()
            .all(|(_, e)| e.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)))
    };
    group.first().is_none_or(|leader| counts(leader, here))
}

/// True if the group of `leader` counts. Also true if this cannot be found out, because the thread is on a CPU of another PMU.
fn counts(leader: &OwnedFd, here: impl Fn() -> bool) -> bool {
    let mut bytes = Vec::new();
    let mut values = Vec::new();
    if sys::switch(leader, true).is_err() {
        return true;
    }
    let since = Instant::now();
    while here() {
        // A group that cannot be read is regarded as counting.
        let Ok((enabled, running)) = sys::read_group(leader, &mut bytes, &mut values) else {
            break;
        };
        if running > 0 || enabled == 0 {
            break;
        }
        if since.elapsed() > PATIENCE {
            return false;
        }
    }
    true
}
