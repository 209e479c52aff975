//! One line of the log for each event: text for people, or a JSON object.
//!
//! Implementation note: the subscriber's own formats cannot cut a value, name the request's id at one place, or keep a
//! text from looking like two lines.

use std::fmt::{self, Write as _};

use tracing::{
    Level,
    field::{Field, Visit},
};

use super::cut::{Bounded, cut};

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone)]
enum Value {
    /// Text for people, as it is: the message, and what is logged with `%` or `?`.
    Plain(String),
    /// A string of the program's, which text shows in quotation marks.
    Text(String),
    /// A number or truth value.
    Bare(String),
}

/// What an event or a span was given.
#[derive(Debug, Clone, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        let name = field.name().strip_prefix("r#").unwrap_or(field.name());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let text = cut(value);
        self.set(field, if field.name() == "message" { Value::Plain(text) } else { Value::Text(text) });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, Value::Bare(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Value::Bare(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, Value::Bare(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        self.set(field, if value.is_finite() { Value::Bare(text) } else { Value::Plain(text) });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut bounded = Bounded::default();
        // a value whose own formatting fails is shown as far as it came
        write!(bounded, "{value:?}").ok();
        self.set(field, Value::Plain(bounded.into_text()));
    }
}

/// The line that says how many are missing before it.
pub(super) fn lost(format: LogFormat, count: u64) -> Vec<u8> {
    let fields = Fields(vec![
        (
            "message",
            Value::Plain("lines of this log were lost here: they came too fast, or could not be written".into()),
        ),
        ("lost_log_lines", Value::Bare(count.to_string())),
    ]);
    render(format, false, Level::WARN, "podlink::log", &[], &fields)
}

pub(super) fn render(
    format: LogFormat,
    ansi: bool,
    level: Level,
    target: &str,
    spans: &[(&'static str, Fields)],
    fields: &Fields,
) -> Vec<u8> {
    let now = jiff::Timestamp::now();
    let mut line = String::new();
    // writing into a string does not fail
    match format {
        LogFormat::Json => {
            write!(line, r#"{{"timestamp":"{now:.6}","level":"{level}","target":{}"#, quoted(target)).ok();
            // of equal names the innermost counts; what names the line itself comes first and once
            let mut named = vec!["timestamp", "level", "target"];
            let inner = std::iter::once(fields).chain(spans.iter().rev().map(|(_, fields)| fields));
            for (name, value) in inner.flat_map(|fields| &fields.0) {
                if named.contains(name) {
                    continue;
                }
                named.push(name);
                match value {
                    Value::Plain(text) | Value::Text(text) => write!(line, ",{}:{}", quoted(name), quoted(text)).ok(),
                    Value::Bare(text) => write!(line, ",{}:{text}", quoted(name)).ok(),
                };
            }
            line.push('}');
        }
        LogFormat::Text => {
            let (on, off) = if ansi { (colour(level), "\x1b[0m") } else { ("", "") };
            write!(line, "{now:.6} {on}{level:>5}{off} ").ok();
            for (name, fields) in spans {
                line.push_str(name);
                line.push('{');
                for (index, (name, value)) in fields.0.iter().enumerate() {
                    line.push_str(if index > 0 { " " } else { "" });
                    pair(&mut line, name, value);
                }
                line.push_str("}: ");
            }
            write!(line, "{target}:").ok();
            let known = |name: &str| name == "id" && spans.iter().any(|(_, fields)| fields.has(name));
            if let Some((_, Value::Plain(message))) = fields.0.iter().find(|(name, _)| *name == "message") {
                line.push(' ');
                visible(&mut line, message);
            }
            for (name, value) in fields.0.iter().filter(|(name, _)| *name != "message" && !known(name)) {
                line.push(' ');
                pair(&mut line, name, value);
            }
        }
    }
    line.push('\n');
    line.into_bytes()
}

fn pair(line: &mut String, name: &str, value: &Value) {
    line.push_str(name);
    line.push('=');
    match value {
        Value::Plain(text) => visible(line, text),
        Value::Text(text) => drop(write!(line, "{text:?}")),
        Value::Bare(text) => line.push_str(text),
    }
}

/// Nothing that is logged begins a line of its own, or moves a terminal's cursor.
fn visible(line: &mut String, text: &str) {
    for c in text.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
}

/// As JSON has it. A string is always JSON.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}
