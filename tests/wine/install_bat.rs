//! `install.bat` as Windows runs it, with a program in podlink.exe's place that only says how it was called.

use std::{path::Path, process::Command};

use crate::support::{Wine, wine::windows_path};

/// Prints its arguments, and ends with what stands in the file `code` beside it.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    char path[1024]; int code = 99; FILE *file; char *end;
    for (int i = 1; i < argc; i++) printf("argument [%s]\n", argv[i]);
    fprintf(stderr, "on stderr\n");
    strcpy(path, argv[0]);
    end = strrchr(path, '\\');
    if (!end) return 98;
    strcpy(end + 1, "code");
    file = fopen(path, "r");
    if (file) fscanf(file, "%d", &code);
    return code;
}
"#;

#[test]
fn it_calls_the_program_beside_it_and_passes_its_exit_code_on() {
    let Some(wine) = Wine::open() else { return };
    let folder = wine.folder().join("a b & c (d)");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/oem/install.bat"), folder.join("install.bat"))
        .unwrap();
    std::fs::write(wine.folder().join("a.c"), PROGRAM).unwrap();
    let compiler = Command::new("x86_64-w64-mingw32-gcc")
        .arg(wine.folder().join("a.c"))
        .arg("-o")
        .arg(wine.folder().join("fake.exe"))
        .output()
        .unwrap();
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    let oem = wine.drive_c().join("OEM");
    std::fs::create_dir(&oem).unwrap();
    // cmd's own `/c` would take quotes away from such a path, whose characters mean something to it
    let runner = format!("@\"{}\"\r\n", windows_path(&folder.join("install.bat")));
    std::fs::write(wine.folder().join("run.bat"), runner).unwrap();
    let log = || String::from_utf8_lossy(&std::fs::read(oem.join("podlink-install.log")).unwrap()).into_owned();

    // the virus scanner was quicker
    wine.run("cmd.exe", &["/d", "/c", "run.bat"]).exits(2);
    assert!(log().contains("podlink.exe is missing"), "{}", log());

    std::fs::copy(wine.folder().join("fake.exe"), folder.join("podlink.exe")).unwrap();
    for code in [0, 7] {
        std::fs::write(folder.join("code"), code.to_string()).unwrap();
        wine.run("cmd.exe", &["/d", "/c", "run.bat"]).exits(code);
        let log = log();
        assert!(
            log.contains("argument [agent]") && log.contains("argument [install]") && log.contains("on stderr"),
            "{log}"
        );
        assert!(log.contains(&format!("ended with exit code {code}")), "{log}");
    }
}
