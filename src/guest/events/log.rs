//! The log's warnings and errors as events.

use std::{
    cell::Cell,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    Layer,
    filter::{Filtered, LevelFilter},
    layer::Context,
    registry::LookupSpan,
};

use super::{Bus, ring::now};
use crate::protocol::{EventName, LogEvent};

/// Most bytes of a line.
const MOST_TEXT: usize = 8 * 1024;

thread_local! {
    /// A line is being told: what is logged meanwhile is not.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Where the log meets the events: made with the log, connected to the agent once there is one.
#[derive(Debug, Clone, Default)]
pub struct LogTap(Arc<Mutex<Weak<Bus>>>);

impl LogTap {
    /// From now on the log's warnings are this agent's events.
    pub(in crate::guest) fn connect(&self, bus: &Arc<Bus>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(bus);
    }

    /// The part of the log that hands them over.
    pub(in crate::guest) fn layer<S>(&self) -> Filtered<impl Layer<S> + use<S>, LevelFilter, S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        TapLayer(self.clone()).with_filter(LevelFilter::WARN)
    }
}

struct TapLayer(LogTap);

impl<S: Subscriber> Layer<S> for TapLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if Bus::is_busy() || TELLING.replace(true) {
            return;
        }
        let bus = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(bus) = bus {
            bus.emit(EventName::Log, &of(event));
        }
        TELLING.set(false);
    }
}

fn of(event: &Event<'_>) -> LogEvent {
    let mut line = Line::default();
    event.record(&mut line);
    let Line { mut message, fields } = line;
    let mut omitted = message.omitted + fields.omitted;
    let room = MOST_TEXT - message.text.len();
    let end = fields.text.floor_char_boundary(room);
    omitted += (fields.text.len() - end) as u64;
    message.text.push_str(&fields.text[..end]);
    LogEvent {
        ts: now(),
        level: if *event.metadata().level() == Level::ERROR { "error" } else { "warn" }.to_owned(),
        target: event.metadata().target().to_owned(),
        text: message.text,
        omitted_bytes: (omitted > 0).then_some(omitted),
    }
}

/// A line in the making, of bounded length whatever is written into it.
#[derive(Default)]
struct Line {
    message: Bounded,
    fields: Bounded,
}

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // a bounded text takes anything
        match field.name() {
            "message" => write!(self.message, "{value:?}").unwrap_or_default(),
            name => write!(self.fields, " {name}={value:?}").unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Bounded {
    text: String,
    omitted: u64,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.omitted > 0 { 0 } else { MOST_TEXT - self.text.len() };
        let end = text.floor_char_boundary(room);
        self.text.push_str(&text[..end]);
        self.omitted += (text.len() - end) as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::{
        guest::events::{Settings, ring::Wanted, subscription::Subscription},
        protocol::SseDecoder,
    };

    /// Logs while it is being logged.
    struct Chatty;

    impl fmt::Debug for Chatty {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            tracing::error!("from within");
            f.write_str("chatty")
        }
    }

    #[tokio::test]
    async fn warnings_are_events_of_bounded_length_and_never_of_themselves() {
        let (tap, bus) = (LogTap::default(), Bus::new("0123456789abcdef01", &Settings::DEFAULT));
        tap.connect(&bus);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(tap.layer()), || {
            tracing::info!("quiet");
            tracing::warn!(answer = 42, "loud");
            tracing::error!(who = ?Chatty, "meta");
            tracing::error!(text = "é".repeat(10_000), "long");
        });
        bus.close();
        let mut subscription = Subscription::new(&bus, Wanted::those(|name| name == EventName::Log), Some("0"));
        let mut decoder = SseDecoder::new(1 << 20);
        while let Some(bytes) = subscription.next().await {
            decoder.push(&bytes);
        }
        let events: Vec<_> = std::iter::from_fn(|| decoder.next_event().unwrap()).collect();
        assert_eq!(events[0].name, "gap");
        let logs: Vec<LogEvent> = events[1..].iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
        assert_eq!((&*logs[0].level, &*logs[0].text, logs[0].omitted_bytes), ("warn", "loud answer=42", None));
        assert_eq!((&*logs[1].level, &*logs[1].text), ("error", "meta who=chatty"));
        let whole = "long text=\"\"".len() + 20_000;
        assert_eq!(logs[2].text.len() as u64 + logs[2].omitted_bytes.unwrap(), whole as u64);
        assert!(logs[2].text.len() <= MOST_TEXT);
        assert_eq!(logs.len(), 3);
    }
}
