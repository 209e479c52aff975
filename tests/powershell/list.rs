//! What holds for every PowerShell behind every agent.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::shell::{Shell, each};
use crate::support::wait_for;

/// One line for each list, so that a runner runs them side by side and names the one that fails.
macro_rules! every_list {
    ($each:ident) => {
        $each!(exit_codes);
        $each!(errors_that_end_a_script);
        $each!(codes_of_native_programs);
        $each!(odd_ends);
        $each!(errors_in_the_words_of_file);
        $each!(streams_as_file_has_them);
        $each!(the_world_as_under_file);
        $each!(a_script_stays_first_in_its_file);
        $each!(requirements_that_are_not_met);
        $each!(text_is_exact_and_plain);
        $each!(text_arrives_by_every_way);
        $each!(native_programs_keep_their_streams);
        $each!(a_large_script_arrives_whole);
        $each!(prompts_fail_at_once);
        $each!(stdin_is_the_scripts);
        $each!(children_die_with_a_time_out);
        $each!(children_live_on_after_a_normal_end);
        $each!(twenty_side_by_side);
        $each!(a_cancelled_call_leaves_nothing);
    };
}
pub(crate) use every_list;

/// Each script's exit code; none of them gets as far as `not reached`, and all that say `reached` do.
#[track_caller]
fn ends_with(shell: &Shell, cases: &[(&str, i64)]) {
    each(cases, |(script, rc)| {
        let ran = shell.run(script);
        assert_eq!(ran.rc, *rc, "{script}: {ran:?}");
        let should = script.contains("'reached'");
        assert_eq!(ran.stdout.lines().any(|line| line == "reached"), should, "{script}: {ran:?}");
        assert!(!ran.stdout.contains("not reached"), "{script}: {ran:?}");
    });
}

pub(crate) fn exit_codes(shell: &Shell) {
    let code = |code| shell.code(code);
    std::fs::write(shell.folder.join("exit3.ps1"), "exit 3").unwrap();
    std::fs::write(shell.folder.join("module.psm1"), "function exit8 { exit 8 }").unwrap();
    let [script, module] = ["exit3.ps1", "module.psm1"].map(|name| shell.guest_path(name));
    let own: [(&str, i64); 16] = [
        ("exit 66", 66),
        ("exit 100", 100),
        ("exit 300", code(300)),
        ("exit 65536", code(65536)),
        ("exit -1", code(u32::MAX)),
        ("exit -1073741819", code(0xC000_0005)),
        ("exit 0xC0000005", code(0xC000_0005)),
        ("exit", 0),
        ("exit $null", 0),
        ("exit '7'", 7),
        ("function f { exit 5 }; f; 'not reached'", 5),
        ("function f { & { . { exit 4 } } }; f; 'not reached'", 4),
        ("1..3 | ForEach-Object { exit (10 + $_) }; 'not reached'", 11),
        ("try { exit 5 } finally { 'reached' }", 5),
        ("trap { exit 7 }; throw 'x'; 'not reached'", 7),
        ("try { throw 'x' } catch { exit 9 }; 'not reached'", 9),
    ];
    ends_with(shell, &own);
    ends_with(
        shell,
        &[
            ("try { throw 'x' } finally { exit 8 }; 'not reached'", 8),
            ("[Environment]::Exit(9)", 9),
            ("$Host.SetShouldExit(6)", 6),
            (&format!("& '{script}'; 'reached'; exit 12"), 12),
            // another script's end is not this one's, but its code stands
            (&format!("& '{script}'; 'reached'"), 3),
            (&format!(". '{script}'; 'reached'"), 3),
            (&format!("& '{script}'; 'reached'; exit 0"), 0),
            (&format!("Import-Module '{module}'; exit8; 'not reached'"), 8),
        ],
    );
}

