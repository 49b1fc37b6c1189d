//! State of a load balance: the domain, the CPUs and the amount to move (`struct lb_env`, kernel/sched/fair.c).

/// Idle state of the balancing CPU (`enum cpu_idle_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idleness {
    Busy,
    Idle,
    /// The CPU is about to become idle and balances from within the scheduler.
    Newly,
}

/// State of one load balance in one domain (`struct lb_env`).
#[derive(Clone, Debug)]
pub(super) struct Env {
    /// Index of the domain that is balanced.
    pub node: u32,
    /// Index of the domain's group that contains the balancing CPU.
    pub local: u32,
    /// CPU that performs the balance.
    pub cpu: usize,
    /// CPU that receives threads.
    pub target: usize,
    /// CPU from which threads are taken.
    pub source: usize,
    pub kind: Idleness,
    pub migration: Migration,
    /// Amount to move, in the unit of `migration`.
    pub imbalance: f64,
    pub failed: u32,
    pub all_pinned: bool,
    pub some_pinned: bool,
    /// True if threads were not moved because of their preferred last-level cache (`LBF_LLC_PINNED`).
    pub llc_pinned: bool,
    /// CPU of the local group for a thread that may not run on the target; `None` if there is no such thread or CPU.
    pub other_target: Option<usize>,
}

/// Unit in which an imbalance is measured (`enum migration_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    Load,
    Util,
    Threads,
    Misfit,
    /// Number of threads that prefer the target's last-level cache.
    Llc,
}

impl Env {
    pub(super) fn new(node: u32, local: u32, cpu: usize, kind: Idleness, failed: u32) -> Self {
        Self {
            node,
            local,
            cpu,
            target: cpu,
            source: cpu,
            kind,
            migration: Migration::Threads,
            imbalance: 0.0,
            failed,
            all_pinned: false,
            some_pinned: false,
            llc_pinned: false,
            other_target: None,
        }
    }

    pub(super) fn idle(&self) -> bool {
        self.kind != Idleness::Busy
    }
}
