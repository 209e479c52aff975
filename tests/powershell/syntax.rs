//! What our own PowerShell files may say: Windows PowerShell 5.1 reads them, and its parser knows less than 7's.

use std::path::{Path, PathBuf};

/// What 5.1's parser or cmdlets lack, as it stands outside of strings and comments. Lower case.
const TOO_NEW: [&str; 16] = [
    "??",
    "?.",
    "?[",
    "&&",
    "||", // operators of 7
    "-ashashtable",
    "-parallel",
    "-asarray",
    "-skipcertificatecheck",
    "-noproxy",
    "-asbytestream",
    "join-string",
    "test-json",
    "get-error",
    "clean {",
    "start-threadjob",
];

/// The source with comments and the insides of strings blanked out.
fn bare(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut left = source;
    while let Some(c) = left.chars().next() {
        let skip = match c {
            '#' if left.starts_with("#>") => 0,
            '#' => left.find('\n').unwrap_or(left.len()),
            '<' if left.starts_with("<#") => left.find("#>").map_or(left.len(), |at| at + 2),
            '@' if left.starts_with("@'") || left.starts_with("@\"") => {
                let end = format!("\n{}@", &left[1..2]);
                left.find(&end).map_or(left.len(), |at| at + end.len())
            }
            '\'' => left[1..].find('\'').map_or(left.len(), |at| at + 2),
            '"' => {
                let mut escaped = false;
                let end = left[1..].find(|c| match c {
                    _ if escaped => {
                        escaped = false;
                        false
                    }
                    '`' => {
                        escaped = true;
                        false
                    }
                    c => c == '"',
                });
                end.map_or(left.len(), |at| at + 2)
            }
            _ => 0,
        };
        if skip == 0 {
            out.push(c);
            left = &left[c.len_utf8()..];
        } else {
            out.push(' ');
            left = &left[skip..];
        }
    }
    out
}

/// What a source has that 5.1 lacks.
fn too_new(source: &str) -> Vec<String> {
    let bare = bare(source).to_ascii_lowercase();
    let mut found: Vec<String> =
        TOO_NEW.iter().filter(|word| bare.contains(**word)).map(|word| (*word).to_owned()).collect();
    for line in bare.lines() {
        // `? :` with blanks around them; `?` alone is an alias, and stands behind a bar
        if let Some((before, after)) = line.split_once(" ? ")
            && !before.trim_end().ends_with('|')
            && after.contains(" : ")
        {
            found.push("a ternary".to_owned());
        }
    }
    for escape in ["`e[", "`u{"] {
        if source.contains(escape) {
            found.push(escape.to_owned());
        }
    }
    found
}

fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

#[test]
fn our_files_say_nothing_that_windows_powershell_lacks() {
    let files = files_below(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets"), "ps1");
    assert!(!files.is_empty());
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        assert_eq!(too_new(&source), [] as [&str; 0], "{}", file.display());
    }
}

#[test]
fn what_windows_powershell_lacks_is_found() {
    for (source, word) in [
        ("$a ?? 1", "??"),
        ("$a ??= 1", "??"),
        ("${a}?.Length", "?."),
        ("${a}?[0]", "?["),
        ("a && b", "&&"),
        ("a || b", "||"),
        ("ConvertFrom-Json $x -AsHashtable", "-ashashtable"),
        ("1..3 | ForEach-Object -Parallel { $_ }", "-parallel"),
        ("$x = $a ? 1 : 2", "a ternary"),
        ("\"`e[31m\"", "`e["),
        ("\"`u{1F600}\"", "`u{"),
        ("'it''s' + ($a ?? 'b')", "??"),
        ("\"a `\" b\" + ($a ?? 'b')", "??"),
    ] {
        assert_eq!(too_new(source), [word], "{source}");
    }
    for source in [
        "# a ?? b && c",
        "<# a ?? b\n && #> 'x'",
        "'a ?? b'",
        "\"a && b\"",
        "@'\na ?? b\n'@",
        "1..3 | ? { $_ -eq 2 }",
        "if ($a) { 1 } else { 2 }",
    ] {
        assert_eq!(too_new(source), [] as [&str; 0], "{source}");
    }
}