pub(crate) fn errors_that_end_a_script(shell: &Shell) {
    let native = shell.native(5);
    ends_with(
        shell,
        &[
            ("throw 'x'; 'not reached'", 1),
            ("function f { throw 'x' }; f; 'not reached'", 1),
            (&format!("{native}; throw 'x'"), 1),
            ("$ErrorActionPreference='Stop'; Get-Item nope; 'not reached'", 1),
            ("Get-Item nope -ErrorAction Stop; 'not reached'", 1),
            ("Write-Error boom -ErrorAction Stop; 'not reached'", 1),
            ("$ErrorActionPreference='Stop'; nosuchcommand; 'not reached'", 1),
            ("trap { 'reached'; break }; throw 'x'; 'not reached'", 1),
            ("try { throw 'x' } finally { 'reached' }; 'not reached'", 1),
            ("if (", 1),
            ("'a' 'b'", 1),
            // these do not end it
            ("trap { continue }; throw 'x'; 'reached'", 0),
            ("Write-Error boom; 'reached'", 0),
            ("1/0; 'reached'", 0),
            ("[int]'abc'; 'reached'", 0),
            ("nosuchcommand; 'reached'", 0),
            ("'reached'; nosuchcommand", 0),
        ],
    );
}

pub(crate) fn codes_of_native_programs(shell: &Shell) {
    let (five, zero) = (shell.native(5), shell.native(0));
    std::fs::write(shell.folder.join("native.ps1"), &five).unwrap();
    std::fs::write(shell.folder.join("native.psm1"), format!("function native5 {{ {five} }}")).unwrap();
    let [script, module] = ["native.ps1", "native.psm1"].map(|name| shell.guest_path(name));
    let mut cases = vec![
        (five.clone(), 5),
        (format!("{five}; 'reached'"), 5),
        (format!("function f {{ {five} }}; f; 'reached'"), 5),
        (format!("& {{ & {{ {five} }} }}; 'reached'"), 5),
        (format!("$x = {five}; 'reached'"), 5),
        (format!("& '{script}'; 'reached'"), 5),
        (format!("Import-Module '{module}'; native5; 'reached'"), 5),
        (format!("Set-StrictMode -Version Latest; {five}; 'reached'"), 5),
        // the last one counts, and what the script makes of it
        (format!("{five}; {zero}; 'reached'"), 0),
        (format!("{five}; exit 0"), 0),
        (format!("{five}; exit"), 0),
        (format!("{five}; $LASTEXITCODE = 0; 'reached'"), 0),
        (format!("{five}; exit $LASTEXITCODE"), 5),
    ];
    if shell.windows {
        for (said, rc) in [("-1073741819", 0xC000_0005), ("300", 300), ("-1", 0xFFFF_FFFF)] {
            cases.push((format!("cmd /c exit {said}"), rc));
            cases.push((format!("cmd /c exit {said}; exit $LASTEXITCODE"), rc));
        }
    }
    let cases: Vec<(&str, i64)> = cases.iter().map(|(script, rc)| (script.as_str(), *rc)).collect();
    ends_with(shell, &cases);
}

pub(crate) fn odd_ends(shell: &Shell) {
    let five = shell.native(5);
    ends_with(
        shell,
        &[
            ("", 0),
            ("# nothing", 0),
            ("'reached'", 0),
            ("'reached'\r\n# with CRLF\r\nexit 4\r\n", 4),
            ("exit 4 # without an end of its line", 4),
            ("\u{feff}'reached'; exit 4", 4),
            (&format!("{five}; break; 'not reached'"), 5),
            (&format!("{five}; return; 'not reached'"), 5),
            ("'reached'; return 7", 0),
            ("Set-StrictMode -Version Latest; 'reached'", 0),
            ("Remove-Variable ExecutionContext -Force; exit 3", 3),
        ],
    );
}

/// What both runs have to agree in, with the exit code where the script says it itself.
fn same_as_file(shell: &Shell, scripts: &[&str]) {
    each(scripts, |script| {
        let plain = shell.run_plainly(script);
        let mut ours = shell.run(script).with_the_agents_script_named("SCRIPT");
        if shell.windows {
            // which the plain run loses to the OEM page
            ours.stderr = ours.stderr.replace('…', ".");
        }
        assert_eq!(ours, plain, "{script}");
    });
}

pub(crate) fn errors_in_the_words_of_file(shell: &Shell) {
    same_as_file(
        shell,
        &[
            "'before'; throw 'x'",
            "function a { throw 'deep' }\nfunction b { a }\nb",
            "throw 'several\nlines'",
            "Get-Item nope; Write-Error boom; 1/0; nosuchcommand; 'after'",
            "$ErrorActionPreference='Stop'; Get-Item nope",
            "'fine'\nif (\n",
            "#requires -Version 99\n'x'",
            "#requires -Modules NoSuchModule\n'x'",
            "param([Parameter(Mandatory)]$x) \"x=$x\"",
            "throw [System.IO.IOException]::new('io')",
            "try { Get-Item nope -ErrorAction Stop } catch { throw }",
        ],
    );
}

