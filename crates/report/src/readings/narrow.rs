//! Tests of tables on narrow terminals.

use countersteer_model::counters::{
    Owner, Per, PlannedEvent, PlannedSet, Sample, Samples, SetPlan,
};
use countersteer_model::units::{CoreTypeId, CpuId, Nanos};

use super::{ReadingOptions, Style, Writer};

#[test]
fn what_is_counted_unless_asked_fits_eighty_columns() {
    let names = [
        "task_clock",
        "context_switches",
        "cpu_migrations",
        "page_faults",
    ];
    let unit = |name: &str| if name == "task_clock" { "ns" } else { "" };
    let events = names
        .map(|name| PlannedEvent {
            name: name.into(),
            unit: unit(name).into(),
            scale: 1.0,
            event: None,
        })
        .into();
    let plan = SetPlan::new(vec![PlannedSet { events }], None).unwrap();
    let core_types = ["cpu".to_owned()];
    let lines = |room| {
        let mut writer = Writer::new(ReadingOptions {
            style: Style::Table,
            plan: &plan,
            metrics: &[],
            only_metrics: false,
            core_types: &core_types,
            scale: false,
            per: Per::Thread,
            virtuals: &[],
            room,
        });
        writer.since(Nanos::ZERO);
        let mut samples = Samples::default();
        let thread = Owner::Thread { pid: 7, tid: 8 };
        let row = Sample {
            present: 15,
            ..Sample::new(thread, Some(CpuId(3)), CoreTypeId(0), 0)
        };
        samples.push(row, [21_116_000.0, 7.0, 0.0, 31.0]);
        let mut text = Vec::new();
        writer.head(&mut text);
        writer.lines(&samples, |_| "a-long-name-of1", &|_, _| None, &mut text);
        String::from_utf8(text).unwrap()
    };
    let widest = |text: &str| text.lines().map(|l| l.chars().count()).max().unwrap();
    let (wide, narrow) = (lines(Some(120)), lines(Some(80)));
    assert_eq!((wide.lines().count(), lines(None)), (2, wide.clone()));
    assert!(
        widest(&narrow) <= 80 && narrow.lines().count() == 3,
        "{narrow}"
    );
    let heads: Vec<&str> = narrow.lines().take(2).collect();
    assert!(
        heads[0].contains("context_") && heads[1].contains("switches"),
        "{narrow}"
    );
    assert!(
        narrow.contains("21.116") && widest(&wide) <= 120,
        "{narrow}{wide}"
    );
}
