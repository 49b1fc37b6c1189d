//! Sessions for engines: they begin without threads, and processes are attached one by one.
use countersteer_model::counters::SetPlan;
use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::Nanos;
use countersteer_sysfs::procfs::PROC;

use super::super::bpf::interface::BpfLoader;
use super::super::bpf::{self, BpfCounters};
use super::super::follow::Follower;
use super::super::per_thread::PerThread;
use super::super::request::{CountRequest, CountTarget, LEAST_SAMPLE_NS};
use super::{Open, Session};
use crate::CounterError;
use crate::perf::open::OpenedGroups;
use crate::perf::resolve::{CoreTypes, Resolved};

impl Session {
    /// Opens a session without threads. It reads `sets` every `interval` on `cpus`, for processes that [`Session::attach`]
    /// adds. Samples are close together, because engines need to know whether a thread ran during the whole period. BPF
    /// programs count the threads if `loader` is given and can load them.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn without_threads(
        (sets, plan): (Vec<Vec<Resolved>>, SetPlan),
        interval: Nanos,
        cpus: CpuSet,
        core_types: CoreTypes,
        loader: Option<BpfLoader>,
    ) -> Result<Self, CounterError> {
        let target = CountTarget::Processes(Vec::new());
        let request = CountRequest::new(target, (sets, plan), Some(interval), cpus, core_types);
        let nothing = request.sets.iter().all(Vec::is_empty);
        let follow = loader
            .as_ref()
            .filter(|_| !nothing)
            .map(|loader| {
                let room = (PROC.thread_count().unwrap_or(0), None);
                bpf::follow(&request, LEAST_SAMPLE_NS, room, loader)
            })
            .transpose()?
            .flatten();
        let session = match follow {
            Some(follow) => {
                let counted = BpfCounters::new(follow, &request.plan, Vec::new(), Vec::new())?;
                Self::of_engine(request, counted)
            }
            None => {
                let mut open = if nothing {
                    Self::nothing(&request)?
                } else {
                    Self::by_events(&request, LEAST_SAMPLE_NS, &[], Vec::new())?
                };
                open.1.task_events = Some(Vec::new());
                Self::over(request, LEAST_SAMPLE_NS, open)
            }
        };
        Ok(Self {
            offer: loader,
            ..session
        })
    }

    /// Opens a session without threads, which BPF programs count.
    pub(in super::super) fn of_engine(request: CountRequest, counted: BpfCounters) -> Self {
        let mut open = Self::by_bpf(&request, counted);
        open.1.task_events = Some(Vec::new());
        Self::over(request, LEAST_SAMPLE_NS, open)
    }

    /// Opens a session without threads that has the same clock and CPUs, but other events.
    ///
    /// # Errors
    /// Fails with EMFILE.
    pub fn another(
        &self,
        counters: (Vec<Vec<Resolved>>, SetPlan),
        interval: Nanos,
    ) -> Result<Self, CounterError> {
        let new = Self::without_threads(
            counters,
            interval,
            self.request.cpus.clone(),
            self.request.core_types.clone(),
            self.offer.clone(),
        )?;
        Ok(Self {
            origin: self.origin,
            ..new
        })
    }

    /// Opens no counter: only exits of processes are noticed.
    fn nothing(request: &CountRequest) -> Result<Open, CounterError> {
        let follower = Follower::new(&request.core_types.by_cpu, &[], &request.plan);
        let perf = PerThread::new(OpenedGroups::default(), Vec::new())?;
        Ok((Box::new(perf), follower, None))
    }
}
