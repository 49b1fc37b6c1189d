//! Consequences of context switches: CPUs and running times of threads, and the values of their counters.

use countersteer_model::engine::{Span, ThreadEventKind};
use countersteer_model::units::{CpuId, ThreadId};

use super::{Simulation, pmu};

impl Simulation {
    /// Passes each CPU's running thread to the progress model, and records migrations and run intervals. Returns true if there
    /// was a context switch.
    pub(super) fn forward_switches(&mut self) -> bool {
        let mut switches = std::mem::take(&mut self.switch_buffer);
        self.linux.take_switches(&mut switches);
        let any = !switches.is_empty();
        for switch in switches.drain(..) {
            self.switches += 1;
            // A running thread that another CPU pulled is already on that CPU, which reports the gain before the old CPU reports
            // the loss.
            let here = |prev: &ThreadId| self.threads[prev.index()].cpu == switch.cpu;
            if let Some(prev) = switch.prev.filter(here) {
                self.switched_out(prev);
            }
            if let Some(next) = switch.next {
                self.switched_in(next, switch.cpu);
            }
            self.progress.set_running(switch.cpu, switch.next, self.now);
        }
        self.switch_buffer = switches;
        any
    }

    fn switched_out(&mut self, id: ThreadId) {
        let traces = self.traces();
        let thread = &mut self.threads[id.index()];
        let llc = self.topology.llc_of(thread.cpu);
        self.pmu
            .switched_out(id, self.progress.occupancy_lines(id, llc));
        let start = thread.running_since.take();
        if let Some(start) = start {
            let row = self.topology.core_type_of(thread.cpu).index();
            thread.ran_by_type[row] += self.now.since(start);
        }
        let start = start.filter(|start| traces && self.now > *start);
        self.spans.extend(start.map(|start| Span {
            thread: id,
            cpu: thread.cpu,
            start,
            end: self.now,
        }));
    }

    fn switched_in(&mut self, id: ThreadId, cpu: CpuId) {
        if self.threads[id.index()].running_since.is_some() {
            self.switched_out(id);
        }
        let from = self.threads[id.index()].cpu;
        if from != cpu {
            self.migrations += 1;
            self.event(id, ThreadEventKind::Migrate { from, to: cpu });
            if self.topology.core_type_of(from) != self.topology.core_type_of(cpu) {
                self.sample(id);
            }
        }
        let thread = &mut self.threads[id.index()];
        thread.cpu = cpu;
        thread.running_since = Some(self.now);
        self.touch_first(id);
    }

    /// Ends a thread's sampling interval and samples its counters.
    pub(super) fn sample(&mut self, id: ThreadId) {
        let cpu = self.threads[id.index()].cpu;
        let counters = self.progress.counters(id, self.now);
        let lines = self.progress.occupancy_lines(id, self.topology.llc_of(cpu));
        let truth = pmu::Truth {
            sf: self.progress.true_sf(id),
            ef: self.pmu.wants_ef().then(|| self.progress.true_ef(id)),
        };
        self.pmu.sample(
            id,
            cpu,
            self.topology.core_type_of(cpu),
            self.now,
            &counters,
            lines,
            truth,
        );
    }

    /// True if run intervals are reported.
    const fn traces(&self) -> bool {
        self.config.trace || self.reports_switches
    }

    pub(super) fn close_span(&mut self, row: usize) {
        let traces = self.traces();
        let thread = &mut self.threads[row];
        let start = thread
            .running_since
            .filter(|start| traces && self.now > *start);
        let id = ThreadId::from_index(row);
        let cpu = thread.cpu;
        self.spans.extend(start.map(|start| Span {
            thread: id,
            cpu,
            start,
            end: self.now,
        }));
    }
}