pub(crate) fn streams_as_file_has_them(shell: &Shell) {
    same_as_file(
        shell,
        &[
            "Write-Warning w; Write-Host h; Write-Verbose v -Verbose; Write-Debug d -Debug; Write-Error e",
            "Write-Information i -InformationAction Continue; [pscustomobject]@{ a = 1; b = 'two' }; 1..3",
            "'one'; [Console]::Out.WriteLine('two'); [Console]::Error.WriteLine('three'); 'four'",
            &format!("'one'; {}; {}; 'two'", shell.native_echo("native"), shell.native_stderr("warn")),
        ],
    );
}

/// What a script can see of how it was called.
pub(crate) fn the_world_as_under_file(shell: &Shell) {
    std::fs::write(
        shell.folder.join("strict.psm1"),
        "function complain { [CmdletBinding()] param() Write-Error 'in a module'; 'went on' }",
    )
    .unwrap();
    let module = shell.guest_path("strict.psm1");
    same_as_file(
        shell,
        &[
            // preferences reach modules, which they do from the global scope alone
            &format!("$ErrorActionPreference='Stop'; Import-Module '{module}'; complain; 'after'"),
            "if ($MyInvocation.InvocationName -ne '.') { 'called, not loaded' }",
            "$PSScriptRoot -eq (Split-Path $PSCommandPath); $MyInvocation.MyCommand.Path -eq $PSCommandPath; \
             $MyInvocation.InvocationName -eq $PSCommandPath; $args.Count; $MyInvocation.MyCommand.CommandType",
            "$x = 1; function g { $script:x; $global:x }; g; (Get-Variable x -Scope Global).Value",
            "$Error.Count; $null -eq $LASTEXITCODE; Set-StrictMode -Version Latest; $LASTEXITCODE",
            "Get-Variable | Where-Object { $_.Name -notin 'OutputEncoding', 'ProgressPreference', 'PID' } | \
             ForEach-Object Name | Sort-Object",
            "Get-ChildItem function: | ForEach-Object Name | Sort-Object; Get-Alias | Measure-Object | ForEach-Object Count",
        ],
    );
}

pub(crate) fn a_script_stays_first_in_its_file(shell: &Shell) {
    each(
        &[
            "param([int]$x=3)\n\"x=$x\"; exit 7",
            "# a comment\n[CmdletBinding()] param([int]$x=3)\n\"x=$x\"; exit 7",
            "using namespace System.Text\n'x=' + [StringBuilder]::new('3').ToString(); exit 7",
            "#requires -Version 5\nparam($x=3)\n\"x=$x\"; exit 7",
            "\u{feff}param($x=3)\n\"x=$x\"; exit 7",
            "param($x=3)\r\n\"x=$x\"\r\nexit 7",
            "class A { [int]$x = 3 }\n\"x=$([A]::new().x)\"; exit 7",
            "begin { $x = 3 } process { \"x=$x\" } end { exit 7 }",
        ],
        |script| {
            let ran = shell.run(script);
            assert_eq!((ran.rc, ran.stdout.trim(), ran.stderr.as_str()), (7, "x=3", ""), "{script}");
        },
    );
}

pub(crate) fn requirements_that_are_not_met(shell: &Shell) {
    each(
        &[
            ("#requires -Version 99\n'not reached'", "99"),
            ("#requires -Modules NoSuchModule\n'not reached'", "NoSuchModule"),
            ("param([Parameter(Mandatory)]$Wanted)\n'not reached'", "Wanted"),
        ],
        |(script, named)| {
            let ran = shell.run(script);
            assert_eq!((ran.rc, ran.stdout.as_str()), (1, ""), "{ran:?}");
            assert!(ran.stderr.contains(named) && !ran.stderr.contains("launcher"), "{ran:?}");
        },
    );
}

