//! Test of the table of coverage: the page has each row, in the papers' order.

const TABLE: &str = include_str!("../../../bench/coverage.toml");
const PAGE: &str = include_str!("../../../docs/coverage.md");

/// Papers with their numbers of rows.
const PAPERS: [(&str, usize); 5] = [
    ("PMCTrack", 34),
    ("PMCSched", 15),
    ("PMU meta-scheduler", 10),
    ("CMPSched$im", 14),
    ("HASS", 10),
];

#[test]
fn the_page_has_every_row_of_the_table() {
    let table: toml::Table = TABLE.parse().unwrap();
    let papers = table["paper"].as_array().unwrap();
    let mut lines = PAGE.lines();
    for (paper, (title, rows)) in papers.iter().zip(PAPERS) {
        assert_eq!(paper["title"].as_str(), Some(title));
        let listed = paper["row"].as_array().unwrap();
        assert_eq!(listed.len(), rows, "{title}");
        for row in listed {
            let text = |key: &str| {
                row.get(key)
                    .and_then(toml::Value::as_str)
                    .unwrap_or_default()
            };
            let found = lines.find(|line| line.contains(text("feature")));
            let line = found.unwrap_or_else(|| panic!("`make coverage`: no {}", text("feature")));
            let command = text("command").replace('|', "\\|");
            assert!(
                line.contains(&command),
                "`make coverage`: {line} is not of {command}"
            );
            assert!(
                line.contains(text("lacks")) && line.contains(text("wants")),
                "{line}"
            );
            assert!(!row["expect"].as_array().unwrap().is_empty(), "{line}");
        }
    }
    assert_eq!(papers.len(), PAPERS.len());
}
