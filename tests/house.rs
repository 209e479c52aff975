//! The house as drawn in docs/architecture.md, held against the code.

use std::path::{Path, PathBuf};

/// Which room may name which. Arrows go down only.
const MAY_USE: &[(&str, &[&str])] = &[
    ("cmd", &["host", "guest", "compose", "token", "protocol"]),
    ("host", &["protocol", "token", "compose"]),
    ("guest", &["protocol", "token"]),
    ("compose", &[]),
    ("token", &[]),
    ("protocol", &[]),
];

/// Lines that a file with one subject does not pass.
const MAX_LINES: usize = 400;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The path below the repository, and the text.
fn all() -> Vec<(String, String)> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = sources(&top.join("src"));
    assert!(files.len() > 10);
    files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

#[test]
fn rooms_name_only_the_rooms_below_them() {
    let mut wrong = Vec::new();
    for (name, text) in all() {
        let room = name.split('/').nth(1).unwrap();
        let Some((_, allowed)) = MAY_USE.iter().find(|(from, _)| *from == room) else { continue };
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for part in line.split("crate::").skip(1) {
                let named: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if named != room && MAY_USE.iter().any(|(to, _)| *to == named) && !allowed.contains(&named.as_str()) {
                    wrong.push(format!("{name} names {named}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_says_what_it_is_and_has_one_subject() {
    let mut wrong = Vec::new();
    for (name, text) in all() {
        if !text.starts_with("//!") {
            wrong.push(format!("{name} does not open with a module doc"));
        }
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").count();
        if lines > MAX_LINES {
            wrong.push(format!("{name} has {lines} lines before its tests"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_differs_by_system_stays_in_its_place() {
    let mut wrong = Vec::new();
    for (name, text) in all() {
        if name.starts_with("src/guest/") && !name.starts_with("src/guest/sys/") && text.contains("cfg(") {
            for line in text.lines() {
                if line.contains("cfg(windows") || line.contains("cfg(unix") || line.contains("cfg(target_os") {
                    wrong.push(format!("{name}: {line}"));
                }
            }
        }
        // access lists on Windows, which the token's room needs on both sides
        let may_be_unsafe = ["src/guest/sys/", "src/token/private/windows"];
        if !may_be_unsafe.iter().any(|place| name.starts_with(place)) && text.contains("unsafe_code") {
            wrong.push(format!("{name} opens unsafe code"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