pub(crate) fn text_is_exact_and_plain(shell: &Shell) {
    let ran = shell.run(
        "Write-Output \"a — b\"; '® — é 한 ✓ 🙂 漢'; Write-Warning 'ä'; Write-Host 'ö'; Write-Error 'büm 漢🙂'; \
         foreach ($i in 1..20) { Write-Progress p -PercentComplete ($i * 5) }; \"`e[31mred`e[0m\"",
    );
    // colours that a script writes itself go too
    assert_eq!(ran.stdout, "a — b\n® — é 한 ✓ 🙂 漢\nWARNING: ä\nö\nred\n");
    assert!(ran.stderr.contains("büm 漢🙂"), "{ran:?}");
    for noise in ["CLIXML", "_x000D_", "\u{1b}", "\u{fffd}", "\u{feff}"] {
        assert!(!ran.stdout.contains(noise) && !ran.stderr.contains(noise), "{noise:?}: {ran:?}");
    }
    let quiet =
        shell.run("Write-Progress x; Write-Verbose v; Import-Module Microsoft.PowerShell.Utility; $null = Get-Date");
    assert_eq!((quiet.rc, quiet.stdout.as_str(), quiet.stderr.as_str()), (0, "", ""));
}

pub(crate) fn text_arrives_by_every_way(shell: &Shell) {
    const TEXT: &str = "ä — 漢 한 🙂 é";
    // in the source, to a native program's arguments and back
    let ran = shell.run(&format!("'{TEXT}'; {}", shell.native_echo(TEXT)));
    assert_eq!(ran.stdout, format!("{TEXT}\n{TEXT}\n"), "{ran:?}");
    // in the environment
    let mut body = shell.body("$env:PODLINK_TEXT; exit 3");
    body["env"] = json!(BTreeMap::from([("PODLINK_TEXT", TEXT)]));
    assert_eq!(shell.call(&body)["stdout"].as_str().unwrap().trim_end(), TEXT);
    // on stdin
    let mut body = shell.body("[Console]::In.ReadToEnd()");
    body["stdin"] = BASE64_STANDARD.encode(format!("{TEXT}\n")).into();
    assert_eq!(shell.call(&body)["stdout"].as_str().unwrap().trim_end(), TEXT);
    // in the arguments of a program that is given as such
    std::fs::write(
        shell.folder.join("say.ps1"),
        "\u{feff}[Console]::OutputEncoding = [Text.UTF8Encoding]::new($false); $args | ForEach-Object { \"<$_>\" }",
    )
    .unwrap();
    let say = shell.guest_path("say.ps1");
    let argv = [shell.name, "-NoProfile", "-ExecutionPolicy", "Bypass", "-File", &say, TEXT, "a \"b\" c", "100%PATH%"];
    let answer = shell.call(&json!({ "argv": argv }));
    let said = answer["stdout"].as_str().unwrap().replace("\r\n", "\n");
    assert_eq!(said, format!("<{TEXT}>\n<a \"b\" c>\n<100%PATH%>\n"), "{answer}");
}

pub(crate) fn native_programs_keep_their_streams(shell: &Shell) {
    let warn = shell.native_stderr("warn");
    for preference in ["Stop", "Continue"] {
        let ran = shell.run(&format!("$ErrorActionPreference='{preference}'; {warn}; 'after'"));
        assert_eq!((ran.rc, ran.stdout.as_str(), ran.stderr.trim_end()), (0, "after\n", "warn"), "{preference}");
    }
}

pub(crate) fn a_large_script_arrives_whole(shell: &Shell) {
    for length in [3_000, 8_191, 32_768, 500_000] {
        let last = "(Get-FileHash -Algorithm SHA256 -LiteralPath $PSCommandPath).Hash";
        let script = format!("{}\n{last}", "# padding é\n".repeat(length / 13));
        let sum = Sha256::digest([b"\xef\xbb\xbf", script.as_bytes()].concat());
        let sum = sum.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02X}").unwrap();
            text
        });
        assert_eq!(shell.run(&script).stdout.trim_end(), sum, "of {} bytes", script.len());
    }
}

pub(crate) fn prompts_fail_at_once(shell: &Shell) {
    for prompt in [
        "Read-Host",
        "Read-Host 'name'",
        "$Host.UI.PromptForCredential('a', 'b', 'c', 'd')",
        "$Host.UI.PromptForChoice('a', 'b', @('x', 'y'), 0)",
    ] {
        let ran = shell.run(&format!("{prompt}; 'went on'"));
        assert!(ran.stdout.ends_with("went on\n"), "{prompt}: {ran:?}");
        assert!(ran.stderr.contains("NonInteractive"), "{prompt}: {ran:?}");
    }
    assert_eq!(shell.run("$null -eq [Console]::In.ReadLine()").stdout, "True\n");
}

