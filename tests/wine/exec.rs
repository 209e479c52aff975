//! Calls on Windows: what runs, with which arguments, variables and input, and what comes back.

use std::time::{Duration, Instant};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use crate::support::{WineAgent, WineSetup, wine::windows_path, wine_calls::cmd};

/// Far more than any of it takes, and far less than a wait for ever.
const SOON: Duration = Duration::from_secs(15);

/// The bytes of a stream of a result.
#[track_caller]
fn bytes(result: &Value, stream: &str) -> Vec<u8> {
    match result[format!("{stream}_b64")].as_str() {
        Some(exact) => BASE64_STANDARD.decode(exact).unwrap(),
        None => result[stream].as_str().unwrap().as_bytes().to_vec(),
    }
}

#[test]
fn exit_codes_are_those_of_windows() {
    let Some(agent) = WineAgent::start() else { return };
    for (code, rc) in [(0, 0_u32), (3, 3), (255, 255), (256, 256), (-1, u32::MAX), (-1_073_741_819, 0xC000_0005)] {
        let result = agent.exec(&cmd(&format!("exit {code}")));
        assert_eq!((&result["rc"], &result["stdout"], &result["signal"]), (&json!(rc), &json!(""), &Value::Null));
        let result = agent.exec(&json!({ "argv": ["cmd", "/c", format!("exit {code}")] }));
        assert_eq!(result["rc"], json!(rc), "{result}");
    }
    // a program that really does that, and what the host says of it
    let result = agent.exec(&agent.probe(&["crash"]));
    assert_eq!((&result["rc"], &result["timed_out"]), (&json!(0xC000_0005_u32), &json!(false)), "{result}");
    let run = agent.pod(&["exec", "--shell", "cmd", "exit -1073741819"]).run();
    assert!(run.code.is_some_and(|code| code != 0) && run.stderr.contains("0xC0000005"), "{run:?}");

    // what cannot be started is an error and no exit code
    for argv in [json!(["no-such-program"]), json!([r"C:\no\such.exe"]), json!([r"C:\windows"])] {
        let answer = agent.post("/exec", &json!({ "argv": argv }));
        assert_eq!((answer.status, answer.json["error"].as_str()), (422, Some("spawn_failed")), "{:?}", answer.json);
    }
    let answer = agent.post("/exec", &json!({ "argv": ["cmd", "/c", "exit 0"], "cwd": r"C:\no\such" }));
    assert_eq!(answer.status, 422, "{:?}", answer.json);

    // always the program's own, however short it lives
    for n in 0..40 {
        let result = agent.exec(&agent.probe(&["no such command"]));
        assert_eq!(result["rc"], json!(98), "{n}");
    }
}

#[test]
fn much_output_comes_as_it_was_written() {
    const MUCH: usize = 10_000_000;
    let Some(agent) = WineAgent::start() else { return };
    let period: Vec<u8> = (0..251).collect();
    let is_whole = |bytes: &[u8]| bytes.len() == MUCH && bytes.chunks(251).all(|chunk| *chunk == period[..chunk.len()]);
    for (which, out, err) in [("out", true, false), ("err", false, true), ("both", true, true)] {
        let mut body = agent.probe(&["fill", &MUCH.to_string(), which]);
        body["max_output_bytes"] = json!(16 * 1024 * 1024);
        let result = agent.exec(&body);
        assert_eq!((&result["rc"], &result["truncated"]), (&json!(0), &json!(false)), "{which}");
        for (stream, is_there) in [("stdout", out), ("stderr", err)] {
            let bytes = bytes(&result, stream);
            assert!(if is_there { is_whole(&bytes) } else { bytes.is_empty() }, "{which}: {}", bytes.len());
            assert_eq!(result[format!("{stream}_bytes")], json!(bytes.len()));
        }
    }
    // through the host's tool
    let probe = agent.wine().probe();
    let output = agent.pod(&["exec", "--", &probe, "fill", &MUCH.to_string(), "out"]).command().output().unwrap();
    assert!(output.status.success() && is_whole(&output.stdout), "{}", output.stdout.len());

    // beyond the cap it is counted, and the program is not held up
    let mut body = agent.probe(&["fill", "300000", "out"]);
    body["max_output_bytes"] = json!(1000);
    let result = agent.exec(&body);
    assert_eq!(
        (&result["rc"], &result["truncated"], &result["stdout_bytes"]),
        (&json!(0), &json!(true), &json!(300_000))
    );
    assert_eq!(bytes(&result, "stdout").len(), 1000);
}

