//! `podlink pod exec -t`, `pod attach` and `pod shell` on a real terminal, driven key by key.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{LocalPod, Terminal, processes, wait_for};

/// `podlink pod …` on a terminal of 24 lines and 80 columns.
fn on_terminal(pod: &LocalPod, args: &[&str]) -> Terminal {
    on_terminal_of(pod, args, 24, 80)
}

fn on_terminal_of(pod: &LocalPod, args: &[&str], rows: u16, cols: u16) -> Terminal {
    Terminal::run(&pod.pod(args).env("TERM", "xterm").command(), rows, cols)
}

/// How the terminal was before anything ran on it.
fn untouched() -> String {
    Terminal::run(std::process::Command::new("true").env("PATH", std::env::var_os("PATH").unwrap()), 24, 80)
        .attributes()
}

#[test]
fn the_programs_terminal_is_as_ours_and_follows_it() {
    let pod = LocalPod::ready();
    let before = untouched();
    let mut terminal =
        on_terminal_of(&pod, &["exec", "-t", "stty size; echo $TERM; read x; stty size; exit 6"], 33, 101);
    terminal.wait_for("33 101\r\nxterm\r\n");
    terminal.wait_until_raw();
    assert_ne!(terminal.attributes(), before);
    terminal.resize(40, 120);
    // nothing tells here that the change has gone through: it goes before the key does, on the same way
    terminal.type_keys("\r");
    terminal.wait_for("40 120\r\n");
    assert_eq!(terminal.end().code(), Some(6));
    assert_eq!(terminal.attributes(), before);
}

#[test]
fn ctrl_c_and_ctrl_z_are_the_programs() {
    let pod = LocalPod::ready();
    let before = untouched();
    let script =
        "trap 'echo got it; exit 7' INT; trap 'echo stopped not' TSTP; echo ready; while :; do sleep 0.05; done";
    let mut terminal = on_terminal(&pod, &["exec", "-t", script]);
    terminal.wait_for("ready");
    terminal.wait_until_raw();
    terminal.type_keys("\x1a");
    terminal.wait_for("stopped not");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().code(), Some(7), "{}", terminal.shown());
    terminal.wait_for("got it");
    assert_eq!(terminal.attributes(), before);
}

#[test]
fn keys_and_ends_of_input_reach_the_program() {
    let pod = LocalPod::ready();
    let mut terminal = on_terminal(&pod, &["exec", "-it", "--", "cat"]);
    terminal.wait_until_raw();
    terminal.type_keys("hello\r");
    // once echoed by the program's terminal, once said by the program
    terminal.wait_for("hello\r\nhello\r\n");
    terminal.type_keys("\x04");
    assert_eq!(terminal.end().code(), Some(0));
}

/// A program that draws on the whole screen: `vi`, where there is one.
#[test]
fn a_full_screen_program_draws_and_gives_the_screen_back() {
    if !["/usr/bin/vim", "/usr/bin/vi"].iter().any(|path| std::path::Path::new(path).exists()) {
        println!("skipped: no vi here");
        return;
    }
    let pod = LocalPod::ready();
    let before = untouched();
    let file = pod.file("notes");
    std::fs::write(&file, "the first line\n").unwrap();
    let mut terminal = on_terminal(&pod, &["exec", "-it", "--", "vi", &file]);
    terminal.wait_for("the first line");
    assert!(terminal.shown().contains("\x1b[?1049h") || terminal.shown().contains("\x1b[2J"), "{:?}", terminal.shown());
    terminal.type_keys("Owritten here\x1b");
    terminal.wait_for("written here");
    terminal.type_keys(":wq\r");
    assert_eq!(terminal.end().code(), Some(0), "{:?}", terminal.shown());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written here\nthe first line\n");
    assert_eq!(terminal.attributes(), before);
}

#[test]
fn the_terminal_is_restored_when_the_agent_is_killed() {
    let pod = LocalPod::ready();
    let before = untouched();
    let mut terminal = on_terminal(&pod, &["exec", "-t", "echo ready; exec sleep 600"]);
    terminal.wait_for("ready");
    terminal.wait_until_raw();
    processes::kill(&[pod.pid()]);
    assert_eq!(terminal.end().code(), Some(125));
    assert_eq!(terminal.attributes(), before);
    // said on a terminal where a line ends where it should
    terminal.wait_until("the reason", |shown| shown.contains("podlink: ") && shown.ends_with("\r\n"));
}

