//! The executable itself, before it serves anybody.

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