/// What is hard to say in a command line, for some reader or other of such lines.
const AWKWARD: [&str; 28] = [
    "",
    " ",
    "a b",
    "\"",
    "\"\"",
    "a\"b",
    "\\",
    "\\\\",
    "a\\",
    "a b\\",
    "a b\\\\",
    "\\\"",
    "\\\\\"",
    "\" \\\"",
    "%PATH%",
    "%",
    "^",
    "^^",
    "&",
    "a&b",
    "|",
    "<>",
    "!x!",
    "é漢🙂",
    "\t",
    "new\nline",
    "*.exe",
    "--flag=c:\\x y\\",
];

#[test]
fn arguments_reach_programs_byte_for_byte() {
    let Some(agent) = WineAgent::start() else { return };
    let result = agent.exec(&agent.probe(&[&["args"], &AWKWARD[..]].concat()));
    let said: Value = serde_json::from_str(result["stdout"].as_str().unwrap()).unwrap_or_else(|_| panic!("{result}"));
    assert_eq!(said["c"], json!(AWKWARD), "as C's library reads them");
    assert_eq!(said["shell"], json!(AWKWARD), "as CommandLineToArgvW reads them");

    // from the host's command line on, each alone: none leans on its neighbour
    let probe = agent.wine().probe();
    for word in ["", "a\\", "\"", "%PATH%", "^", "&", "é漢🙂", "a b\\"] {
        let run = agent.pod(&["exec", "--", &probe, "args", word]).run().exits(0);
        assert_eq!(run.json()["c"], json!([word]), "{}", run.stdout);
    }
}

#[test]
fn batch_files_get_arguments_that_mean_themselves() {
    let Some(agent) = WineAgent::start() else { return };
    let (file, name) = agent.wine().file("a b & c.bat");
    let probe = agent.wine().probe();
    std::fs::write(&file, format!("@\"{probe}\" args %*\r\n@exit /b 7\r\n")).unwrap();
    // what its author can expect: a line break and a quote cannot be passed on by `%*`
    let words =
        ["", " ", "a b", "&", "a&b", "|", "^", "<>", "%PATH%", "100%", "!x!", "é漢", "a\\", "a b\\", "(x)", "x;y,z=1"];
    for word in words {
        let result = agent.exec(&json!({ "argv": [name, word] }));
        let said: Value =
            serde_json::from_str(result["stdout"].as_str().unwrap()).unwrap_or_else(|_| panic!("{result}"));
        assert_eq!((&said["c"], &result["rc"]), (&json!([word]), &json!(7)), "{result}");
    }
    let argv = [&[name.as_str()], &words[..]].concat();
    let result = agent.exec(&json!({ "argv": argv }));
    let said: Value = serde_json::from_str(result["stdout"].as_str().unwrap()).unwrap_or_else(|_| panic!("{result}"));
    assert_eq!(said["c"], json!(words));
    // nothing of an argument is ever run
    for word in ["\"&echo ran&\"", "\"&echo ran", "x\" & echo ran & \"y", "%COMSPEC%&echo ran"] {
        let result = agent.exec(&json!({ "argv": [name, word] }));
        assert!(!result["stdout"].as_str().unwrap().lines().any(|line| line.trim() == "ran"), "{word}: {result}");
    }
    let answer = agent.post("/exec", &json!({ "argv": [name, "two\nlines"] }));
    assert_eq!(answer.status, 422, "{:?}", answer.json);

    // found by its name alone, as in a terminal
    std::fs::write(agent.wine().drive_c().join("windows/hello.cmd"), "@echo hello %1\r\n").unwrap();
    assert_eq!(agent.exec(&json!({ "argv": ["hello", "you"] }))["stdout"], "hello you\r\n");
}

