//! The executable itself, before it serves anybody.

use podlink::host::WindowsExe;

use crate::support::Wine;

#[test]
fn it_starts_and_prints_and_its_exit_codes_arrive() {
    let Some(wine) = Wine::open() else { return };
    let exe = wine.podlink();
    let run = wine.run(&exe, &["--version"]).exits(0);
    assert_eq!(run.stdout.trim_end(), concat!("podlink ", env!("CARGO_PKG_VERSION")));
    println!("measured: podlink.exe --version, the first in a prefix: {:.1} s", run.took.as_secs_f64());
    let run = wine.run(&exe, &["agent", "--no-such-flag"]).exits(2);
    assert!(run.stderr.contains("--no-such-flag"), "{}", run.stderr);
    assert_eq!(wine.run("cmd.exe", &["/c", "exit 7"]).exits(7).stdout, "");
}

/// No window flashes at log-on, nothing is asked for that Windows has not, and `podlink setup` takes it.
#[test]
fn it_says_what_it_is() {
    let Some(wine) = Wine::open() else { return };
    let exe = WindowsExe::parse(&std::fs::read(wine.folder().join("podlink.exe")).unwrap()).unwrap();
    assert!(exe.is_x86_64 && exe.is_without_console, "{exe:?}");
    assert_eq!(exe.product.as_deref(), Some("podlink"));
    assert_eq!(exe.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    assert!(exe.imports.contains(&"kernel32.dll".to_owned()) && !exe.imports.iter().any(|dll| dll.contains("gcc")));
}

/// Though it is of the subsystem that gets no console, a shell's redirection reaches it.
#[test]
fn it_prints_where_a_shell_redirects_it() {
    let Some(wine) = Wine::open() else { return };
    let run = wine.run("cmd.exe", &["/d", "/c", &format!("{} --version > said.txt", wine.podlink())]).exits(0);
    let said = std::fs::read_to_string(wine.folder().join("said.txt")).unwrap();
    assert_eq!(said.trim_end(), concat!("podlink ", env!("CARGO_PKG_VERSION")), "{run:?}");
}
