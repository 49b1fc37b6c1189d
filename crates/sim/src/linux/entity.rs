//! State of a thread in the fair class.
//!
//! Input: the thread's events. Output: the values that decide when and where it runs. Models `struct sched_entity` and the
//! placement history in `struct task_struct`.

use countersteer_model::placement::Clamp;

use super::mask::Mask;
use super::pelt::{Avg, FULL, PeltRate};
use super::weights::{NICE_0_WEIGHT, virtual_time};

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TaskState {
    #[default]
    Dead,
    /// Blocked and not queued.
    Sleeping,
    /// Runnable, but not queued until its control group's next period.
    Throttled,
    /// Blocked, but still queued until its excess running time is paid back (delayed dequeue).
    Delayed,
    Queued,
    Running,
}

#[derive(Clone, Debug)]
pub(super) struct TaskEntity {
    pub state: TaskState,
    /// CPU on which the thread runs, waits, or last ran.
    pub cpu: u32,
    /// Weight in the queue: the thread's own, or its part of its control group's.
    pub weight: u32,
    /// Weight of the thread's nice level.
    pub own_weight: u32,
    /// Index of the control group; `NONE` for the root group.
    pub group: u32,
    /// Memory node of the thread's pages; `NONE` while it is unknown.
    pub home: u32,
    pub clamp: Clamp,
    /// Virtual running time of the thread, comparable only within its run queue.
    pub vruntime: i64,
    /// Virtual deadline; relative to `vruntime` while `rel_deadline` is true.
    pub deadline: i64,
    /// Virtual time up to which run-to-parity protects the running thread from preemption.
    pub protected_until: i64,
    /// Lag when the thread was last dequeued; positive if the thread received less than its share.
    pub vlag: i64,
    pub slice: i64,
    /// True if the user set the time slice.
    pub custom_slice: bool,
    /// True if `deadline` is relative to `vruntime`, so that it survives a migration.
    pub rel_deadline: bool,
    /// Time at which the thread's running time was last accounted; determines if the thread is cache-hot.
    pub exec_start: u64,
    pub ran: u64,
    /// Value of `ran` when the thread was last picked to run.
    pub ran_at_pick: u64,
    /// Time at which the thread began to wait for a CPU.
    pub waiting_since: u64,
    /// Total time for which the thread was runnable but not running (run-queue latency).
    pub waited: u64,
    /// Index of the histogram of the process's run-queue latencies; `NONE` if they are not counted.
    pub waits: u32,
    pub migrations: u64,
    pub avg: Avg,
    /// Estimate of the thread's utilisation during an activation (`util_est`).
    pub util_est: f64,
    pub allowed: Mask,
    /// CPUs that the thread asked for; `None` while no CPU has gone offline.
    pub wanted: Option<Mask>,
    pub allowed_count: u32,
    /// Largest capacity of an allowed CPU.
    pub best_capacity: u32,
    /// CPU that the thread used before the present one (`recent_used_cpu`).
    pub recent_cpu: u32,
    pub last_wakee: u32,
    pub wakee_flips: u32,
    pub flips_decayed_at: u64,
    /// Index of the thread's process; `NONE` if processes are not gathered.
    pub process: u32,
    /// Index of the last-level cache that the process prefers; `NONE` if it prefers none.
    pub preferred_llc: u32,
    /// Index of the next more recently run thread in the run queue's list; `NONE` at the end.
    pub newer: u32,
    /// Index of the next less recently run thread in the run queue's list; `NONE` at the end.
    pub older: u32,
}

impl Default for TaskEntity {
    fn default() -> Self {
        Self {
            state: TaskState::Dead,
            cpu: 0,
            weight: NICE_0_WEIGHT,
            own_weight: NICE_0_WEIGHT,
            group: NONE,
            home: NONE,
            clamp: Clamp::FREE,
            vruntime: 0,
            deadline: 0,
            protected_until: 0,
            vlag: 0,
            slice: 0,
            custom_slice: false,
            rel_deadline: false,
            exec_start: 0,
            ran: 0,
            ran_at_pick: 0,
            waiting_since: 0,
            waited: 0,
            waits: NONE,
            migrations: 0,
            avg: Avg::default(),
            util_est: 0.0,
            allowed: Mask::default(),
            wanted: None,
            allowed_count: 0,
            best_capacity: 0,
            recent_cpu: 0,
            last_wakee: NONE,
            wakee_flips: 0,
            flips_decayed_at: 0,
            process: NONE,
            preferred_llc: NONE,
            newer: NONE,
            older: NONE,
        }
    }
}

impl TaskEntity {
    /// True if the thread is queued, running or delayed (`on_rq` in the kernel).
    pub(super) fn on_queue(&self) -> bool {
        matches!(
            self.state,
            TaskState::Delayed | TaskState::Queued | TaskState::Running
        )
    }

    pub(super) fn runnable(&self) -> bool {
        matches!(self.state, TaskState::Queued | TaskState::Running)
    }

    /// Returns the thread's contribution to its load averages in its present state.
    pub(super) fn rate(&self) -> PeltRate {
        let weight = f64::from(self.weight);
        match self.state {
            TaskState::Dead | TaskState::Sleeping | TaskState::Throttled => PeltRate::default(),
            TaskState::Delayed => PeltRate {
                load: weight,
                runnable: 0.0,
                util: 0.0,
            },
            TaskState::Queued => PeltRate {
                load: weight,
                runnable: FULL,
                util: 0.0,
            },
            TaskState::Running => PeltRate {
                load: weight,
                runnable: FULL,
                util: FULL,
            },
        }
    }

    /// Utilisation for placement decisions: the larger of average and estimate (`task_util_est`).
    pub(super) fn planned_util(&self) -> f64 {
        self.avg.util.max(self.util_est)
    }

    /// Time slice in virtual time (real time times 1,024 / weight).
    pub(super) fn virtual_slice(&self) -> i64 {
        virtual_time(self.slice, self.weight)
    }
}