/// Wine's command processor reads batch files in the OEM code page, whatever `chcp` has said, so that what a script of it
/// says comes out wrong there and nowhere else: here the script shows its own bytes, and that the page is the right one.
#[test]
fn text_of_all_languages_goes_in_and_out() {
    let Some(agent) = WineAgent::start() else { return };
    let text = "— é 한글 ✓ 漢字 🙂";
    let result = agent.exec(&json!({ "argv": ["cmd", "/u", "/c", format!("echo {text}")] }));
    let units: Vec<u16> = text.encode_utf16().chain([13, 10]).collect();
    assert_eq!(bytes(&result, "stdout"), units.iter().flat_map(|unit| unit.to_le_bytes()).collect::<Vec<_>>());
    let result = agent.exec(&cmd(&format!("@chcp\n@rem {text}\n@type \"%~f0\"")));
    let said = result["stdout"].as_str().unwrap();
    assert!(said.contains("65001") && said.contains(&format!("@rem {text}\r\n@type")), "{result}");
    // by a variable, an argument, and stdin
    let mut body = agent.probe(&["env", "GREETING"]);
    body["env"] = json!({ "GREETING": text });
    assert_eq!(agent.exec(&body)["stdout"], json!(format!("\"{text}\"")));
    let mut body = agent.probe(&["cat"]);
    body["stdin"] = json!(BASE64_STANDARD.encode(text));
    assert_eq!(agent.exec(&body)["stdout"], json!(text));
    // a folder and a program of such a name
    let folder = agent.wine().folder().join("Ordner ü 漢");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(agent.wine().folder().join("probe.exe"), folder.join("프로그램.exe")).unwrap();
    let program = windows_path(&folder.join("프로그램.exe"));
    let result = agent.exec(&json!({ "argv": [program, "args", text], "cwd": windows_path(&folder) }));
    assert_eq!(serde_json::from_str::<Value>(result["stdout"].as_str().unwrap()).unwrap()["c"], json!([text]));

    // bytes that are no UTF-8 are there as they are, and as the system's code page reads them
    let result = agent.exec(&agent.probe(&["bytes", "8281FFE90A"]));
    assert_eq!(bytes(&result, "stdout"), b"\x82\x81\xff\xe9\n", "{result}");
    assert!(!result["stdout"].as_str().unwrap().contains('\u{fffd}'), "{result}");

    // the script is a file: a mark before it does no harm, nor line ends of the other kind, nor its length
    let result = agent.exec(&cmd("\u{feff}echo one\necho two\n"));
    assert_eq!(result["stdout"].as_str().unwrap().lines().collect::<Vec<_>>(), ["one", "two"], "{result}");
    for size in [3000, 8191, 8192, 33_000, 500_000] {
        let line = "rem 89012345678901234567890123456789012345678901234567890\r\n";
        let source = line.repeat(size / line.len()) + "for %%f in (\"%~f0\") do @echo %%~zf";
        let result = agent.exec(&cmd(&source));
        assert_eq!(result["stdout"].as_str().unwrap().trim_end(), source.len().to_string(), "{}", result["stderr"]);
    }
}

