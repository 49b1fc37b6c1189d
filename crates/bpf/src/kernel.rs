//! The loaded scheduler: its tables, its programs, its ring.
//!
//! Input: targets and commands. Output: their results, and events of threads.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use countersteer_model::cpuset::CpuSet;
use countersteer_model::units::{CpuId, Nanos};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramInput, RingBuffer, RingBufferBuilder};

use crate::KernelEngineError;
use crate::config::{EngineMode, ScxConfig};
use crate::generated::{EngineSkel, EngineSkelBuilder, shared, types};
use crate::object::place;

const SWITCH_PARTIAL: u64 = 8;

/// Loaded scheduler; a drop returns all threads to the kernel.
pub(crate) struct LoadedScheduler {
    links: Vec<Link>,
    /// Another descriptor of the scheduler, by which another thread can detach it. The scheduler stays while one is open.
    scheduler: Option<Arc<OwnedFd>>,
    ring: RingBuffer<'static>,
    events: Rc<RefCell<Vec<types::event>>>,
    skel: EngineSkel<'static>,
}

impl Drop for LoadedScheduler {
    fn drop(&mut self) {
        // The scheduler is detached before the maps that it works on.
        self.scheduler = None;
        self.links.clear();
    }
}

fn at(what: &'static str) -> impl Fn(libbpf_rs::Error) -> KernelEngineError {
    move |source| KernelEngineError::Kernel { what, source }
}

