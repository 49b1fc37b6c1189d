//! Tests of policies that decide by core group: they see only their group.

use std::sync::Arc;

use countersteer_model::engine::{ProgramInfo, ThreadEvent, ThreadEventKind, ThreadInfo};
use countersteer_model::machine::Machine;
use countersteer_model::metric::MetricBank;
use countersteer_model::placement::{
    AdmissionTable, ClockLimit, Members, Placement, Reason, Target, ThreadPlacement, WayClass,
};
use countersteer_model::policy::{Needs, Policy, PolicyRng, View, decide};
use countersteer_model::topology::{GroupBy, Topology};
use countersteer_model::units::{CpuId, GroupId, Nanos, ProgramId, ThreadId};
use rand::SeedableRng;

/// Places its threads on the first CPU of the group, and counts the threads it saw.
struct ByGroup {
    needs: Needs,
    calls: Vec<(GroupId, Vec<ThreadId>, usize, usize)>,
}

impl Policy for ByGroup {
    fn needs(&self) -> &Needs {
        &self.needs
    }

    fn decide(&mut self, view: &mut View<'_>, _: &mut PolicyRng) -> Placement {
        let Some(group) = view.group else {
            return Placement::default();
        };
        let ids: Vec<ThreadId> = view.threads.iter().map(|t| t.id).collect();
        let (events, programs) = (view.events.len(), view.programs.len());
        self.calls.push((group.id, ids.clone(), events, programs));
        let place = |id| ThreadPlacement::new(id, Target::Group(group.id), Reason::rule("here"));
        Placement {
            threads: ids.into_iter().map(place).collect(),
            admission: Some(AdmissionTable {
                metric: "sf".into(),
                rows: vec![(0.0, group.id)],
            }),
            caches: Some(vec![WayClass {
                name: group.name.clone().into(),
                members: Members::Threads(Vec::new()),
                shares: Vec::new(),
            }]),
            clocks: Some(vec![ClockLimit {
                cpu: CpuId(group.id.0),
                most_mhz: 800,
                reason: Reason::default(),
            }]),
        }
    }
}

fn thread(id: u32, cpu: u32) -> ThreadInfo {
    ThreadInfo {
        id: ThreadId(id),
        program: ProgramId(0),
        name: "p".into(),
        cpu: CpuId(cpu),
        runnable: true,
        nice: 0,
        allowed: Arc::default(),
        hint: None,
    }
}

#[test]
fn each_group_has_a_view_of_its_threads_and_placements_come_together() {
    let text = include_str!("../../../machines/opteron-8356-12-4.toml");
    let machine = Machine::parse("opteron", text).unwrap();
    let topology = Arc::new(Topology::new(&machine));
    let sockets = topology.groups_by(GroupBy::Socket);
    assert!(sockets.len() > 1);
    let mut policy = ByGroup {
        needs: Needs {
            groups: Some(GroupBy::Socket),
            ..Needs::NOTHING
        },
        calls: Vec::new(),
    };
    let last = sockets.len() - 1;
    let cpu = |row: usize| sockets[row].cpus.lowest().unwrap().0;
    let threads = [
        thread(1, cpu(last)),
        thread(2, cpu(0)),
        thread(7, cpu(last)),
    ];
    let event = |thread, kind| ThreadEvent {
        at: Nanos::ZERO,
        thread: ThreadId(thread),
        kind,
    };
    let events = [
        event(2, ThreadEventKind::Wake),
        event(5, ThreadEventKind::Exit),
    ];
    let programs = [ProgramInfo {
        id: ProgramId(0),
        name: "p".into(),
        path: None,
    }];
    let metrics = MetricBank::new(&topology, &[]);
    let mut view = View {
        now: Nanos::ZERO,
        topology: &topology,
        group: None,
        threads: &threads,
        programs: &programs,
        events: &events,
        metrics: &metrics,
        forecast: None,
    };
    let placement = decide(&mut policy, &mut view, &mut PolicyRng::seed_from_u64(1));
    assert_eq!(policy.calls.len(), sockets.len());
    let first = (sockets[0].id, vec![ThreadId(2)], 2, 1);
    let other = (sockets[last].id, vec![ThreadId(1), ThreadId(7)], 1, 1);
    assert_eq!(policy.calls[0], first);
    assert_eq!(policy.calls[last], other);
    let placed: Vec<_> = (placement.threads.iter())
        .map(|t| (t.thread.0, t.target.clone()))
        .collect();
    let at = |row: usize| Target::Group(sockets[row].id);
    assert_eq!(placed, [(1, at(last)), (2, at(0)), (7, at(last))]);
    assert_eq!(placement.admission.unwrap().rows[0].1, sockets[last].id);
    assert_eq!(placement.caches.unwrap().len(), sockets.len());
    assert_eq!(placement.clocks.unwrap().len(), sockets.len());
}
