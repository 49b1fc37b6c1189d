//! Command lines and files that a document shows in its blocks of code.

/// Block of code: the line that opens it, the paragraph before it, and its lines.
struct Block<'a> {
    language: &'a str,
    paragraph: String,
    lines: Vec<&'a str>,
}

fn blocks(document: &str) -> Vec<Block<'_>> {
    let mut found: Vec<Block<'_>> = Vec::new();
    let mut is_open = false;
    let mut paragraph = String::new();
    let mut is_ended = false;
    for line in document.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                found.push(Block {
                    language,
                    paragraph: std::mem::take(&mut paragraph),
                    lines: Vec::new(),
                });
            }
        } else if let Some(block) = found.last_mut().filter(|_| is_open) {
            block.lines.push(line);
        } else if line.is_empty() {
            is_ended = true;
        } else {
            if std::mem::take(&mut is_ended) {
                paragraph.clear();
            }
            paragraph += line;
            paragraph.push('\n');
        }
    }
    found
}

/// Command lines of `steer` in a document, without prompts, and with continued lines joined.
pub fn commands(document: &str) -> Vec<String> {
    let texts = blocks(document)
        .into_iter()
        .map(|block| block.lines.join("\n").replace("\\\n", " "));
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let without_prompt = lines.map(|line| {
        let line = line.trim_start();
        line.strip_prefix("$ ").unwrap_or(line).to_owned()
    });
    without_prompt
        .filter(|line| line.starts_with("steer "))
        .collect()
}

/// Files that a document shows: blocks of TOML after a paragraph that names one file. Returns names and contents.
pub fn files(document: &str) -> Vec<(String, String)> {
    let named = |block: Block<'_>| {
        let quoted = block.paragraph.split('`').skip(1).step_by(2);
        let mut names = quoted.filter(|code| code.ends_with(".toml") && !code.contains(['/', '*']));
        let (name, None) = (names.next()?, names.next()) else {
            return None;
        };
        (block.language == "toml").then(|| (name.to_owned(), block.lines.join("\n") + "\n"))
    };
    blocks(document).into_iter().filter_map(named).collect()
}

#[test]
fn lines_and_files_of_a_document_are_found() {
    let document = "The file `a/b.toml`.\n\nThe file\n`c.toml`:\n\n```toml\nx = 1\n```\n\nsteer no\n```\n$ steer a \\\n  b\nnone\n```\n";
    assert_eq!(commands(document), ["steer a    b"]);
    assert_eq!(
        files(document),
        [("c.toml".to_owned(), "x = 1\n".to_owned())]
    );
}