pub(crate) fn stdin_is_the_scripts(shell: &Shell) {
    each(
        &[
            ("[Console]::In.ReadToEnd().Length", "6"),
            ("$input | ForEach-Object { \"<$_>\" }", "<a>\n<b>\n<c>"),
            ("@($Input).Count", "3"),
            ("param($x) \"[$([Console]::In.ReadLine())]\"", "[a]"),
        ],
        |(script, said)| {
            let mut body = shell.body(script);
            body["stdin"] = BASE64_STANDARD.encode("a\nb\nc\n").into();
            let answer = shell.call(&body);
            let stdout = answer["stdout"].as_str().unwrap().replace("\r\n", "\n");
            assert_eq!(stdout.trim_end(), *said, "{script}: {answer}");
        },
    );
    assert_eq!(shell.run("@($input).Count").stdout, "0\n");
}

pub(crate) fn children_die_with_a_time_out(shell: &Shell) {
    let seconds = shell.seconds();
    let (program, arguments) = shell.sleeper(&seconds);
    let started = format!("Start-Process {program} -ArgumentList '{arguments}'");
    let started = if shell.windows { format!("{started} -WindowStyle Hidden") } else { started };
    let mut body = shell.body(&format!("{started}; 'started'; {program} {arguments}"));
    // long enough for both to be there on a busy machine
    body["timeout_sec"] = 12.into();
    let answer = shell.call(&body);
    assert_eq!((&answer["timed_out"], &answer["rc"]), (&json!(true), &json!(124)), "{answer}");
    assert!(answer["stdout"].as_str().unwrap().starts_with("started"), "{answer}");
    assert!(answer["killed"].as_u64().unwrap() >= 3, "the shell and two children: {answer}");
    assert_eq!(answer["survivors"], json!([]), "{answer}");
    assert_eq!((shell.pids_of.0)(&seconds), [] as [u32; 0]);
}

pub(crate) fn children_live_on_after_a_normal_end(shell: &Shell) {
    let seconds = shell.seconds();
    let (program, arguments) = shell.sleeper(&seconds);
    let hidden = if shell.windows { " -WindowStyle Hidden" } else { "" };
    // it has the call's streams, and holds nothing up
    let ran = shell
        .run(&format!("$p = Start-Process {program} -ArgumentList '{arguments}' -PassThru{hidden}; $p.Id; exit 3"));
    assert_eq!((ran.rc, ran.stderr.as_str()), (3, ""), "{ran:?}");
    assert_eq!((shell.pids_of.0)(&seconds).len(), 1, "{ran:?}");
    let id = ran.stdout.trim();
    assert_eq!(shell.run(&format!("(Get-Process -Id {id}).ProcessName; Stop-Process -Id {id}")).stdout.trim(), program);
    wait_for("it to end", Duration::from_secs(10), || (shell.pids_of.0)(&seconds).is_empty());
}

pub(crate) fn twenty_side_by_side(shell: &Shell) {
    let pending: Vec<_> = (0..20)
        .map(|i| {
            let mut body = shell.body(&format!("\"out $env:NUMBER\"; [Console]::Error.Write('err {i}'); exit {i}"));
            body["env"] = json!({ "NUMBER": i.to_string() });
            shell.begin(&body)
        })
        .collect();
    for (i, pending) in pending.into_iter().enumerate() {
        let answer = pending.answer();
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(answer.json["rc"], json!(i), "{answer:?}");
        assert_eq!(answer.json["stdout"].as_str().unwrap().trim_end(), format!("out {i}"));
        assert_eq!(answer.json["stderr"], json!(format!("err {i}")));
    }
}

pub(crate) fn a_cancelled_call_leaves_nothing(shell: &Shell) {
    let seconds = shell.seconds();
    let (program, arguments) = shell.sleeper(&seconds);
    let mark = format!("mark-{seconds}.txt");
    let file = shell.guest_path(&mark);
    let pending = shell.begin(&shell.body(&format!("Set-Content '{file}' here; {program} {arguments}")));
    wait_for("the script to run", Duration::from_secs(50), || shell.folder.join(&mark).exists());
    wait_for("its child to run", Duration::from_secs(20), || !(shell.pids_of.0)(&seconds).is_empty());
    pending.hang_up(false);
    wait_for("all of it to end", Duration::from_secs(20), || (shell.pids_of.0)(&seconds).is_empty());
    assert_eq!(shell.run("'the next'").stdout, "the next\n");
}
