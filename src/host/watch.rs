//! The stream of a pod's states.

use std::time::{Duration, Instant};

use super::{Error, ErrorKind, PodState, PodStatus, Result};

/// How often, and for how long.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// Between the end of a look and the next.
    pub interval: Duration,
    /// The whole; `None` watches until somebody drops the future.
    pub timeout: Option<Duration>,
}

impl WatchSettings {
    /// What the command uses: no end, and a look every half second.
    pub const DEFAULT: Self = Self { interval: Duration::from_millis(500), timeout: None };
}

/// One change.
#[derive(Debug, Clone)]
pub struct Change {
    /// The pod as it is now.
    pub status: PodStatus,
    /// The state before; `None` at the first look.
    pub previous: Option<PodState>,
    /// Since the watch began.
    pub elapsed: Duration,
}

/// Looks at a pod again and again, and tells each change of its state, until it is in the state `until`.
///
/// A state that comes and goes between two looks is not seen.
///
/// # Errors
/// [`ErrorKind::WaitTimedOut`]; and where `look` fails.
pub async fn watch<Look, Looked>(
    look: Look,
    settings: &WatchSettings,
    until: Option<PodState>,
    mut changed: impl FnMut(&Change),
) -> Result<PodState>
where
    Look: Fn() -> Looked,
    Looked: Future<Output = Result<PodStatus>>,
{
    let begun = Instant::now();
    let (mut previous, mut flag) = (None, String::new());
    let looking = async {
        loop {
            let status = look().await?;
            let state = status.state;
            if flag.is_empty() {
                flag = format!(" --pod {}", status.pod);
            }
            if previous != Some(state) {
                changed(&Change { status, previous, elapsed: begun.elapsed() });
                previous = Some(state);
            }
            if until == Some(state) {
                return Ok(state);
            }
            tokio::time::sleep(settings.interval).await;
        }
    };
    let Some(timeout) = settings.timeout else { return looking.await };
    if let Ok(ended) = tokio::time::timeout(timeout, looking).await {
        return ended;
    }
    let last = previous.map_or_else(|| "not known".to_owned(), |state| state.to_string());
    let wanted = until.map(|state| format!("not {state} ")).unwrap_or_default();
    let detail = format!("{wanted}after {:.1} s; the pod is {last}", timeout.as_secs_f64());
    Err(Error::new(ErrorKind::WaitTimedOut, detail)
        .with_hint(format!("see what it is at with `podlink pod status{flag}`")))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::host::{AgentKind, AgentStatus, EngineKind, TokenStatus};

    fn status(state: PodState) -> PodStatus {
        PodStatus {
            pod: "a".into(),
            engine: EngineKind::Local,
            state,
            container: "running",
            engine_error: None,
            address: String::new(),
            agent: AgentStatus {
                seen: "refused",
                says: String::new(),
                kind: AgentKind::Podlink,
                limits: None,
                health: None,
            },
            token: TokenStatus::Unknown,
            ready: false,
            hint: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_change_is_told_once_until_the_end() {
        use PodState as P;
        let looks = RefCell::new([P::Gone, P::Gone, P::Starting, P::Starting, P::Ready, P::Paused].into_iter());
        let look = || {
            let state = looks.borrow_mut().next().expect("no look after the end");
            async move { Ok(status(state)) }
        };
        let mut told = Vec::new();
        let tell = |change: &Change| told.push((change.previous, change.status.state));
        let ended = watch(look, &WatchSettings::DEFAULT, Some(P::Ready), tell).await.unwrap();
        assert_eq!(ended, P::Ready);
        assert_eq!(told, [(None, P::Gone), (Some(P::Gone), P::Starting), (Some(P::Starting), P::Ready)]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_in_time_and_on_failures() {
        let settings = WatchSettings { timeout: Some(Duration::from_secs(3)), ..WatchSettings::DEFAULT };
        let look = || async { Ok(status(PodState::Gone)) };
        let error = watch(look, &settings, Some(PodState::Ready), |_| {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitTimedOut);
        assert_eq!(error.to_string(), "not ready after 3.0 s; the pod is gone");
        let look = || async { Err(Error::new(ErrorKind::File, "no token")) };
        assert_eq!(watch(look, &settings, None, |_| {}).await.unwrap_err().kind(), ErrorKind::File);
    }
}