/// Attributes are one half of a terminal; the other is what a full-screen program has made of its screen.
#[test]
fn the_screen_is_given_back_when_a_full_screen_program_is_left_or_lost() {
    let pod = LocalPod::ready();
    let script = "printf '\\033[?1049h\\033[?25l\\033[?1000hdrawn'; exec sleep 600";
    let given_back = "\x1b[?25h\x1b[?1000l\x1b[?1049l\x1b[0m";
    let mut terminal = on_terminal(&pod, &["exec", "-t", script]);
    terminal.wait_for("drawn");
    terminal.wait_until_raw();
    terminal.type_keys("\x10\x11");
    assert_eq!(terminal.end().code(), Some(0));
    terminal.wait_for(given_back);
    terminal.wait_for("runs on");

    let id = pod.running()[0]["process_id"].as_str().unwrap().to_owned();
    let mut terminal = on_terminal(&pod, &["attach", &id]);
    terminal.wait_for("drawn");
    terminal.wait_until_raw();
    processes::kill(&[pod.pid()]);
    assert_eq!(terminal.end().code(), Some(125));
    terminal.wait_for(given_back);
}

#[test]
fn the_guests_processes_are_shown_until_a_key_ends_it() {
    let pod = LocalPod::ready();
    let before = untouched();
    for keys in ["q", "\x03"] {
        let mut terminal = on_terminal(&pod, &["top", "--interval", "0.1"]);
        terminal.wait_for("q quits");
        terminal.wait_until("a second look", |shown| shown.matches("q quits").count() > 2);
        terminal.type_keys(keys);
        assert_eq!(terminal.end().code(), Some(0), "{}", terminal.shown());
        assert_eq!(terminal.attributes(), before);
        terminal.wait_until("the screen's return", |shown| shown.ends_with("\x1b[?25h\x1b[?1049l"));
    }
}

#[test]
fn the_terminal_is_restored_after_signals() {
    let pod = LocalPod::ready();
    let before = untouched();
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let mut terminal = on_terminal(&pod, &["exec", "-t", "echo ready; exec sleep 600"]);
        terminal.wait_for("ready");
        terminal.wait_until_raw();
        terminal.signal(signal);
        assert_eq!(terminal.end().code(), Some(code), "{}", terminal.shown());
        assert_eq!(terminal.attributes(), before);
        pod.wait_until_idle();
    }
}

#[test]
fn it_goes_on_after_it_was_stopped_from_outside() {
    let pod = LocalPod::ready();
    let mut terminal = on_terminal(&pod, &["exec", "-it", "--", "cat"]);
    terminal.wait_until_raw();
    terminal.signal(Signal::STOP);
    wait_for("the stop", Duration::from_secs(10), || {
        std::fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).unwrap().contains(") T ")
    });
    // what a shell does when it gets its terminal back
    terminal.make_cooked();
    assert!(!terminal.is_raw());
    terminal.signal(Signal::CONT);
    terminal.wait_until_raw();
    terminal.type_keys("on\r");
    terminal.wait_for("on\r\non\r\n");
    terminal.type_keys("\x04");
    assert_eq!(terminal.end().code(), Some(0));
}

#[test]
fn detach_keys_leave_a_job_and_attach_comes_back() {
    let pod = LocalPod::ready();
    let before = untouched();
    let script = "echo ready; while read line; do echo \"<$line>\"; [ \"$line\" = stop ] && exit 5; done";
    let mut terminal = on_terminal(&pod, &["exec", "-it", script]);
    terminal.wait_for("ready");
    terminal.wait_until_raw();
    terminal.type_keys("one\r");
    terminal.wait_for("<one>");
    terminal.type_keys("\x10");
    terminal.type_keys("\x11");
    assert_eq!(terminal.end().code(), Some(0), "{}", terminal.shown());
    assert_eq!(terminal.attributes(), before);
    let known = pod.running();
    let id = known[0]["process_id"].as_str().unwrap();
    assert_eq!(known[0]["mode"], "detached");
    terminal.wait_for(&format!("podlink pod attach --pod windows {id}"));

    let mut again = on_terminal(&pod, &["attach", &id[..10]]);
    again.wait_for("<one>");
    again.wait_until_raw();
    again.type_keys("two\r");
    again.wait_for("<two>");
    again.type_keys("\x10\x11");
    assert_eq!(again.end().code(), Some(0), "{}", again.shown());

    let offset = pod.running()[0]["output_bytes"].as_u64().unwrap().to_string();
    let mut last = on_terminal(&pod, &["attach", "--offset", &offset, "--detach-keys", "none", id]);
    last.wait_until_raw();
    last.type_keys("stop\r");
    assert_eq!(last.end().code(), Some(5), "{}", last.shown());
    assert!(last.shown().contains("<stop>") && !last.shown().contains("<one>"), "{}", last.shown());
    assert_eq!(last.attributes(), before);
}

