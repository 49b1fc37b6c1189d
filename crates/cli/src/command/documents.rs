//! Test: every command line of `steer` in the README and the documents can be typed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = fs::read_dir(root.join("docs")).unwrap();
    let mut found: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "md"));
    found.extend(["README.md", "python/README.md", "CONTRIBUTING.md"].map(|name| root.join(name)));
    found.sort();
    found
}

/// Texts that are marked as code: lines of blocks, with continued lines joined (true), and words between back quotes (false).
fn code(document: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (number, part) in document.split("\n```").enumerate() {
        let lines = part.replace("\\\n", " ");
        if number % 2 == 1 {
            found.extend(lines.lines().skip(1).map(|line| (line.to_owned(), true)));
        } else {
            let quoted = lines.split('`').skip(1).step_by(2);
            found.extend(quoted.map(|code| (code.replace('\n', " "), false)));
        }
    }
    found
}

/// The first command of a line, in words as a shell makes them. Comments and other commands of the line are left out.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        let word = words.last_mut().unwrap();
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            (None, '|' | '>' | '&' | ';') => break,
            (None, '#') if word.is_empty() => break,
            (None, ' ') if word.is_empty() => {}
            (None, ' ') => words.push(String::new()),
            _ => word.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Command line of `steer` in a piece of code; `None` if there is none, or if it is only named or abridged.
fn command(code: &str) -> Option<Vec<String>> {
    let code = code.trim_start_matches("sudo ").trim_start_matches("$ ");
    let words = words(code);
    let is_abridged = words.iter().any(|word| word.contains("...") || word == "…");
    (words.first()? == "steer" && words.len() > 1 && !is_abridged).then_some(words)
}

/// True for a mention of a command or option without the arguments that it needs.
fn is_mention(why: &clap::Error) -> bool {
    use clap::error::ErrorKind;
    match why.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => why.to_string().contains("but none was supplied"),
        _ => false,
    }
}

#[test]
fn every_command_line_in_the_documents_can_be_typed() {
    let mut tried = 0;
    let mut wrong = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for (code, is_line) in code(&text) {
            let Some(words) = command(&code) else {
                continue;
            };
            tried += 1;
            let args: Vec<OsString> = words.iter().map(OsString::from).collect();
            let refused = super::parse(&args).err().filter(|e| e.use_stderr());
            if let Some(why) = refused.filter(|why| is_line || !is_mention(why)) {
                wrong.push(format!("{}: {}: {why}", path.display(), words.join(" ")));
            }
        }
    }
    assert!(tried > 300, "{tried}");
    assert!(
        wrong.is_empty(),
        "{} of {tried}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
