//! What README and docs say that can be held against the code.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(top().join(name)).unwrap()
}

/// `pub const NAME: Self = Self(N);` of src/cmd/exit.rs.
fn codes_of_the_source(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": Self = Self("))
        .map(|(name, rest)| (name.to_owned(), rest.trim_end_matches(");").to_owned()))
        .collect()
}

/// The rows of the table under the heading `## Exit codes`: its first column and what it says.
fn codes_of_the_readme(text: &str) -> BTreeMap<String, String> {
    let (_, section) = text.split_once("\n## Exit codes\n").expect("README.md has the heading `Exit codes`");
    let section = section.split("\n## ").next().unwrap();
    section
        .lines()
        .filter_map(|line| line.strip_prefix('|')?.split_once('|'))
        .map(|(code, meaning)| {
            (code.trim().trim_matches('`').to_owned(), meaning.trim_end_matches('|').trim().to_owned())
        })
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect()
}

#[test]
fn every_exit_code_stands_in_the_readme() {
    let source = codes_of_the_source(&read("src/cmd/exit.rs"));
    let readme = codes_of_the_readme(&read("README.md"));
    assert!(source.len() >= 10, "{source:?}");
    for (name, code) in &source {
        assert!(
            readme.get(code).is_some_and(|meaning| !meaning.is_empty()),
            "README.md does not explain {code} ({name})"
        );
    }
    for code in readme.keys() {
        assert!(
            source.iter().any(|(_, known)| known == code),
            "README.md explains {code}, which src/cmd/exit.rs lacks"
        );
    }
}

#[test]
fn every_error_code_stands_in_the_protocol_with_its_status() {
    let page = read("docs/protocol.md");
    let schemas = serde_json::to_value(podlink::protocol::openapi()).unwrap();
    let codes = schemas["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap().clone();
    assert!(codes.len() > 15);
    for code in codes {
        let status = serde_json::from_value::<podlink::protocol::ErrorCode>(code.clone()).unwrap().status();
        let row = format!("| {status} | `{}` |", code.as_str().unwrap());
        assert!(page.contains(&row), "docs/protocol.md lacks the row {row}");
    }
}

#[test]
fn the_test_vector_of_the_proof_is_right() {
    use podlink::token::{Challenge, Token};
    let page = read("docs/protocol.md");
    let value = |name: &str| {
        let row = page.split_once(&format!("| {name} | `")).expect("the vector stands in a table").1;
        row.as_bytes()[..64].to_owned()
    };
    let (token, challenge) = (Token::parse(&value("token")).unwrap(), Challenge::parse(&value("challenge")).unwrap());
    assert_eq!(token.prove(&challenge).to_hex().into_bytes(), value("proof"));
}

fn pages() -> Vec<PathBuf> {
    let in_docs = std::fs::read_dir(top().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let at_top = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| top().join(name));
    in_docs.chain(at_top).filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The targets of `[text](target)`.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

/// A heading's anchor, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(|c: char| !(c.is_alphanumeric() || "-_ ".contains(c)), "");
    kept.replace(' ', "-")
}

#[test]
fn every_relative_link_leads_somewhere() {
    let pages = pages();
    assert!(pages.len() >= 5, "{pages:?}");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            seen += 1;
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = target.exists()
                && (fragment.is_empty()
                    || std::fs::read_to_string(&target)
                        .unwrap()
                        .lines()
                        .filter(|line| line.starts_with('#'))
                        .any(|line| anchor(line.trim_start_matches('#')) == fragment));
            if !found {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(seen > 5, "only {seen} links were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn tables_and_links_are_read() {
    assert_eq!(
        codes_of_the_source(
            "    pub const A: Self = Self(0);\n    pub fn b() {}\n    pub const C: Self = Self(125);\n"
        ),
        [("A".to_owned(), "0".to_owned()), ("C".to_owned(), "125".to_owned())]
    );
    let readme = "x\n## Exit codes\n\n| code | meaning |\n| --- | --- |\n| 0 | good |\n| `7` | its own |\n\n## More\n| 9 | no |\n";
    assert_eq!(codes_of_the_readme(readme).into_keys().collect::<Vec<_>>(), ["0", "7"]);
    assert_eq!(links("a [b](c.md) and [d](e#f)"), ["c.md", "e#f"]);
    assert_eq!(anchor(" GET /health: `ok`"), "get-health-ok");
}
