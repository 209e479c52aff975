//! An event as one line for the eye.

use serde_json::Value;

use crate::{
    cmd::output::{plain, printable},
    host::PodEvent,
};

/// Fields that every line shows by itself, or that say nothing to a person.
const LEFT_OUT: [&str; 2] = ["ts", "request_id"];

/// The line: when, what, and the data; nothing in it can move the cursor.
pub(super) fn render(event: &PodEvent, colored: bool) -> String {
    let name = format!("{:16}", printable(&event.name));
    let (on, off) = match color(event) {
        Some(color) if colored => (format!("\u{1b}[{color}m"), "\u{1b}[0m"),
        _ => (String::new(), ""),
    };
    let line = format!("{:24}  {on}{name}{off}  {}", printable(&event.ts), said(&event.data));
    line.trim_end().to_owned()
}

/// The number of its colour, by what kind of news it is.
fn color(event: &PodEvent) -> Option<&'static str> {
    let failed = event.data["rc"].as_i64().is_some_and(|rc| rc != 0) || event.data.get("error").is_some();
    match event.name.as_str() {
        "auth.failed" | "apply.failed" | "pod.disconnected" => Some("31"),
        "log" if event.data["level"] == "error" => Some("31"),
        "exec.exited" if failed => Some("31"),
        "gap" | "lagged" | "log" | "agent.stopping" => Some("33"),
        "agent.started" | "agent.ready" | "pod.connected" | "apply.done" => Some("32"),
        name if name.starts_with("pod.") => Some("34"),
        name if name.starts_with("exec.") => Some("36"),
        _ => None,
    }
}

fn said(data: &Value) -> String {
    let Value::Object(fields) = data else { return plain(&data.to_string()) };
    if let (Some(level), Some(text)) = (fields.get("level"), fields.get("text")) {
        return plain(&format!("{}: {}", text_of(level), text_of(text)));
    }
    let shown = fields.iter().filter(|(name, value)| {
        !LEFT_OUT.contains(&name.as_str()) && !value.is_null() && **value != Value::Bool(false)
    });
    let shown: Vec<_> = shown.map(|(name, value)| format!("{name} {}", text_of(value))).collect();
    plain(&shown.join("  "))
}

/// A text as it is, where a person can tell its ends; anything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host::EventSource;

    fn event(name: &str, data: Value) -> PodEvent {
        let ts = "2026-11-29T14:00:00.123Z".to_owned();
        PodEvent { ts, source: EventSource::Agent, id: None, name: name.to_owned(), data }
    }

    #[test]
    fn lines() {
        let data =
            json!({"ts": "x", "process_id": "p-1", "request_id": "r", "rc": 7, "signal": null, "timed_out": false});
        let exited = event("exec.exited", data);
        assert_eq!(render(&exited, false), "2026-11-29T14:00:00.123Z  exec.exited       process_id p-1  rc 7");
        assert!(render(&exited, true).contains("\u{1b}[31mexec.exited     \u{1b}[0m"));
        let log = event("log", json!({"level": "warn", "target": "t", "text": "cannot"}));
        assert_eq!(render(&log, false), "2026-11-29T14:00:00.123Z  log               warn: cannot");
        assert_eq!(render(&event("agent.ready", json!({"ts": "x"})), false), "2026-11-29T14:00:00.123Z  agent.ready");
    }

    #[test]
    fn nothing_that_a_guest_says_moves_the_cursor() {
        let text = "\u{1b}[2J\r\nevent: done\u{7}\0";
        for colored in [false, true] {
            let line = render(&event(text, json!({"text": text, "argv": [text]})), colored);
            assert!(!line.contains(char::is_control), "{line:?}");
        }
    }
}
