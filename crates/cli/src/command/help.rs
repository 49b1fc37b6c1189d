//! `steer help`: prints the help of a command, or a page of the manual.
//!
//! Input: words of a command, or the name of a page in `docs/`. Output: text wrapped to the terminal's width. Tables and code
//! keep their lines; links show the name of their page.

use countersteer_lab::error::{FaultKind, failure};
use countersteer_report::table::{plain, prose};

use super::print;

/// Arguments of `steer help`.
#[derive(Debug, clap::Args)]
pub struct HelpArgs {
    /// Command (with its subcommand) or manual page to show; default: a list of all commands and pages
    #[arg(value_name = "COMMAND|PAGE")]
    words: Vec<String>,
}

/// ManualPage of the manual, with its Markdown text.
struct ManualPage {
    name: &'static str,
    text: &'static str,
}

macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        /// Pages of the manual from `docs/`, in reading order.
        const PAGES: &[ManualPage] = &[$(ManualPage {
            name: $name,
            text: include_str!(concat!("../../../../docs/", $name, ".md")),
        }),+];
    };
}

pages![
    "quick-start",
    "hybrid-laptop",
    "x3d-desktop",
    "many-llc-server",
    "compare-a-policy",
    "scheduler-authors",
    "examples",
    "steering",
    "threads",
    "auto-decisions",
    "counters",
    "scores",
    "machines",
    "simulated-linux",
    "records",
    "policies",
    "writing-policies",
    "published",
    "caches",
    "models",
    "architecture",
    "internals",
    "glossary",
    "benchmarks",
    "reproduction",
    "coverage",
];

/// Runs `steer help`.
pub fn run(args: &HelpArgs) -> anyhow::Result<()> {
    let mut command = super::command();
    if args.words.is_empty() {
        let commands = command.render_long_help().to_string();
        return print(&format!("{commands}\n{}", contents()));
    }
    if let [name] = args.words.as_slice()
        && let Some(page) = PAGES.iter().find(|page| page.name == name)
    {
        return print(&shown(page.text));
    }
    command.build();
    let mut found = &mut command;
    for word in &args.words {
        found = found
            .find_subcommand_mut(word)
            .ok_or_else(|| unknown(&args.words))?;
    }
    print(&found.render_long_help().to_string())
}

/// Formats a table of all pages of the manual with their titles.
fn contents() -> String {
    let title = |page: &ManualPage| page.text.lines().next().unwrap_or_default();
    let rows = PAGES.iter().map(|page| {
        let title = title(page).trim_start_matches(['#', ' ']);
        vec![page.name.to_owned(), title.to_owned()]
    });
    format!(
        "Pages (`steer help PAGE`):\n{}",
        plain(&["page", "title"], rows)
    )
}

fn unknown(words: &[String]) -> anyhow::Error {
    let names: Vec<&str> = PAGES.iter().map(|page| page.name).collect();
    failure(
        FaultKind::Usage,
        format!(
            "there is no command or page `{}`; `steer help` lists the commands, and the pages are {}",
            words.join(" "),
            names.join(", ")
        ),
    )
}

/// Converts a page from Markdown to text for the terminal.
fn shown(page: &str) -> String {
    let mut out = String::new();
    let mut text = String::new();
    let mut table: Vec<Vec<String>> = Vec::new();
    let mut in_code = false;
    for line in page.lines() {
        let is_row = !in_code && line.starts_with('|');
        if !is_row && !table.is_empty() {
            out += &aligned(&std::mem::take(&mut table));
        }
        if line.starts_with("```") {
            out += &prose(&std::mem::take(&mut text));
            in_code = !in_code;
        } else if in_code {
            out += &format!("    {line}\n");
        } else if is_row {
            out += &prose(&std::mem::take(&mut text));
            table.push(cells(line));
        } else if !line.starts_with("![") {
            text += &format!("{}\n", with_links_named(line));
        }
    }
    if !table.is_empty() {
        out += &aligned(&table);
    }
    out + &prose(&text)
}

/// Returns the cells of one row of a Markdown table.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    // An escaped bar is part of a cell's text, so another character replaces it until the row is split.
    let inner = inner.replace("\\|", "\u{1}");
    inner
        .split('|')
        .map(|cell| with_links_named(cell.trim()).replace('\u{1}', "|"))
        .collect()
}

/// Formats the rows of a Markdown table with aligned columns. The row of dashes below the head is omitted.
fn aligned(rows: &[Vec<String>]) -> String {
    let is_rule = |row: &Vec<String>| row.iter().all(|c| c.chars().all(|c| "-: ".contains(c)));
    let head: Vec<&str> = rows[0].iter().map(String::as_str).collect();
    let body = rows[1..].iter().filter(|row| !is_rule(row)).cloned();
    plain(&head, body)
}

/// Replaces links `[text](page.md#part)` to manual pages by `text (steer help page)`, and other links by their text and
/// address.
fn with_links_named(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, text, target, after)) = next_link(rest) {
        let page = target.split('#').next().unwrap_or(target);
        let name = page.trim_end_matches(".md").rsplit('/').next();
        let known = PAGES.iter().find(|p| Some(p.name) == name);
        out += before;
        out += &match known {
            Some(page) => format!("{text} (steer help {})", page.name),
            None if page.is_empty() => text.to_owned(),
            None => format!("{text} ({target})"),
        };
        rest = after;
    }
    out + rest
}

/// Finds the first link of a line. Returns the text before it, its text, its target, and the rest of the line; `None` without a
/// link.
fn next_link(line: &str) -> Option<(&str, &str, &str, &str)> {
    let middle = line.find("](")?;
    let start = line[..middle].rfind('[')?;
    let end = middle + line[middle..].find(')')?;
    Some((
        &line[..start],
        &line[start + 1..middle],
        &line[middle + 2..end],
        &line[end + 1..],
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_manual_can_be_shown_and_fits_a_terminal() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for entry in std::fs::read_dir(docs).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.extension().is_some_and(|e| e == "md") && name != "README" {
                assert!(PAGES.iter().any(|page| page.name == name), "{name}");
            }
        }
        for page in PAGES {
            assert!(page.text.starts_with("# "), "{}", page.name);
            assert!(shown(page.text).lines().count() > 20, "{}", page.name);
        }
        let text = shown(
            "# A\n\nSee [scores](scores.md#asp).\n\n```\ncode   kept\n```\n\n| a | b |\n|---|---|\n| 1 | 2 \\| 3 |\n",
        );
        assert!(text.contains("See scores (steer help scores)."), "{text}");
        assert!(text.contains("    code   kept\n"), "{text}");
        assert!(text.contains("2 | 3") && !text.contains("---"), "{text}");
    }

    #[test]
    fn links_keep_their_address_unless_they_are_pages() {
        let shown = with_links_named("a [b](https://c.d) and [e](../machines/f.toml), [g](#h)");
        assert_eq!(shown, "a b (https://c.d) and e (../machines/f.toml), g");
    }
}
