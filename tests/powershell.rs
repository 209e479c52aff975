//! `shell: pwsh` with a real PowerShell 7: exit codes, encodings, and scripts that have to be first in their file.
//!
//! The rules are the same for Windows PowerShell, which runs on Windows alone.

use std::path::PathBuf;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::Agent;

/// An agent that finds a real `pwsh`; `None`, said aloud, where there is none.
fn agent() -> Option<Agent> {
    let named = std::env::var_os("PODLINK_TEST_PWSH").map(PathBuf::from);
    let path = std::env::var("PATH").unwrap_or_default();
    let found = named.or_else(|| std::env::split_paths(&path).map(|dir| dir.join("pwsh")).find(|file| file.is_file()));
    let Some(found) = found else {
        eprintln!("skipped: no pwsh (set PODLINK_TEST_PWSH to one, or put it on PATH)");
        return None;
    };
    let folder = found.parent().unwrap().to_str().unwrap();
    Some(Agent::with_env(&[("PATH", &format!("{folder}:{path}"))]))
}

fn run(agent: &Agent, script: &str) -> Value {
    let body = json!({ "script": BASE64_STANDARD.encode(script), "shell": "pwsh", "timeout_sec": 90 });
    let answer = agent.post("/exec", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

#[test]
fn exit_codes_follow_one_rule() {
    let Some(agent) = agent() else { return };
    for (script, rc) in [
        ("exit 66", 66),
        ("function f { exit 5 }; f; 'not reached'", 5),
        ("[Environment]::Exit(9)", 9),
        ("exit 100", 100),
        ("throw 'x'", 1),
        ("$ErrorActionPreference='Stop'; Get-Item /nope", 1),
        ("Write-Error boom -ErrorAction Stop", 1),
        ("if (", 1),
        ("sh -c 'exit 7'", 7),
        // the last native code stands at the end, wherever it was set; `exit 0` is the way out
        ("sh -c 'exit 5'; 'after'", 5),
        ("sh -c 'exit 5'; exit 0", 0),
        ("Write-Error boom", 0),
        ("1/0; 'after'", 0),
        ("'fine'", 0),
        ("", 0),
    ] {
        let result = run(&agent, script);
        assert_eq!(result["rc"], json!(rc), "{script}: {result}");
        assert_eq!(
            result["stdout"].as_str().unwrap().contains("after"),
            script.contains("after"),
            "{script}: {result}"
        );
    }
}

#[test]
fn a_script_stays_first_in_its_own_file() {
    let Some(agent) = agent() else { return };
    for script in [
        "# a comment\n[CmdletBinding()] param([int]$x=3)\n\"x=$x\"; exit 7",
        "using namespace System.Text\n'x=' + [StringBuilder]::new('3').ToString(); exit 7",
        "#requires -Version 5\nparam($x=3)\n\"x=$x\"; exit 7",
        "\u{feff}param($x=3)\n\"x=$x\"; exit 7",
    ] {
        let result = run(&agent, script);
        assert_eq!((&result["rc"], result["stdout"].as_str().unwrap().trim()), (&json!(7), "x=3"), "{result}");
    }
}

#[test]
fn text_is_exact_and_plain() {
    let Some(agent) = agent() else { return };
    let result = run(
        &agent,
        "Write-Output \"a — b\"; '® — é 한 ✓ 🙂'; Write-Warning w; Write-Error boom; Write-Progress p; $PSStyle.Foreground.Red.Length -gt 0 | Out-Null",
    );
    let (stdout, stderr) = (result["stdout"].as_str().unwrap(), result["stderr"].as_str().unwrap());
    assert_eq!(stdout, "a — b\n® — é 한 ✓ 🙂\nWARNING: w\n");
    assert!(stderr.contains("boom"), "{stderr}");
    for noise in ["CLIXML", "_x000D_", "\u{1b}", "\u{fffd}"] {
        assert!(!stdout.contains(noise) && !stderr.contains(noise), "{noise:?}: {result}");
    }
    let result = run(&agent, "$ErrorActionPreference='Stop'; sh -c 'echo warn 1>&2'; 'after'");
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("after\n"), &json!("warn\n")));
}

#[test]
fn large_scripts_arrive_whole_and_prompts_fail_at_once() {
    let Some(agent) = agent() else { return };
    let script = format!("{}\n(Get-Item $PSCommandPath).Length", "# padding é\n".repeat(500_000 / 13));
    let result = run(&agent, &script);
    assert_eq!(result["stdout"].as_str().unwrap().trim(), (script.len() + 3).to_string(), "with its mark");
    let result = run(&agent, "Read-Host; 'went on'");
    assert_eq!(result["stdout"], json!("went on\n"));
    assert!(result["stderr"].as_str().unwrap().contains("Read-Host"), "{result}");
}
