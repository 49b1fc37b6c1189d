//! Control groups: weights and limits on CPU time.
//!
//! Input: threads that join and leave queues, and their running time. Output: weights of threads, and threads that must not run
//! until the next period. Models `calc_group_shares`, `reweight_entity` of group entities, `account_cfs_rq_runtime`,
//! `throttle_cfs_rq`, `distribute_cfs_runtime`, `do_sched_cfs_period_timer` and `return_cfs_rq_runtime` (kernel/sched/fair.c).
//!
//! The kernel queues a group's threads on queues of their own, and one entity per CPU for the group. Here, each thread stands in
//! its CPU's only queue, with its part of the group's weight. CPU shares are the same; the order of threads within a slice is not.
//! The kernel estimates a group's weight on other CPUs by its load average; the model knows the queued threads. Left out: groups
//! within groups, bursts of quota (`cpu.max.burst`), and `cpu.idle`.

use std::collections::VecDeque;

use countersteer_model::control::CpuBandwidth;
use countersteer_model::units::ThreadId;
use rand::RngExt;

use super::Linux;
use super::entity::{NONE, TaskState};
use super::schedule::Join;
use super::timers::NEVER;

/// CPU time that a CPU takes from its group's quota at a time (`sched_cfs_bandwidth_slice_us`).
const SLICE_NS: i64 = 5_000_000;
/// CPU time that a CPU keeps when the last thread of the group leaves it (`min_cfs_rq_runtime`).
const KEPT_NS: i64 = 1_000_000;
/// Time before a period's end in which returned quota is not handed out again (`min_bandwidth_expiration`).
const NEAR_END_NS: u64 = 2_000_000;
/// Delay until returned quota is handed out (`cfs_bandwidth_slack_period`).
const SLACK_NS: u64 = 5_000_000;
/// Smallest weight of an entity (`MIN_SHARES`).
const LEAST_WEIGHT: u64 = 2;

/// Control group.
#[derive(Clone, Debug)]
pub(super) struct TaskGroup {
    /// Weight of the whole group on the scale of threads: 1,024 for `cpu.weight` 100.
    shares: u64,
    /// Threads on queues, and the sum of their own weights.
    queued: Vec<u32>,
    weight: u64,
    limit: Option<Limit>,
}

/// Limit on a group's CPU time, and what is left of it (`struct cfs_bandwidth`).
#[derive(Clone, Debug)]
struct Limit {
    quota: i64,
    period: u64,
    /// Quota that no CPU has taken yet.
    left: i64,
    /// True if the period's timer runs.
    active: bool,
    /// True if no CPU was throttled in the last period.
    idle: bool,
    /// End of the period in nanoseconds.
    end: u64,
    /// Time at which returned quota is handed out; `NEVER` if not scheduled.
    slack_at: u64,
    /// Throttled CPUs, longest throttled first.
    throttled: VecDeque<u32>,
    cpus: Vec<OnCpu>,
}

/// A limited group on one CPU.
#[derive(Clone, Debug, Default)]
struct OnCpu {
    /// CPU time until more of the quota is needed; negative if more was used.
    left: i64,
    throttled: bool,
    /// Threads that wait for the next period (`throttled_limbo_list`).
    parked: Vec<u32>,
}

/// Groups of the machine, and the group of each process.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskGroups {
    groups: Vec<TaskGroup>,
    of_process: Vec<u32>,
    /// True if a group has a limit.
    limited: bool,
}

impl TaskGroups {
    /// Returns the group of a process's threads; `NONE` for the root group.
    pub(super) fn of(&self, process: Option<u32>) -> u32 {
        let group = process.and_then(|p| self.of_process.get(p as usize));
        group.copied().unwrap_or(NONE)
    }

    /// Time of the next event of a limit in nanoseconds; `NEVER` if there is none.
    fn next(&self) -> u64 {
        let limits = self.groups.iter().filter_map(|g| g.limit.as_ref());
        let next = |l: &Limit| if l.active { l.end } else { NEVER }.min(l.slack_at);
        limits.map(next).min().unwrap_or(NEVER)
    }

    fn limit(&self, group: u32) -> Option<&Limit> {
        self.groups.get(group as usize)?.limit.as_ref()
    }