/// Reads a structure that the kernel wrote; `None` if there are too few bytes.
pub(crate) fn read<T: Copy>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is checked, `T` is a plain structure of integers for which every bit pattern is valid.
    (bytes.len() >= size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

impl LoadedScheduler {
    /// Loads the scheduler and describes the machine to it: the online CPUs, of `nr_cpus` by the kernel's numbers.
    pub fn load(
        config: &ScxConfig,
        nr_cpus: usize,
        all: &CpuSet,
    ) -> Result<Self, KernelEngineError> {
        let mut open = EngineSkelBuilder::default()
            .open(place())
            .map_err(at("reading the scheduler"))?;
        let operations = open.struct_ops.engine_mut();
        operations.timeout_ms = config.watchdog.as_millis() as u32;
        if config.mode == EngineMode::Partial {
            operations.flags |= SWITCH_PARTIAL;
        }
        if !config.report_switches {
            (operations.runnable, operations.quiescent) =
                (std::ptr::null_mut(), std::ptr::null_mut());
        }
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            let settings = &mut rodata.settings;
            settings.slice_ns = config.slice.0;
            settings.nr_cpus = nr_cpus as u32;
            settings.report_switches = u32::from(config.report_switches);
            settings.drop_target = config.lose_target.unwrap_or(shared::NONE);
        }
        let skel = open.load().map_err(at("loading the scheduler"))?;
        let events = Rc::new(RefCell::new(Vec::new()));
        let ring = ring(&skel, &events)?;
        let mut kernel = Self {
            links: Vec::new(),
            scheduler: None,
            ring,
            events,
            skel,
        };
        kernel.steal_above(config.steal_above)?;
        kernel.pace(config.period)?;
        kernel.bring_online(all)?;
        kernel.define(shared::TARGET_ANYWHERE, all)?;
        Ok(kernel)
    }

    /// Table of speed-up factors, for the programs that compute them.
    pub fn metrics(&self) -> Result<MapHandle, KernelEngineError> {
        MapHandle::try_from(&self.skel.maps.metrics).map_err(at("sharing speed-up factors"))
    }

    /// Removes speed-up factors that were computed from other counts, so that they are not compared any more.
    pub fn forget_factors(&self) {
        let metrics = &self.skel.maps.metrics;
        let threads: Vec<Vec<u8>> = metrics.keys().collect();
        for thread in threads {
            // A thread that exits meanwhile has none left.
            let _ = metrics.delete(&thread);
        }
    }

    /// Sets the sampling period: a target that no thread has had for that long can be retired.
    pub fn pace(&mut self, period: Nanos) -> Result<(), KernelEngineError> {
        self.bss()?.control.period_ns = period.0;
        Ok(())
    }

    /// Reports each time that a thread leaves its CPU, or no longer does.
    pub fn report_spans(&mut self, report: bool) -> Result<(), KernelEngineError> {
        self.bss()?.control.report_spans = u32::from(report);
        Ok(())
    }

    /// Sets the queue depth above which idle CPUs of other targets take threads; `None` for never.
    pub fn steal_above(&mut self, queued: Option<u32>) -> Result<(), KernelEngineError> {
        // The kernel compares signed numbers.
        self.bss()?.control.steal_above = queued.map_or(shared::NONE, |n| n.min(i32::MAX as u32));
        Ok(())
    }

    /// Attaches the scheduler, which schedules from here on.
    pub fn attach(&mut self) -> Result<(), KernelEngineError> {
        let progs = &mut self.skel.progs;
        let fork = progs.engine_fork.attach_trace();
        let fork = fork.map_err(at("following forks"))?;
        let exec = progs.engine_exec.attach_trace();
        let exec = exec.map_err(at("following execs"))?;
        let scheduler = self
            .skel
            .maps
            .engine
            .attach_struct_ops()
            .map_err(at("starting the scheduler"))?;
        // Without a free descriptor, the scheduler can only be detached by a drop.
        self.scheduler = scheduler.as_fd().try_clone_to_owned().ok().map(Arc::new);
        self.links = vec![scheduler, fork, exec];
        Ok(())
    }

    /// Returns a descriptor of the attached scheduler, which is closed with this value; `None` if there is none.
    pub fn scheduler(&self) -> Option<Weak<OwnedFd>> {
        self.scheduler.as_ref().map(Arc::downgrade)
    }

    fn bss(&mut self) -> Result<&mut types::bss, KernelEngineError> {
        self.skel
            .maps
            .bss_data
            .as_deref_mut()
            .ok_or(KernelEngineError::Gone(0))
    }

    /// Counters that the kernel side keeps about itself.
    pub fn counters(&mut self) -> Result<types::counters, KernelEngineError> {
        Ok(self.bss()?.counters)
    }

    /// Fails with the reason if the kernel has ended the scheduler.
    pub fn ejected(&mut self) -> Result<(), KernelEngineError> {
        let bss = self.bss()?;
        // SAFETY: a plain integer in memory that the kernel writes too.
        if unsafe { (&raw const bss.counters.exit_kind).read_volatile() } == 0 {
            return Ok(());
        }
        let text = |bytes: &[i8]| {
            bytes
                .iter()
                .take_while(|c| **c != 0)
                .map(|c| char::from(*c as u8))
                .collect::<String>()
        };
        Err(KernelEngineError::Ejected {
            reason: text(&bss.exit_reason),
            message: text(&bss.exit_message),
        })
    }

    /// Marks these CPUs as online, before the scheduler schedules.
    fn bring_online(&mut self, cpus: &CpuSet) -> Result<(), KernelEngineError> {
        let served = types::served {
            online: 1,
            ..types::served::default()
        };
        // SAFETY: `served` is a structure without padding that lives longer than the slice.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const served).cast::<u8>(), size_of_val(&served))
        };
        let update = |cpu: CpuId| {
            self.skel
                .maps
                .serving
                .update(&cpu.0.to_ne_bytes(), bytes, MapFlags::ANY)
        };
        cpus.iter()
            .try_for_each(update)
            .map_err(at("giving a CPU its queues"))
    }

    /// Defines a target of CPUs by the kernel's numbers; returns true if they can serve one more.
    pub fn define(&mut self, id: u32, cpus: &CpuSet) -> Result<bool, KernelEngineError> {
        let bss = self.bss()?;
        bss.definition.target = id;
        bss.definition.cpus = Default::default();
        cpus.iter()
            .for_each(|c| bss.definition.cpus[c.index() / 64] |= 1 << (c.index() % 64));
        bss.control.nr_targets = bss.control.nr_targets.max(id + 1);
        self.skel
            .progs
            .define_target
            .test_run(ProgramInput::default())
            .map_err(at("defining a target"))?;
        self.answer("defining a target", libc::ENOSPC)
    }

    /// Retires a target; returns true if no thread has it, or has had it recently.
    pub fn retire(&mut self, id: u32) -> Result<bool, KernelEngineError> {
        self.bss()?.definition.target = id;
        self.skel
            .progs
            .retire_target
            .test_run(ProgramInput::default())
            .map_err(at("taking a target away"))?;
        self.answer("taking a target away", libc::EBUSY)
    }

    /// True if a request for a target succeeded, false if it failed for this reason.
    fn answer(&mut self, what: &'static str, cannot: i32) -> Result<bool, KernelEngineError> {
        match -self.bss()?.definition.result {
            0 => Ok(true),
            error if error == cannot => Ok(false),
            error => Err(at(what)(libbpf_rs::Error::from_raw_os_error(error))),
        }
    }

    /// Targets to which the admission table may send threads at any moment.
    pub fn admitting(&mut self) -> Result<BTreeSet<u32>, KernelEngineError> {
        let tables = self.bss()?.control.tables.iter();
        Ok(tables
            .flat_map(|t| t.rows.iter().take(t.nr_rows as usize))
            .map(|row| row.target)
            .collect())
    }

    /// Passes on threads that wait in a target's queue and have another target by now.
    pub fn sweep(&mut self, id: u32) -> Result<(), KernelEngineError> {
        self.bss()?.definition.target = id;
        self.skel
            .progs
            .sweep_target
            .test_run(ProgramInput::default())
            .map_err(at("moving threads"))?;
        Ok(())
    }

    pub fn admit_by(&mut self, metric: u32, rows: &[(f64, u32)]) -> Result<(), KernelEngineError> {
        let control = &mut self.bss()?.control;
        let next = (control.admission + 1) & 1;
        let table = &mut control.tables[next as usize];
        table.metric = metric;
        table.nr_rows = rows.len().min(table.rows.len()) as u32;
        // The last row is for threads that fit no other row, so it must stay if there are too many rows.
        let kept = rows
            .iter()
            .take(table.rows.len() - 1)
            .chain(rows.last().filter(|_| rows.len() >= table.rows.len()));
        for (into, (least, target)) in table.rows.iter_mut().zip(kept) {
            into.least_q16 = (least * 65536.0) as u64;
            into.target = *target;
        }
        control.admission = next;
        Ok(())
    }

    /// Executes commands; `then` gets each with its result.
    pub fn obey(
        &mut self,
        commands: &[types::command],
        mut then: impl FnMut(&types::command),
    ) -> Result<(), KernelEngineError> {
        for batch in commands.chunks(shared::MAX_COMMANDS as usize) {
            let bss = self.bss()?;
            bss.commands[..batch.len()].copy_from_slice(batch);
            bss.nr_commands = batch.len() as u32;
            self.skel
                .progs
                .obey_commands
                .test_run(ProgramInput::default())
                .map_err(at("passing commands"))?;
            let bss = self.bss()?;
            bss.commands[..batch.len()].iter().for_each(&mut then);
        }
        Ok(())
    }

    /// Descriptor that becomes readable when there are events.
    pub fn ring(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring and lives as long.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Events since the last call.
    pub fn events(&mut self) -> Vec<types::event> {
        // Only a failing callback could fail, and this one does not.
        let _ = self.ring.consume();
        std::mem::take(&mut *self.events.borrow_mut())
    }
}

fn ring(
    skel: &EngineSkel<'_>,
    events: &Rc<RefCell<Vec<types::event>>>,
) -> Result<RingBuffer<'static>, KernelEngineError> {
    let events = Rc::clone(events);
    let take = move |bytes: &[u8]| {
        events.borrow_mut().extend(read::<types::event>(bytes));
        0
    };
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&skel.maps.ring, take)
        .map_err(at("opening the ring"))?;
    builder.build().map_err(at("opening the ring"))
}