#[test]
fn a_terminal_comes_back_by_itself_when_its_connection_is_cut() {
    let pod = LocalPod::ready();
    let link = pod.over_link();
    let before = untouched();
    let script = "echo ready; while read line; do echo \"<$line>\"; [ \"$line\" = stop ] && exit 5; done";
    // a call with its caller, and a job
    for job in [false, true] {
        let mut terminal = if job {
            let run = pod.pod(&["exec", "-dt", script]).run().exits(0);
            on_terminal(&pod, &["attach", run.stdout.trim()])
        } else {
            on_terminal(&pod, &["exec", "-it", script])
        };
        terminal.wait_for("ready");
        terminal.wait_until_raw();
        for word in ["one", "two"] {
            link.cut();
            assert!(terminal.is_raw());
            link.mend();
            // a key that meets the break may be lost, and none comes twice
            wait_for("the way back", Duration::from_secs(10), || {
                terminal.type_keys(&format!("{word}\r"));
                std::thread::sleep(Duration::from_millis(50));
                terminal.shown().contains(&format!("<{word}>"))
            });
        }
        terminal.type_keys("\rstop\r");
        assert_eq!(terminal.end().code(), Some(5), "{}", terminal.shown());
        assert_eq!(terminal.attributes(), before);
        assert_eq!(terminal.shown().matches("ready").count(), 1, "{}", terminal.shown());
    }
}

#[test]
fn other_detach_keys_and_a_beginning_that_does_not_go_on() {
    let pod = LocalPod::ready();
    let mut terminal = on_terminal(&pod, &["exec", "-it", "--detach-keys", "~,.", "--", "cat"]);
    terminal.wait_until_raw();
    terminal.type_keys("a~b\r");
    terminal.wait_for("a~b\r\na~b\r\n");
    terminal.type_keys("~.");
    assert_eq!(terminal.end().code(), Some(0));
    let id = pod.running()[0]["process_id"].as_str().unwrap().to_owned();
    pod.pod(&["kill", &id]).run().exits(0);
}

/// `-dt`: a job with a terminal that nobody has seen yet.
#[test]
fn a_job_with_a_terminal_is_attached_to_later() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["exec", "-dt", "test -t 0 && test -t 1 && echo yes; read x; exit 8"]).run().exits(0);
    let id = run.stdout.trim();
    let mut terminal = on_terminal(&pod, &["attach", id]);
    terminal.wait_for("yes");
    terminal.wait_until_raw();
    terminal.type_keys("\r");
    assert_eq!(terminal.end().code(), Some(8));
}

/// As `ssh -tt` does: the program has a terminal although we have none.
#[test]
fn a_terminal_there_needs_none_here() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["exec", "-t", "test -t 0 && test -t 1 && stty size; echo err >&2; exit 3"]).run().exits(3);
    assert_eq!((&*run.stdout, &*run.stderr), ("24 80\r\nerr\r\n", ""));
    // what is piped in is typed there, and its end is the end of the input
    let run = pod.pod(&["exec", "-it", "stty -echo; cat; echo end"]).stdin(b"typed\n").run().exits(0);
    assert!(run.stdout.contains("typed\r\n") && run.stdout.ends_with("end\r\n"), "{:?}", run.stdout);
}

#[test]
fn a_shell_is_a_login_shell_on_a_terminal() {
    let pod = LocalPod::ready();
    let mut terminal = on_terminal(&pod, &["shell"]);
    terminal.wait_until_raw();
    terminal.type_keys("test -t 0 && echo is-$((40 + 2)); exit 9\r");
    assert_eq!(terminal.end().code(), Some(9), "{}", terminal.shown());
    assert!(terminal.shown().contains("is-42"), "{}", terminal.shown());
    let mut terminal = on_terminal(&pod, &["shell", "--shell", "sh"]);
    terminal.wait_until_raw();
    terminal.type_keys("echo $0-$((40 + 2)); exit 0\r");
    terminal.wait_for("sh-42");
    assert_eq!(terminal.end().code(), Some(0));
    let run = pod.pod(&["shell"]).stdin(b"echo piped-$((40 + 2)); exit 4\n").run().exits(4);
    assert_eq!(run.stdout, "piped-42\n", "{}", run.stderr);
}

#[test]
fn ctrl_c_leaves_a_job_without_a_terminal_alone() {
    let pod = LocalPod::ready();
    let run = pod.pod(&["exec", "-d", "echo begun; exec sleep 600"]).run().exits(0);
    let id = run.stdout.trim();
    let mut terminal = on_terminal(&pod, &["attach", "--no-stdin", id]);
    terminal.wait_for("begun");
    terminal.type_keys("\x03");
    assert_eq!(terminal.end().code(), Some(130));
    assert_eq!(pod.running().len(), 1);
    pod.pod(&["kill", id]).run().exits(0);
}