    fn limit_mut(&mut self, group: u32) -> Option<&mut Limit> {
        self.groups.get_mut(group as usize)?.limit.as_mut()
    }
}

impl Limit {
    /// Takes quota for a CPU until it has `wanted` nanoseconds; true if the CPU has any left then (`__assign_cfs_rq_runtime`).
    fn assign(&mut self, cpu: usize, wanted: i64, now: u64) -> bool {
        if !self.active {
            self.active = true;
            while self.end <= now {
                self.end += self.period;
            }
        }
        let on = &mut self.cpus[cpu];
        let taken = self.left.min(wanted - on.left).max(0);
        self.idle &= taken == 0;
        self.left -= taken;
        on.left += taken;
        on.left > 0
    }
}

impl Linux {
    /// Creates a control group with a `cpu.weight` and a limit, and returns its index.
    pub(crate) fn add_group(&mut self, weight: u32, limit: Option<CpuBandwidth>) -> u32 {
        let cpus = self.rqs.len();
        let limit = limit.map(|limit| Limit {
            quota: limit.quota.0 as i64,
            period: limit.period.0.max(1),
            left: limit.quota.0 as i64,
            active: false,
            idle: false,
            // `init_cfs_bandwidth`: the periods of groups start at random times.
            end: self.rng.random_range(0..limit.period.0.max(1)),
            slack_at: NEVER,
            throttled: VecDeque::new(),
            cpus: vec![OnCpu::default(); cpus],
        });
        self.groups.limited |= limit.is_some();
        self.groups.groups.push(TaskGroup {
            shares: u64::from(weight) * 1024 / 100,
            queued: Vec::new(),
            weight: 0,
            limit,
        });
        self.groups.groups.len() as u32 - 1
    }

    /// Puts a process into a control group; threads that the process forks later belong to the group.
    pub(crate) fn set_group(&mut self, process: u32, group: u32) {
        let of = &mut self.groups.of_process;
        of.resize(of.len().max(process as usize + 1), NONE);
        of[process as usize] = group;
    }

    /// Changes a thread's own weight.
    pub(super) fn set_own_weight(&mut self, thread: ThreadId, weight: u32, now: u64) {
        let t = thread.index();
        let before = std::mem::replace(&mut self.threads[t].own_weight, weight);
        let group = self.threads[t].group;
        if group == NONE {
            return self.reweight(thread.0, weight, now);
        }
        if self.threads[t].on_queue() {
            let group = &mut self.groups.groups[group as usize];
            group.weight = group.weight - u64::from(before) + u64::from(weight);
        }
        self.share_out(group, now);
    }

    /// Counts a thread that joins (`joins`) or leaves the queues in its group, whose other threads get new weights.
    pub(super) fn count_in_group(&mut self, t: u32, joins: bool, now: u64) {
        let thread = &self.threads[t as usize];
        let Some(group) = self.groups.groups.get_mut(thread.group as usize) else {
            return;
        };
        let own = u64::from(thread.own_weight);
        let index = thread.group;
        if joins {
            group.queued.push(t);
            group.weight += own;
            let weight = part(group, own);
            self.reweight(t, weight, now);
        } else {
            group.queued.retain(|q| *q != t);
            group.weight -= own;
        }
        self.share_out_but(index, t, now);
    }

    fn share_out(&mut self, group: u32, now: u64) {
        self.share_out_but(group, NONE, now);
    }

    /// Gives each queued thread of a group its part of the group's weight (`update_cfs_group`), but thread `not`.
    fn share_out_but(&mut self, group: u32, not: u32, now: u64) {
        let queued = std::mem::take(&mut self.groups.groups[group as usize].queued);
        for t in queued.iter().filter(|t| **t != not) {
            let own = u64::from(self.threads[*t as usize].own_weight);
            let weight = part(&self.groups.groups[group as usize], own);
            self.reweight(*t, weight, now);
        }
        self.groups.groups[group as usize].queued = queued;
    }

