//! From what is logged to lines: the part of the subscriber that makes and hands them on.

use std::sync::Arc;

use tracing::{Event, Subscriber, span};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use super::{
    line::{Fields, LogFormat, render},
    sink::Sink,
};

/// The target of the lines that say who changed what.
pub(in crate::guest) const AUDIT: &str = "audit";

/// Makes lines and hands them on.
pub(super) struct Lines {
    pub(super) format: LogFormat,
    pub(super) ansi: bool,
    pub(super) log: Arc<Sink>,
    /// Where the lines of [`AUDIT`] go, where that is another place.
    pub(super) audit: Option<Arc<Sink>>,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut spans = Vec::new();
        for span in context.event_scope(event).into_iter().flat_map(tracing_subscriber::registry::Scope::from_root) {
            if let Some(known) = span.extensions().get::<Fields>() {
                spans.push((span.name(), known.clone()));
            }
        }
        let meta = event.metadata();
        let line = render(self.format, self.ansi, *meta.level(), meta.target(), &spans, &fields);
        match &self.audit {
            Some(audit) if meta.target() == AUDIT => audit.put(line),
            _ => self.log.put(line),
        }
    }
}
