//! Scripts of the command processor, what Windows itself ends programs with, and text that is no UTF-8.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::powershell;
use crate::support::{WineAgent, wine::windows_path};

fn run(agent: &WineAgent, script: &str) -> Value {
    let body = json!({ "script": BASE64_STANDARD.encode(script), "shell": "cmd", "timeout_sec": 60 });
    let answer = agent.post("/exec", &body);
    assert_eq!(answer.status, 200, "{:?}", answer.json);
    answer.json
}

#[test]
fn batch_files_run_as_such() {
    let Some(agent) = WineAgent::start() else { return };
    for (script, rc, stdout) in [
        ("echo ok", 0, "ok\r\n"),
        ("exit 3", 3, ""),
        ("exit /b 255", 255, ""),
        ("exit -1073741819", 3_221_225_477_u32, ""),
        ("exit -1", 4_294_967_295, ""),
        // lines that end as on Linux, and a jump, which needs them to end as on Windows
        ("goto end\necho not reached\n:end\necho reached\nexit /b 4", 4, "reached\r\n"),
        ("for %%i in (1 2) do echo [%%i]\nset X=a b\necho %X%", 0, "[1]\r\n[2]\r\na b\r\n"),
        ("echo \"a & b ^ c\" ^& d", 0, "\"a & b ^ c\" & d\r\n"),
    ] {
        let result = run(&agent, script);
        assert_eq!((&result["rc"], &result["stdout"]), (&json!(rc), &json!(stdout)), "{script}: {result}");
        assert_eq!(result["stderr"], json!(""), "{script}: {result}");
    }
}

/// What a call's folder or its variables hold takes the place of none of the launcher's own commands.
#[test]
fn the_launcher_runs_what_is_the_systems() {
    let Some(agent) = WineAgent::start() else { return };
    std::fs::write(agent.wine().folder().join("chcp.bat"), "@echo HIJACKED\r\n").unwrap();
    let script = BASE64_STANDARD.encode("echo real");
    for more in [
        json!({ "cwd": windows_path(agent.wine().folder()) }),
        json!({ "env": { "PATH": "" } }),
        json!({ "env_clear": true }),
    ] {
        let mut body = json!({ "script": script, "shell": "cmd", "timeout_sec": 60 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = agent.post("/exec", &body).json;
        let seen = (&answer["rc"], &answer["stdout"], &answer["stderr"]);
        assert_eq!(seen, (&json!(0), &json!("real\r\n"), &json!("")), "{more}");
    }
}

/// From a variable, since Wine's command processor reads batch files in the OEM code page whatever the console's is,
/// which that of Windows does not.
#[test]
fn batch_files_write_utf_8() {
    let Some(agent) = WineAgent::start() else { return };
    let script = BASE64_STANDARD.encode("echo %TEXT%");
    let answer = agent.post("/exec", &json!({ "script": script, "shell": "cmd", "env": { "TEXT": "ä 漢 ✓ 🙂" } }));
    assert_eq!(answer.json["stdout"], json!("ä 漢 ✓ 🙂\r\n"), "{answer:?}");
}

#[test]
fn codes_of_windows_are_told_whole() {
    let Some(agent) = WineAgent::start() else { return };
    let run = agent.pod(&["exec", "--shell", "cmd", "exit -1073741819"]).run();
    assert_eq!(run.code, Some(5), "{run:?}");
    assert!(run.stderr.contains("0xC0000005 (3221225477)"), "{run:?}");
    let run = agent.pod(&["exec", "--json", "--shell", "cmd", "exit -1073741819"]).run();
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &result["rc"]), (Some(5), &json!(3_221_225_477_u32)), "{run:?}");
}

#[test]
fn what_is_not_there_is_said() {
    let Some(agent) = WineAgent::start() else { return };
    for shell in ["sh", "bash"] {
        let answer = agent.post("/exec", &json!({ "script": "ZXhpdA==", "shell": shell }));
        assert_eq!((answer.status, &answer.json["error"]), (422, &json!("spawn_failed")), "{answer:?}");
        assert!(answer.json["detail"].as_str().unwrap().contains("no part of Windows"), "{answer:?}");
    }
}

#[test]
fn lines_that_are_no_utf_8_are_read_by_the_oem_page() {
    let Some(agent) = powershell::agent() else { return };
    // «caf\x82» is «café» in code page 437, which is Wine's here; the lines around it are UTF-8
    let script =
        "'✓'; $out = [Console]::OpenStandardOutput(); $out.Write([byte[]](0x63, 0x61, 0x66, 0x82, 0x0a), 0, 5); '漢'";
    let answer = agent.post("/exec", &json!({ "script": BASE64_STANDARD.encode(script), "timeout_sec": 60 }));
    assert_eq!(answer.json["stdout"], json!("✓\r\ncafé\n漢\r\n"), "{answer:?}");
    let bytes = BASE64_STANDARD.decode(answer.json["stdout_b64"].as_str().unwrap()).unwrap();
    assert_eq!(bytes, [b"\xe2\x9c\x93\r\n", &b"caf\x82\n"[..], b"\xe6\xbc\xa2\r\n"].concat());
}