    /// Charges a thread's group for running time; throttles the group on the CPU if its quota is used up
    /// (`account_cfs_rq_runtime`).
    pub(super) fn charge_group(&mut self, cpu: usize, t: u32, ns: u64, now: u64) {
        let group = self.threads[t as usize].group;
        if !self.groups.limited {
            return;
        }
        let Some(limit) = self.groups.limit_mut(group) else {
            return;
        };
        limit.cpus[cpu].left -= ns as i64;
        if limit.cpus[cpu].left > 0 || limit.cpus[cpu].throttled {
            return;
        }
        if !limit.assign(cpu, SLICE_NS, now) {
            self.throttle(cpu, group);
        }
    }

    fn throttle(&mut self, cpu: usize, group: u32) {
        if let Some(limit) = self.groups.limit_mut(group) {
            limit.cpus[cpu].throttled = true;
            limit.throttled.push_back(cpu as u32);
        }
        self.rqs[cpu].throttles = true;
        self.resched(cpu);
    }

    /// Takes the threads of throttled groups off a CPU's queue (`throttle_cfs_rq_work`).
    pub(super) fn park_throttled(&mut self, cpu: usize, now: u64) {
        if !std::mem::take(&mut self.rqs[cpu].throttles) {
            return;
        }
        self.update_curr(cpu, now);
        self.rqs[cpu].throttles = false;
        let queued: Vec<u32> = self.queue_of(cpu).collect();
        for t in queued {
            if self.is_throttled(self.threads[t as usize].group, cpu) {
                let asleep = self.threads[t as usize].state == TaskState::Delayed;
                self.deactivate(t, false, now);
                if !asleep {
                    self.park(t, cpu);
                }
            }
        }
    }

    /// True if a group must not run on a CPU before the next period.
    pub(super) fn is_throttled(&self, group: u32, cpu: usize) -> bool {
        self.groups.limited
            && self
                .groups
                .limit(group)
                .is_some_and(|l| l.cpus[cpu].throttled)
    }

    fn park(&mut self, t: u32, cpu: usize) {
        self.threads[t as usize].state = TaskState::Throttled;
        if let Some(limit) = self.groups.limit_mut(self.threads[t as usize].group) {
            limit.cpus[cpu].parked.push(t);
        }
    }

    /// Removes a parked thread from its CPU's list; it sleeps then.
    pub(super) fn unpark(&mut self, t: u32) {
        let cpu = self.threads[t as usize].cpu as usize;
        if let Some(limit) = self.groups.limit_mut(self.threads[t as usize].group) {
            limit.cpus[cpu].parked.retain(|p| *p != t);
        }
        self.threads[t as usize].state = TaskState::Sleeping;
    }

    /// Puts a thread into the queue of its CPU, or parks it if its group is throttled there. Returns true if it is queued.
    pub(super) fn activate_or_park(&mut self, t: u32, join: Join, now: u64) -> bool {
        let cpu = self.threads[t as usize].cpu as usize;
        let group = self.threads[t as usize].group;
        if self.groups.limited && self.groups.limit(group).is_some() {
            self.update_curr(cpu, now);
            self.check_quota(cpu, group, now);
        }
        if self.is_throttled(group, cpu) {
            if join == Join::New {
                self.attach_new(cpu, t, now);
            }
            self.park(t, cpu);
            return false;
        }
        self.activate(t, join, now);
        true
    }

    /// Throttles a group on a CPU that it does not use and for which it has no quota left (`check_enqueue_throttle`).
    fn check_quota(&mut self, cpu: usize, group: u32, now: u64) {
        let Some(limit) = self.groups.limit_mut(group) else {
            return;
        };
        let on = &limit.cpus[cpu];
        if !on.throttled && on.left <= 0 && !limit.assign(cpu, 1, now) {
            self.throttle(cpu, group);
        }
    }

    /// Returns a CPU's quota to the group when the group's last thread has left the CPU (`return_cfs_rq_runtime`).
    pub(super) fn return_quota(&mut self, cpu: usize, group: u32, now: u64) {
        if !self.groups.limited
            || self
                .queue_of(cpu)
                .any(|t| self.threads[t as usize].group == group)
        {
            return;
        }
        let Some(limit) = self.groups.limit_mut(group) else {
            return;
        };
        let slack = limit.cpus[cpu].left - KEPT_NS;
        if slack > 0 {
            limit.cpus[cpu].left -= slack;
            limit.left += slack;
            let wanted = limit.left > SLICE_NS && !limit.throttled.is_empty();
            if wanted && limit.slack_at == NEVER {
                limit.slack_at = now + SLACK_NS;
            }
        }
    }