#[test]
fn stdin_is_empty_unless_given() {
    let Some(agent) = WineAgent::start() else { return };
    for source in ["set /p x=", "pause", "findstr x", "more"] {
        let begun = Instant::now();
        let result = agent.exec(&cmd(source));
        assert!(result["timed_out"] == json!(false) && begun.elapsed() < SOON, "{source}: {result}");
    }
    let result = agent.exec(&agent.probe(&["cat", "first"]));
    assert_eq!((&result["rc"], &result["stdout"]), (&json!(0), &json!("first\n")));
    // given: those bytes, and then the end
    let large: Vec<u8> = (0..300_000_u32).map(|n| u8::try_from(n % 253).unwrap()).collect();
    let mut body = agent.probe(&["cat", "first"]);
    body["stdin"] = json!(BASE64_STANDARD.encode(&large));
    assert!(bytes(&agent.exec(&body), "stdout") == [b"first\n", &large[..]].concat());
    let mut body = cmd("set /p x=\r\necho [%x%]");
    body["stdin"] = json!(BASE64_STANDARD.encode("a line\r\n"));
    assert_eq!(agent.exec(&body)["stdout"].as_str().unwrap().trim_end(), "[a line]");
    // from the host
    let run = agent.pod(&["exec", "-i", "--", &agent.wine().probe(), "cat"]).stdin(b"piped\n").run().exits(0);
    assert_eq!(run.stdout, "piped\n");
}

#[test]
fn variables_are_the_accounts_own_and_each_calls_alone() {
    let Some(agent) = WineAgent::with(WineSetup::new().env("AGENTS_OWN", "here"), &[]) else { return };
    let value = |name: &str, env: Value, clear: bool| {
        let mut body = agent.probe(&["env", name]);
        body["env"] = env;
        body["env_clear"] = json!(clear);
        serde_json::from_str::<Value>(agent.exec(&body)["stdout"].as_str().unwrap()).unwrap()
    };
    for name in ["PATH", "SystemRoot", "TEMP", "USERPROFILE", "APPDATA", "ProgramFiles", "COMSPEC", "AGENTS_OWN"] {
        assert!(value(name, json!({}), false).is_string(), "{name}");
    }
    // names have no case, and there is never a second one of another
    assert_eq!(value("mine", json!({ "MiNe": "1" }), false), "1");
    assert_eq!(value("PATH", json!({ "pAtH": r"C:\only" }), false), r"C:\only");
    let mut all = cmd("set");
    all["env"] = json!({ "pAtH": r"C:\only" });
    let result = agent.exec(&all);
    let paths = result["stdout"].as_str().unwrap().lines().filter(|line| line.to_lowercase().starts_with("path="));
    assert_eq!(paths.count(), 1, "{result}");
    // of one call, not of the next
    assert_eq!(value("MINE", json!({}), false), Value::Null);
    // nearly nothing but the call's own, where it wants that
    assert_eq!(value("AGENTS_OWN", json!({}), true), Value::Null);
    assert_eq!(value("A", json!({ "A": "b" }), true), "b");
    assert!(value("SYSTEMROOT", json!({}), true).is_string());
    // the token is in no child's variables
    let result = agent.exec(&cmd("set"));
    assert!(!result["stdout"].as_str().unwrap().contains(agent.token().expose().as_str()));

    // what an installer has written to the registry since the agent's start is seen
    agent.exec(&cmd("reg add HKCU\\Environment /v INSTALLED_SINCE /t REG_SZ /d yes /f"));
    assert_eq!(value("INSTALLED_SINCE", json!({}), false), "yes");
    let key = r"HKLM\System\CurrentControlSet\Control\Session Manager\Environment";
    agent.exec(&cmd(&format!(
        "reg add \"{key}\" /v PATH /t REG_EXPAND_SZ /d \"C:\\windows\\system32;C:\\windows;C:\\tool\" /f"
    )));
    assert!(value("PATH", json!({}), false).as_str().unwrap().to_lowercase().contains(r"c:\tool"));

    // the folder
    let result = agent.exec(&json!({ "argv": ["cmd", "/c", "cd"], "cwd": r"C:\windows" }));
    assert_eq!(result["stdout"].as_str().unwrap().trim_end().to_lowercase(), r"c:\windows");
}