    /// Time at which the quota of a CPU's running thread is used up; `None` if it has no limit.
    pub(super) fn quota_ends(&self, cpu: usize) -> Option<u64> {
        if !self.groups.limited {
            return None;
        }
        let thread = self.threads.get(self.rqs[cpu].curr as usize)?;
        let left = self.groups.limit(thread.group)?.cpus[cpu].left.max(0);
        Some(thread.exec_start + left as u64)
    }

    /// Sets the timer of all limits.
    pub(super) fn arm_groups(&mut self) {
        if self.groups.limited {
            let slot = self.rqs.len() + 1;
            self.timers.set(slot, self.groups.next());
        }
    }

    /// Handles the ends of periods, and hands out returned quota.
    pub(super) fn groups_timer(&mut self, now: u64) {
        for group in 0..self.groups.groups.len() as u32 {
            let Some(limit) = self.groups.limit_mut(group) else {
                continue;
            };
            let mut hands_out = false;
            if limit.slack_at <= now {
                limit.slack_at = NEVER;
                hands_out = limit.end > now + NEAR_END_NS && limit.left > SLICE_NS;
            }
            if limit.active && limit.end <= now {
                limit.end += limit.period;
                hands_out |= limit.begin_period();
            }
            if hands_out {
                self.distribute(group, now);
            }
        }
    }

    /// Hands out quota to throttled CPUs, just enough to run again (`distribute_cfs_runtime`).
    fn distribute(&mut self, group: u32, now: u64) {
        let throttled = self.groups.limit(group).map(|l| l.throttled.clone());
        for cpu in throttled.into_iter().flatten().map(|cpu| cpu as usize) {
            self.update_curr(cpu, now);
            let Some(limit) = self.groups.limit_mut(group) else {
                return;
            };
            let given = (1 - limit.cpus[cpu].left).min(limit.left);
            limit.left -= given;
            limit.cpus[cpu].left += given;
            if limit.cpus[cpu].left <= 0 {
                return;
            }
            self.unthrottle(cpu, group, now);
        }
    }

    fn unthrottle(&mut self, cpu: usize, group: u32, now: u64) {
        let Some(limit) = self.groups.limit_mut(group) else {
            return;
        };
        limit.cpus[cpu].throttled = false;
        limit.throttled.retain(|c| *c as usize != cpu);
        for t in std::mem::take(&mut limit.cpus[cpu].parked) {
            self.threads[t as usize].state = TaskState::Sleeping;
            self.activate(t, Join::Wake, now);
        }
        // `unthrottle_cfs_rq`: only an idle CPU is interrupted.
        if self.rqs[cpu].curr == NONE && self.rqs[cpu].runnable > 0 {
            self.resched(cpu);
        }
    }

    /// Lets all groups run on a CPU that goes offline, so that their threads can leave it (`unthrottle_offline_cfs_rqs`).
    pub(super) fn unthrottle_all(&mut self, cpu: usize, now: u64) {
        for group in 0..self.groups.groups.len() as u32 {
            if self.is_throttled(group, cpu) {
                if let Some(limit) = self.groups.limit_mut(group) {
                    limit.cpus[cpu].left = 1;
                }
                self.unthrottle(cpu, group, now);
            }
        }
    }
}

impl Limit {
    /// Starts a period; true if throttled CPUs wait for quota (`do_sched_cfs_period_timer`).
    fn begin_period(&mut self) -> bool {
        let waits = !self.throttled.is_empty();
        if self.idle && !waits {
            self.active = false;
            return false;
        }
        self.left = (self.left + self.quota).min(self.quota);
        self.idle = !waits;
        waits
    }
}

/// Part of the group's weight for a queued thread of weight `own`.
fn part(group: &TaskGroup, own: u64) -> u32 {
    (group.shares * own / group.weight.max(1)).max(LEAST_WEIGHT) as u32
}
